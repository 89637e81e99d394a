// preprocessor_config.json in its spellings since 2021: sizes as a number, a list or an object, *FeatureExtractor names.
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/image/anyres.h"
#include "lib/image/processor.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

/// Reads one key of the file at a time; null counts as missing, as in transformers.
class Settings {
 public:
  Settings(const Json& json, const std::string& name) : json_(json), name_(name) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const Json& at(const char* key) const { return json_.at(key); }

  UserError wrong(const char* key, std::string_view expected) const {
    return input_error("{}: /{} is {}, expected {}", name_, key,
                       json_.at(key).dump(-1, ' ', false, Json::error_handler_t::replace), expected);
  }
  void read(const char* key, bool& value) const {
    if (!has(key)) return;
    if (!at(key).is_boolean()) throw wrong(key, "true or false");
    value = at(key).get<bool>();
  }
  int side(const char* key, const Json& json) const {
    if (!json.is_number_integer() || json.get<int64_t>() < 1 || json.get<int64_t>() > 16384)
      throw wrong(key, "sizes of 1 to 16384 pixels");
    return json.get<int>();
  }
  void read(const char* key, std::array<double, 3>& values) const {
    if (!has(key)) return;
    const Json& json = at(key);
    for (size_t c = 0; c < 3; ++c) {
      const Json& value = json.is_array() && json.size() == 3 ? json[c] : json;
      if (!value.is_number()) throw wrong(key, "a number or three numbers");
      values[c] = value.get<double>();
    }
  }

 private:
  const Json& json_;
  const std::string& name_;
};

enum class Family { kClip, kSiglip, kLlava, kLlavaNext, kLlavaOnevision, kQwen2Vl, kQwen3VlVideo, kBit, kConvnext };

Family family_of(std::string type, const std::string& name) {
  if (type == "Qwen3VLVideoProcessor") return Family::kQwen3VlVideo;
  for (const char* suffix : {"Fast", "Pil", "ImageProcessor", "FeatureExtractor", "VideoProcessor"})
    if (type.ends_with(suffix)) type.resize(type.size() - std::string_view(suffix).size());
  if (type == "CLIP") return Family::kClip;
  if (type == "Siglip") return Family::kSiglip;
  if (type == "Bit") return Family::kBit;  // DINOv2's
  if (type == "ConvNext") return Family::kConvnext;
  if (type == "Llava") return Family::kLlava;
  if (type == "LlavaNext") return Family::kLlavaNext;
  if (type == "LlavaOnevision") return Family::kLlavaOnevision;
  if (type == "Qwen2VL") return Family::kQwen2Vl;
  throw input_error(
      "{}: /image_processor_type is \"{}\", expected CLIPImageProcessor, SiglipImageProcessor, BitImageProcessor, "
      "ConvNextImageProcessor, LlavaImageProcessor, LlavaNextImageProcessor, LlavaOnevisionImageProcessor or "
      "Qwen2VLImageProcessor",
      name, type);
}

void set_family_defaults(Family family, ImageProcessor& p) {
  if (family == Family::kSiglip) {
    p.size_height = p.size_width = 224;
    p.do_center_crop = false;
    p.image_mean = p.image_std = {0.5, 0.5, 0.5};
  }
  if (family == Family::kLlavaNext) {
    p.aspect_ratio = AspectRatio::kAnyres;
    p.grid_pinpoints = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  }
  if (family == Family::kLlavaOnevision) {
    p.aspect_ratio = AspectRatio::kAnyres;
    p.one_tile_in_company = true;
    p.size_height = p.size_width = 384;
    p.do_center_crop = false;
    p.grid_pinpoints = onevision_pinpoints();
  }
  if (family == Family::kConvnext) {
    p.shortest_edge = 384;
    p.image_mean = p.image_std = {0.5, 0.5, 0.5};
  }
  if (family == Family::kQwen2Vl || family == Family::kQwen3VlVideo) {
    p.aspect_ratio = AspectRatio::kDynamic;
    p.do_center_crop = false;
  }
  if (family == Family::kQwen3VlVideo) {
    p.min_video_pixels = 128 * 32 * 32;
    p.max_video_pixels = 768 * 32 * 32;
    p.min_pixels = 1;
    p.max_pixels = kMaxImagePixels;
    p.patch_size = 16;
    p.image_mean = p.image_std = {0.5, 0.5, 0.5};
  }
}

