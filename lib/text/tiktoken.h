// tiktoken's vocabularies, as the first Qwen models have them: a line for each token, base64 of its bytes and its rank, which is its id.
// Any two neighbours that make a token may merge, the lowest rank first (https://github.com/openai/tiktoken).
#pragma once
#include <filesystem>
#include <memory>

#include "lib/text/bpe_model.h"

namespace vlmtune {

/// The vocabulary in GPT-2's printable characters. Errors: input_error with file and line.
std::unique_ptr<BpeModel> read_tiktoken(const std::filesystem::path& file);

}  // namespace vlmtune
