// What a run leaves behind: the adapter, the projector, or a whole model in the Hugging Face layout.
#pragma once
#include <filesystem>

#include "lib/pipeline/assemble.h"

namespace vlmtune {

/// Writes OUT/final: a PEFT adapter when the run has one, else the projector alone when only it was trained, else the whole
/// model. With output.merge_adapter also OUT/merged. Errors: io_error.
void write_final(const Recipe& recipe, const InputParts& inputs, ModelParts& parts, const std::filesystem::path& out);

/// A folder that transformers' from_pretrained and vlmtune read: weights, config.json, tokenizer, processor.
void write_whole_model(const Recipe& recipe, const InputParts& inputs, ModelParts& parts,
                       const std::filesystem::path& dir);

}  // namespace vlmtune