/// Limits are min_pixels and max_pixels, or `size` with both of its edges, which are then areas.
void read_dynamic(const Settings& settings, bool of_all_frames, ImageProcessor& p) {
  int64_t& least = of_all_frames ? p.min_video_pixels : p.min_pixels;
  int64_t& most = of_all_frames ? p.max_video_pixels : p.max_pixels;
  const auto area = [&](const char* key, const Json& json, int64_t& value) {
    if (!json.is_number_integer() || json.get<int64_t>() < 1) throw settings.wrong(key, "a positive number of pixels");
    value = json.get<int64_t>();
  };
  if (settings.has("size")) {
    const Json& size = settings.at("size");
    if (!size.is_object()) throw settings.wrong("size", "{\"shortest_edge\", \"longest_edge\"}");
    for (const auto& [key, value] : size.items()) {
      if (key == "shortest_edge" || key == "min_pixels") area("size", value, least);
      if (key == "longest_edge" || key == "max_pixels") area("size", value, most);
    }
  }
  if (settings.has("min_pixels")) area("min_pixels", settings.at("min_pixels"), least);
  if (settings.has("max_pixels")) area("max_pixels", settings.at("max_pixels"), most);
  if (settings.has("patch_size")) p.patch_size = settings.side("patch_size", settings.at("patch_size"));
  if (settings.has("merge_size")) p.merge_size = settings.side("merge_size", settings.at("merge_size"));
}

void read_size(const Settings& settings, ImageProcessor& p) {
  if (!settings.has("size")) return;
  const Json& size = settings.at("size");
  p.size_height = p.size_width = 0;
  if (size.is_number()) {
    p.shortest_edge = settings.side("size", size);
  } else if (size.is_object() && size.contains("shortest_edge") && !size.contains("longest_edge")) {
    p.shortest_edge = settings.side("size", size["shortest_edge"]);
  } else if (size.is_object() && size.contains("height") && size.contains("width")) {
    p.size_height = settings.side("size", size["height"]);
    p.size_width = settings.side("size", size["width"]);
  } else if (size.is_array() && size.size() == 2) {
    p.size_height = settings.side("size", size[0]);
    p.size_width = settings.side("size", size[1]);
  } else {
    throw settings.wrong("size", "a number, {\"shortest_edge\"} or {\"height\", \"width\"}");
  }
}

void read_crop(const Settings& settings, ImageProcessor& p) {
  if (!settings.has("crop_size")) return;
  const Json& crop = settings.at("crop_size");
  if (crop.is_number()) {
    p.crop_height = p.crop_width = settings.side("crop_size", crop);
  } else if (crop.is_object() && crop.contains("height") && crop.contains("width")) {
    p.crop_height = settings.side("crop_size", crop["height"]);
    p.crop_width = settings.side("crop_size", crop["width"]);
  } else if (crop.is_array() && crop.size() == 2) {
    p.crop_height = settings.side("crop_size", crop[0]);
    p.crop_width = settings.side("crop_size", crop[1]);
  } else {
    throw settings.wrong("crop_size", "a number or {\"height\", \"width\"}");
  }
}

/// Pictures below 384 pixels are the middle of a larger one, of which they keep crop_pct; others are stretched to the square.
void read_convnext(const Settings& settings, ImageProcessor& p) {
  constexpr int kStretchedFrom = 384;
  read_size(settings, p);
  if (p.size_height > 0) throw settings.wrong("size", "{\"shortest_edge\"}");
  double kept = 224.0 / 256;
  if (settings.has("crop_pct")) {
    if (!settings.at("crop_pct").is_number()) throw settings.wrong("crop_pct", "a number");
    kept = settings.at("crop_pct").get<double>();
    if (kept < 0.1 || kept > 1) throw settings.wrong("crop_pct", "0.1 to 1");
  }
  const int side = p.shortest_edge;
  p.do_center_crop = side < kStretchedFrom;
  if (p.do_center_crop) {
    p.shortest_edge = static_cast<int>(side / kept);
    p.crop_height = p.crop_width = side;
  } else {
    p.size_height = p.size_width = side;
  }
}

