#include <algorithm>
#include <array>
#include <string_view>

#include "lib/text/tokenizer_files.h"

namespace vlmtune {
namespace {

constexpr std::array<std::string_view, 22> kAsWrittenModels = {
    "llava",     "llava_next", "vipllava", "mistral",  "mixtral",  "mistral3", "pixtral",     "voxtral",
    "ministral", "ministral3", "phi3",     "phi3_v",   "phimoe",   "smolvlm",  "deepseek_v2", "deepseek_v3",
    "internlm2", "minicpmv",   "molmo",    "step3_vl", "nemotron", "openvla"};

constexpr std::array<std::string_view, 12> kQwen2Models = {
    "qwen2", "qwen2_vl",  "qwen2_5_vl", "qwen2_5_omni", "qwen2_audio", "qwen2_moe",
    "qwen3", "qwen3_moe", "qwen3_vl",   "qwen3_vl_moe", "qwen3_next",  "qwen3_omni_moe"};

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

ReferenceClass reference_class(std::string tokenizer_class, const std::string& model_type) {
  if (tokenizer_class.ends_with("Fast")) tokenizer_class.resize(tokenizer_class.size() - 4);
  if (contains(kAsWrittenModels, model_type)) return ReferenceClass::kAsWritten;
  // For "qwen2" the reference trusts the model type, for its relatives the class when that is a concrete one.
  if (model_type == "qwen2") return ReferenceClass::kQwen2;
  if (tokenizer_class == "LlamaTokenizer") return ReferenceClass::kLlama;
  if (tokenizer_class == "GPT2Tokenizer") return ReferenceClass::kGpt2;
  bool unnamed = tokenizer_class.empty();
  if (tokenizer_class == "Qwen2Tokenizer" || (unnamed && contains(kQwen2Models, model_type)))
    return ReferenceClass::kQwen2;
  return ReferenceClass::kAsWritten;
}

}  // namespace vlmtune
