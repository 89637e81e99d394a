// The files of a tokenizer folder, put together as transformers' AutoTokenizer (5.17) does.
#pragma once
#include <filesystem>
#include <memory>

#include "lib/text/pipeline.h"

namespace vlmtune {

/// Errors: input_error with file and place.
std::unique_ptr<TokenizerPipeline> load_tokenizer_files(const std::filesystem::path& model_dir);

/// How the reference builds the tokenizer of a folder: from tokenizer.json as it stands, or by a class of its own that
/// takes only vocabulary, merges, post-processor and added tokens from the file.
enum class ReferenceClass { kAsWritten, kLlama, kGpt2, kQwen2 };

/// `tokenizer_class` of tokenizer_config.json and `model_type` of config.json ("" when absent).
ReferenceClass reference_class(std::string tokenizer_class, const std::string& model_type);

}  // namespace vlmtune
