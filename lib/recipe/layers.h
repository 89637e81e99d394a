// A recipe as the layers it is made of: the files it extends, itself, and each --set, every one over those before.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lib/recipe/document.h"

namespace vlmtune {

struct Layer {
  std::string origin;           // for errors: the file, or "--set key=value"
  Object content;               // aliases resolved; hardware always an object
  bool names_hardware = false;  // it chooses a device, which replaces the one of earlier layers as a whole
};

/// The file's layers, what it extends first. Errors: usage_error for missing files, bad syntax and cycles.
std::vector<Layer> read_file_layers(const std::filesystem::path& file,
                                    const std::vector<std::filesystem::path>& hardware_dirs);

/// One layer for each "a.b=value". Errors: usage_error for an argument without '=' or with an empty name.
std::vector<Layer> read_set_layers(const std::vector<std::string>& sets,
                                   const std::vector<std::filesystem::path>& hardware_dirs);

/// Puts `layer` over `base`: objects merge, everything else replaces. Settings that exclude each other
/// (kAlternatives) replace each other too.
void merge_layer(Object& base, const Layer& layer);

/// The value at "section.key" or nullptr; null counts as absent.
const Value* find_setting(const Object& document, std::string_view section, std::string_view key);

/// Two settings that exclude each other: a layer that names one replaces the other of the layers below.
struct Alternatives {
  struct Setting {
    const char *section, *key;
  } one, other;
};
inline constexpr Alternatives kAlternatives[] = {
    {{"train", "gradient_accumulation_steps"}, {"train", "global_batch_size"}},
    {{"train", "gradient_accumulation_steps"}, {"schedule", "accumulation_stages"}},
    {{"train", "global_batch_size"}, {"schedule", "accumulation_stages"}},
    {{"train", "global_batch_size"}, {"train", "max_tokens_per_batch"}},
    {{"schedule", "warmup_steps"}, {"schedule", "warmup_ratio"}},
};

}  // namespace vlmtune