void read_pinpoints(const Settings& settings, ImageProcessor& p) {
  if (!settings.has("image_grid_pinpoints")) return;
  const Json& list = settings.at("image_grid_pinpoints");
  if (!list.is_array() || list.empty()) throw settings.wrong("image_grid_pinpoints", "a list of [height, width]");
  p.grid_pinpoints.clear();
  for (const Json& pair : list) {
    if (!pair.is_array() || pair.size() != 2) throw settings.wrong("image_grid_pinpoints", "a list of [height, width]");
    p.grid_pinpoints.push_back(
        {settings.side("image_grid_pinpoints", pair[1]), settings.side("image_grid_pinpoints", pair[0])});
  }
}

void read_numbers(const Settings& settings, ImageProcessor& p) {
  settings.read("image_mean", p.image_mean);
  settings.read("image_std", p.image_std);
  for (const double std : p.image_std)
    if (p.do_normalize && std == 0) throw settings.wrong("image_std", "numbers other than 0");
  if (settings.has("rescale_factor")) {
    if (!settings.at("rescale_factor").is_number()) throw settings.wrong("rescale_factor", "a number");
    p.rescale_factor = settings.at("rescale_factor").get<double>();
  }
  if (settings.has("resample")) {
    const Json& resample = settings.at("resample");
    if (!resample.is_number_integer() || resample.get<int64_t>() < 0 || resample.get<int64_t>() > 5)
      throw settings.wrong("resample", "0 to 5 (Pillow's numbers; 3 is bicubic)");
    p.resample = static_cast<Resample>(resample.get<int>());
  }
}

std::string type_name(const Json& json) {
  for (const char* key : {"image_processor_type", "feature_extractor_type", "video_processor_type"})
    if (json.contains(key) && json.at(key).is_string()) return json.at(key).get<std::string>();
  return "CLIPImageProcessor";
}

}  // namespace

ImageProcessor ImageProcessor::parse(const std::string& text, const std::string& name) {
  const Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object()) throw input_error("{}: is not a JSON object", name);
  const bool nested = document.contains("image_processor") && document.at("image_processor").is_object();
  const Json& json = nested ? document.at("image_processor") : document;
  ImageProcessor p;
  p.type = type_name(json);
  const Family family = family_of(p.type, name);
  set_family_defaults(family, p);
  const Settings settings(json, name);
  settings.read("do_resize", p.do_resize);
  settings.read("do_center_crop", p.do_center_crop);
  settings.read("do_rescale", p.do_rescale);
  settings.read("do_normalize", p.do_normalize);
  bool pad = false;
  settings.read("do_pad", pad);
  if (pad && family == Family::kLlava) p.aspect_ratio = AspectRatio::kPad;
  if (family == Family::kQwen2Vl || family == Family::kQwen3VlVideo)
    read_dynamic(settings, family == Family::kQwen3VlVideo, p);
  else if (family == Family::kConvnext)
    read_convnext(settings, p);
  else
    read_size(settings, p), read_crop(settings, p);
  read_pinpoints(settings, p);
  read_numbers(settings, p);
  return p;
}

ImageProcessor ImageProcessor::load(const fs::path& model_dir) {
  for (const char* file : {"preprocessor_config.json", "processor_config.json"}) {
    const fs::path path = model_dir / file;
    if (!fs::exists(path)) continue;
    const std::string text = read_file(path);
    // processor_config.json of older models speaks of the text side only.
    if (std::string_view(file).starts_with("processor") && text.find("\"image_processor\"") == std::string::npos)
      continue;
    return parse(text, path.string());
  }
  throw input_error("{}: has no preprocessor_config.json", model_dir.string());
}

}  // namespace vlmtune
