#include "lib/pipeline/outputs.h"

#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/base/log.h"
#include "lib/checkpoint/pickled.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/models/export.h"
#include "lib/models/llava/config.h"
#include "lib/pipeline/model_files.h"
#include "lib/pipeline/options.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
namespace {

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json",      "generation_config.json",
    "qwen.tiktoken"};

/// The folder under a temporary name until everything in it is written.
class FolderInProgress {
 public:
  explicit FolderInProgress(fs::path dir) : dir_(std::move(dir)), temporary_(dir_.string() + ".tmp") {
    std::error_code error;
    fs::remove_all(temporary_, error);
    fs::create_directories(temporary_, error);
    if (error) throw io_error("{}: cannot be made ({})", temporary_.string(), error.message());
  }
  ~FolderInProgress() {
    std::error_code error;
    fs::remove_all(temporary_, error);
  }
  FolderInProgress(const FolderInProgress&) = delete;
  FolderInProgress& operator=(const FolderInProgress&) = delete;
  const fs::path& path() const { return temporary_; }
  void commit() {
    std::error_code error;
    fs::remove_all(dir_, error);
    fs::rename(temporary_, dir_, error);
    if (error) throw io_error("{}: cannot be put in place ({})", dir_.string(), error.message());
    sync_directory(dir_.parent_path());
  }

 private:
  fs::path dir_, temporary_;
};

void copy_if_there(const fs::path& from, const fs::path& to, const char* name) {
  if (fs::exists(from / name)) write_file_atomic(to / name, read_file(from / name));
}

