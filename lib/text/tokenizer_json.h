// tokenizer.json (Hugging Face tokenizers library) to the parts of a pipeline.
#pragma once
#include <filesystem>

#include "lib/text/json_view.h"
#include "lib/text/pipeline.h"

namespace vlmtune {

/// Fills model, normalizer, pre-tokenizer, decoder, added tokens and what the post-processor adds.
/// Errors: input_error with the JSON pointer for anything unknown.
void read_tokenizer_json(const JsonView& root, TokenizerPipeline& pipeline);

/// The parts by themselves; the value is the object with "type".
std::unique_ptr<Normalizer> read_normalizer(const JsonView& value);
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonView& value);
void read_decoder(const JsonView& value, std::vector<std::unique_ptr<DecoderPart>>& parts);
std::unique_ptr<TokenModel> read_model(const JsonView& value);
AddedToken read_added_token(const JsonView& value, int64_t id);

}  // namespace vlmtune
