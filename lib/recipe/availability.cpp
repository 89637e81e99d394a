#include "lib/recipe/availability.h"

#include "lib/recipe/fields.h"

namespace vlmtune {
namespace {

constexpr Availability kTable[] = {
    {"/image/aspect_ratio", "model|square|pad|anyres|anyres_max_N|dynamic"},
    {"/image/adaptive", "null"},
    {"/image/token_pruning", "null"},
    {"/freeze/stages", "null|[]"},
    {"/lora/bias", "none"},
    {"/precision/trained", "fp32|bf16"},
    {"/precision/norms", "fp32"},
    {"/memory/attention", "auto"},
    {"/memory/on_oom", "fail"},
    {"/parallel/strategy", "auto"},
    {"/parallel/tensor", "1"},
    {"/parallel/pipeline", "1"},
    {"/parallel/sequence", "1"},
    {"/parallel/expert", "1"},
    {"/output/tensorboard", "false"},
    {"/output/prometheus", "null"},
    {"/generation/kv_cache", "compute|fp16"},
    {"/generation/window", "null"},
};

}  // namespace

std::span<const Availability> availability_table() { return kTable; }

const Availability* find_unavailable(std::string_view pointer, const Value& value) {
  for (const auto& row : kTable)
    if (row.pointer == pointer) {
      const auto text = value.text() != nullptr ? *value.text() : inline_text(value);
      return matches_pattern(text, row.works) ? nullptr : &row;
    }
  return nullptr;
}

}  // namespace vlmtune