/// Adds the image token to a tokenizer.json that lacks it.
void add_image_token(const fs::path& file, int64_t id) {
  if (!fs::exists(file)) return;
  auto json = Json::parse(read_file(file));
  json["added_tokens"].push_back({{"id", id},
                                  {"content", "<image>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  write_file_atomic(file, json.dump());
}

/// As recipes and LLaVA's mm_projector_type spell it; see parse_projector_type.
std::string projector_type(const LlavaVisionConfig& vision) {
  const int64_t linears = vision.projector.num_linears;
  return linears == 1 ? "linear" : fmt::format("mlp{}x_gelu", linears);
}

/// config.json of a model that was put together from a language model and a tower.
Json composed_config(const Recipe& recipe, const InputParts& inputs) {
  auto text = Json::parse(read_file(fs::path(recipe.model.path) / "config.json"));
  text.erase("quantization_config");
  auto vision = Json::parse(read_file(fs::path(*recipe.model.vision_tower) / "config.json"));
  if (vision.contains("vision_config")) vision = vision["vision_config"];
  const auto& c = inputs.config;
  const auto& v = llava_vision(c);
  if (v.tower->takes_any_size()) vision["image_size"] = v.tower->image_size;
  Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                 {"model_type", "llava"},
                 {"text_config", text},
                 {"vision_config", vision},
                 {"image_token_index", c.image_token_id},
                 {"image_seq_length", v.features_per_tile()},
                 {"projector_hidden_act", "gelu"},
                 {"multimodal_projector_bias", true},
                 {"vision_feature_layer", v.feature_states[0] - v.tower->last_state() - 1},
                 {"vision_feature_select_strategy", v.keep_class_token ? "full" : "default"},
                 {"tie_word_embeddings", c.text.tie_word_embeddings}};
  config["text_config"]["vocab_size"] = std::max(c.text.vocab_size, c.image_token_id + 1);
  if (v.projector.width != c.text.hidden_size) config["projector_width"] = v.projector.width;
  if (v.projector.num_linears != 2) config["mm_projector_type"] = projector_type(v);
  return config;
}

/// config.json as LLaVA's own repository has it: the language model's keys with mm_* ones beside them.
Json original_config(const Recipe& recipe, const InputParts& inputs) {
  const auto dir = described_by(recipe);
  auto config = Json::parse(read_file(dir / "config.json"));
  const auto& v = llava_vision(inputs.config);
  if (!config.contains("mm_vision_tower")) {
    const bool qwen = inputs.config.model_type == "qwen2", mistral = inputs.config.model_type == "mistral";
    config["architectures"] = {fmt::format("Llava{}ForCausalLM", qwen ? "Qwen" : mistral ? "Mistral" : "Llama")};
    config["model_type"] = qwen ? "llava_qwen" : mistral ? "llava_mistral" : "llava_llama";
    config["mm_hidden_size"] = v.feature_size();
    config["mm_projector_type"] = projector_type(v);
    config["mm_vision_select_layer"] = v.feature_states[0] - v.tower->last_state() - 1;
    config["mm_vision_select_feature"] = v.keep_class_token && v.tower->has_class_token() ? "cls_patch" : "patch";
    config["mm_patch_merge_type"] = "flat";
    config["image_aspect_ratio"] = inputs.image_processor->aspect_ratio == AspectRatio::kPad ? "pad" : "square";
    for (const char* key : {"mm_use_im_start_end", "mm_use_im_patch_token"}) config[key] = false;
    config["use_mm_proj"] = true;
  }
  const auto tower = recipe.model.vision_tower ? fs::path(*recipe.model.vision_tower)
                                               : dir / config["mm_vision_tower"].get<std::string>();
  config["mm_vision_tower"] = fs::weakly_canonical(tower).string();
  return config;
}

void write_config(const fs::path& dir, const Json& config) {
  write_file_atomic(dir / "config.json", config.dump(2) + "\n");
}

/// The projector alone, by the names that its layout has.
void write_projector(VlmModel& model, const fs::path& dir) {
  const bool original = in_original_layout(model.config());
  std::map<std::string, Tensor> tensors;
  model.visit([&](const std::string& name, Tensor& tensor) {
    constexpr std::string_view kModel = "model.";
    if (component_of(name) == Component::kProjector)
      tensors[original                   ? model.config().published_name(name)
              : name.starts_with(kModel) ? name.substr(kModel.size())
                                         : name] = tensor.detach();
  });
  if (original)
    write_torch_file(dir / "mm_projector.bin", tensors);
  else
    write_safetensors(dir / "projector.safetensors", tensors);
}

}  // namespace

void write_whole_model(const Recipe& recipe, const InputParts& inputs, ModelParts& parts, const fs::path& dir) {
  const fs::path source = recipe.model.path;
  const bool original = in_original_layout(inputs.config);
  const bool composed = recipe.model.vision_tower.has_value() && !original;
  FolderInProgress folder(dir);
  export_weights(*parts.model, parts.sources, folder.path(), to_scalar_type(recipe.precision.parameters),
                 composed ? inputs.config.image_token_id + 1 : 0);
  for (const char* name : kTokenizerFiles) copy_if_there(source, folder.path(), name);
  for (const auto& entry : fs::directory_iterator(source))  // the code of a model that transformers has none for
    if (const auto name = entry.path().filename(); name.extension() == ".py")
      copy_if_there(source, folder.path(), name.c_str());
  for (const char* name : {"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"})
    copy_if_there(composed ? fs::path(*recipe.model.vision_tower) : source, folder.path(), name);
  auto config = original   ? original_config(recipe, inputs)
                : composed ? composed_config(recipe, inputs)
                           : Json::parse(read_file(source / "config.json"));
  if (original) config["unfreeze_mm_vision_tower"] = true;  // its weights are among the others
  const auto quantization = quantization_config(*parts.model, to_scalar_type(recipe.precision.parameters));
  if (quantization.empty())
    config.erase("quantization_config");
  else if (!config.contains("quantization_config"))
    config["quantization_config"] = Json::parse(quantization);
  write_config(folder.path(), config);
  if (composed) {
    if (!inputs.tokenizer->id_of("<image>"))
      add_image_token(folder.path() / "tokenizer.json", inputs.config.image_token_id);
    const auto& v = llava_vision(inputs.config);
    const Json processor = {{"processor_class", "LlavaProcessor"},
                            {"image_token", "<image>"},
                            {"patch_size", v.tower->image_size / v.grid_side()},
                            {"num_additional_image_tokens", v.tower->has_class_token() ? 1 : 0},
                            {"vision_feature_select_strategy", v.keep_class_token ? "full" : "default"}};
    write_file_atomic(folder.path() / "processor_config.json", processor.dump(2) + "\n");
  }
  folder.commit();
}

void write_final(const Recipe& recipe, const InputParts& inputs, ModelParts& parts, const fs::path& out) {
  parts.model->end_streaming();
  const bool projector_only = !parts.adapter && recipe.freeze.language_model && recipe.freeze.vision_tower;
  if (parts.adapter || projector_only) {
    FolderInProgress folder(out / "final");
    if (parts.adapter) save_adapter(*parts.model, *parts.adapter, folder.path());
    if (projector_only) write_projector(*parts.model, folder.path());
    if (in_original_layout(inputs.config)) write_config(folder.path(), original_config(recipe, inputs));
    folder.commit();
  } else {
    write_whole_model(recipe, inputs, parts, out / "final");
  }
  log_info("wrote {}", (out / "final").string());
  if (!recipe.output.merge_adapter || !parts.adapter) return;
  merge_adapter(*parts.model, to_scalar_type(recipe.precision.parameters));
  write_whole_model(recipe, inputs, parts, out / "merged");
  log_info("wrote {}", (out / "merged").string());
}

}  // namespace vlmtune
