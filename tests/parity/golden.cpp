#include "tests/parity/golden.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include "lib/base/files.h"
#include "lib/models/qwen_vl/config.h"
#include "lib/models/vlm/positions.h"

namespace vlmtune::test {

struct Golden::Json {
  nlohmann::json value;
};

fs::path golden_path(const std::string& name) {
  const char* fresh = std::getenv("GOLDEN_ROOT");  // scripts/golden/live
  return (fresh != nullptr ? fs::path(fresh) : fs::path(VLMTUNE_TEST_DATA) / "golden") / name;
}

Golden::Golden(const std::string& folder) : json_(std::make_unique<Json>()) {
  auto dir = golden_path(folder);
  json_->value = nlohmann::json::parse(read_file(dir / "golden.json"));
  if (json_->value.contains("same_as")) {
    dir = dir.parent_path() / json_->value["same_as"].get<std::string>();
    json_->value = nlohmann::json::parse(read_file(dir / "golden.json"));
  }
  source_ = dir.filename().string();
  if (fs::exists(dir / "golden.safetensors")) tensors_ = Checkpoint::open_file(dir / "golden.safetensors");
}
Golden::~Golden() = default;

bool Golden::has(const std::string& key) const { return json_->value.contains(key); }
double Golden::number(const std::string& key) const { return json_->value.at(key).get<double>(); }
std::string Golden::text(const std::string& key) const { return json_->value.at(key).get<std::string>(); }
std::vector<std::string> Golden::texts(const std::string& key) const {
  return json_->value.value(key, std::vector<std::string>{});
}
std::vector<double> Golden::numbers(const std::string& key) const {
  return json_->value.at(key).get<std::vector<double>>();
}
std::vector<int64_t> Golden::integers(const std::string& key) const {
  const auto& value = json_->value.at(key);
  return value.is_array() ? value.get<std::vector<int64_t>>() : std::vector<int64_t>{value.get<int64_t>()};
}

std::map<std::string, std::vector<int64_t>> Golden::lists(const std::string& key) const {
  return json_->value.value(key, std::map<std::string, std::vector<int64_t>>{});
}

std::vector<GenerateCase> Golden::generate(const std::string& key) const {
  std::vector<GenerateCase> cases;
  for (const auto& value : json_->value.at(key))
    cases.push_back({value.at("input_ids").get<std::vector<int64_t>>(), value.at("tokens").get<std::vector<int64_t>>(),
                     value.value("images", std::vector<int64_t>{}), value.at("max_new_tokens").get<int64_t>(),
                     value.value("repetition_penalty", 1.0)});
  return cases;
}

std::vector<std::string> Golden::names(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& name : tensors_->names())
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  return names;
}

std::unique_ptr<VlmModel> load_model(const fs::path& dir, const WeightOptions& options) {
  auto model = std::make_unique<VlmModel>(read_vlm_config(dir, std::nullopt, {}));
  load_weights(*model, {{Checkpoint::open(dir), model->config().whole()}}, options);
  model->visit([&](const std::string& name, Tensor& tensor) { tensor.requires_grad_(options.is_trained(name)); });
  return model;
}

WeightOptions train_everything() {
  WeightOptions options;
  options.is_trained = [](const std::string&) { return true; };
  return options;
}

namespace {

/// blockwise_patches backwards: [times * P, C * t * p * p] -> [times * t, C, h, w].
Tensor pixels_of_patches(const Tensor& patches, const Tensor& grid, const QwenVlVisionConfig& c) {
  const int64_t m = c.merge_size, p = c.patch_size, times = grid[0].item<int64_t>(), rows = grid[1].item<int64_t>() / m,
                columns = grid[2].item<int64_t>() / m;
  return patches.reshape({times, rows, columns, m, m, c.in_channels, c.temporal_patch_size, p, p})
      .permute({0, 6, 5, 1, 3, 7, 2, 4, 8})
      .reshape({times * c.temporal_patch_size, c.in_channels, rows * m * p, columns * m * p});
}

/// One picture or video more.
void add_picture(ImageInputs& images, const Tensor& pixels, double frames_per_second) {
  images.pixels.push_back(pixels);
  images.shapes.push_back({.original = {},
                           .tiles = static_cast<int>(pixels.size(0)),
                           .height = static_cast<int>(pixels.size(2)),
                           .width = static_cast<int>(pixels.size(3)),
                           .frames_per_second = frames_per_second});
}

}  // namespace

std::vector<int64_t> all_rows(const Tensor& tensor) {
  std::vector<int64_t> rows(static_cast<size_t>(tensor.size(0)));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

ImageInputs images_of_patches(const Tensor& pixel_values, const Tensor& grids, const std::vector<int64_t>& rows,
                              const VlmConfig& config, double frames_per_second) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < grids.size(0); ++i) counts.push_back(grids[i].prod().item<int64_t>());
  const auto patches = pixel_values.split_with_sizes(counts, 0);
  ImageInputs images;
  const auto& vision = dynamic_cast<const QwenVlVisionConfig&>(*config.vision);
  for (const int64_t row : rows) {
    const auto frames = pixels_of_patches(patches[static_cast<size_t>(row)], grids[row], vision);
    if (frames_per_second == 0)
      add_picture(images, frames.narrow(0, 0, 1), 0);
    else
      for (const auto& slot : vision.slot_per_time ? frames.split(vision.temporal_patch_size) : std::vector{frames})
        add_picture(images, slot, frames_per_second);
  }
  return images;
}

ImageInputs read_videos(const Golden& golden, const VlmConfig& config, const std::vector<int64_t>& rows) {
  const auto pixels = golden.tensor("pixel_values_videos");
  const double fps = golden.number("fps");
  if (golden.has_tensor("video_grid_thw"))
    return images_of_patches(pixels, golden.tensor("video_grid_thw"), rows, config, fps);
  ImageInputs videos;
  for (const int64_t row : rows) add_picture(videos, pixels[row], fps);
  return videos;
}

namespace {

int64_t count_stills(const Golden& golden, const std::string& prefix) {
  const auto per_picture = golden.has_tensor(prefix + "image_grid_thw") ? "image_grid_thw" : "pixel_values";
  return golden.tensor(prefix + per_picture).size(0);
}

ImageInputs read_stills(const Golden& golden, const VlmConfig& config, const std::vector<int64_t>& rows,
                        const std::string& prefix) {
  ImageInputs images;
  if (rows.empty()) return images;
  const auto pixels = golden.tensor(prefix + "pixel_values");
  if (golden.has_tensor(prefix + "image_grid_thw"))
    return images_of_patches(pixels, golden.tensor(prefix + "image_grid_thw"), rows, config);
  const auto processor = config.vision->default_processor();
  for (const int64_t row : rows) {
    auto original = processor.tile_size();
    if (golden.has_tensor("image_sizes")) {
      const auto size = golden.tensor("image_sizes")[row];
      original = {.width = size[1].item<int>(), .height = size[0].item<int>()};
    }
    const bool alone = !golden.has("batch_num_images") || golden.integers("tiles").at(static_cast<size_t>(row)) > 1;
    images.shapes.push_back(processor.shape_of(original, alone));
    images.pixels.push_back(golden.has_tensor("image_sizes") ? pixels[row].narrow(0, 0, images.shapes.back().tiles)
                                                             : pixels[row].unsqueeze(0));
  }
  return images;
}

}  // namespace

ImageInputs read_images(const Golden& golden, const VlmConfig& config, const std::vector<int64_t>& rows,
                        const std::string& prefix) {
  if (!golden.has_tensor("pixel_values_videos")) return read_stills(golden, config, rows, prefix);
  ImageInputs all;
  const int64_t stills = count_stills(golden, prefix);
  for (const int64_t row : rows) {
    const auto one =
        row < stills ? read_stills(golden, config, {row}, prefix) : read_videos(golden, config, {row - stills});
    all.pixels.insert(all.pixels.end(), one.pixels.begin(), one.pixels.end());
    all.shapes.insert(all.shapes.end(), one.shapes.begin(), one.shapes.end());
  }
  return all;
}

Tensor with_slots(const Tensor& ids, const VlmConfig& config) {
  if (config.model_type != "qwen") return ids;
  const int64_t start = config.image_token_id - 2, end = start + 1;
  const auto slots = ids.clone();
  for (auto row : slots.split(1)) {
    bool inside = false;
    for (int64_t& id : std::span(row.data_ptr<int64_t>(), static_cast<size_t>(row.numel()))) {
      if (id == end) inside = false;
      if (inside) id = config.image_token_id;
      if (id == start) inside = true;
    }
  }
  return slots;
}

Batch read_batch(const Golden& golden, const VlmConfig& config, const std::string& prefix) {
  Batch batch{with_slots(golden.tensor(prefix + "input_ids"), config),
              golden.tensor(prefix + "attention_mask"),
              golden.tensor(prefix + "labels"),
              {}};
  if (!golden.has_tensor(prefix + "pixel_values")) return batch;
  int64_t pictures = count_stills(golden, prefix);
  if (golden.has_tensor("pixel_values_videos"))
    pictures += static_cast<int64_t>(golden.integers("video_tokens").size());
  std::vector<int64_t> rows(static_cast<size_t>(pictures));
  std::iota(rows.begin(), rows.end(), 0);
  batch.images = read_images(golden, config, rows, prefix);
  return batch;
}

Tensor forward_logits(const VlmModel& model, const Batch& batch, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  const auto in = model.embed(batch.ids, batch.images, type, {});
  return model.logits(
      model.language_model().forward(in.tokens, {.positions = model.positions(batch.ids, batch.images.shapes, {}),
                                                 .left_padding = {},
                                                 .deepstack = in.deepstack}));
}

double forward_loss(VlmModel& model, const Batch& batch, std::map<std::string, Tensor>* gradients,
                    const TrainingMode& mode, int64_t chunk) {
  const auto tokens = (batch.labels.narrow(1, 1, batch.labels.size(1) - 1) != -100).sum().item<int64_t>();
  const auto in = model.embed(batch.ids, batch.images, torch::kFloat, mode);
  const auto hidden =
      model.language_model().forward(in.tokens, {.positions = model.positions(batch.ids, batch.images.shapes, {}),
                                                 .left_padding = {},
                                                 .deepstack = in.deepstack,
                                                 .training = mode.training,
                                                 .recompute = mode.language_checkpointing});
  const auto loss = model.loss_sum(hidden, batch.labels, chunk) / static_cast<double>(tokens);
  if (gradients == nullptr) return loss.item<double>();
  model.visit([](const std::string&, Tensor& tensor) { tensor.mutable_grad() = Tensor(); });
  loss.backward();
  model.visit([&](const std::string& name, Tensor& tensor) {
    if (tensor.requires_grad()) (*gradients)[name] = tensor.grad();
  });
  return loss.item<double>();
}

double difference(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  const double d = (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  const double d = difference(found, expected);
  EXPECT_LE(d, tolerance) << what;
  std::cout << fmt::format("{:>10.2e}  {}\n", d, what);
}

void expect_logits(const Tensor& logits, const Golden& golden, const Batch& batch, const std::string& name) {
  expect_close(logits * batch.mask.unsqueeze(-1), golden.tensor(name), kLogitsTolerance, name);
}

void expect_gradients(const std::map<std::string, Tensor>& found, const Golden& golden,
                      const std::function<std::string(const std::string&)>& our_name) {
  std::set<std::string> noise;
  for (const auto& name : golden.texts("noise_grad")) noise.insert(name);
  std::set<std::string> compared;
  double worst = 0;
  std::string where = "none";
  for (const auto& name : golden.names("grad.")) {
    const auto ours = our_name(name);
    compared.insert(ours);
    if (!found.contains(ours)) {
      ADD_FAILURE() << ours << " is not trained";
      continue;
    }
    const auto expected = golden.tensor("grad." + name);
    const double d = difference(found.at(ours), expected);
    if (noise.contains(name)) {
      EXPECT_LE(d, 1e-6 * golden.number("grad_norm")) << name;
      continue;
    }
    const double relative = d / expected.abs().max().item<double>();
    EXPECT_LE(relative, kGradientTolerance) << name;
    if (relative >= worst) std::tie(worst, where) = std::pair(relative, name);
  }
  EXPECT_FALSE(compared.empty());
  for (const auto& [name, gradient] : found)
    if (!compared.contains(name)) {
      EXPECT_FALSE(gradient.defined()) << name << " got a gradient, in the reference it has none";
    }
  std::cout << fmt::format("{:>10.2e}  gradients ({}), worst {}\n", worst, compared.size(), where);
}

std::vector<std::vector<int64_t>> greedy(const VlmModel& model, const Golden& golden,
                                         const std::vector<GenerateCase>& prompts,
                                         const std::vector<int64_t>& stop_ids) {
  const torch::NoGradGuard no_grad;
  const auto rows = static_cast<int64_t>(prompts.size());
  int64_t longest = 0, steps = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, static_cast<int64_t>(prompt.input_ids.size()));
    steps = std::max(steps, prompt.max_new_tokens);
  }
  auto ids = torch::zeros({rows, longest}, torch::kLong);
  std::vector<int64_t> padding, pictures;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& prompt = prompts[static_cast<size_t>(row)];
    const auto length = static_cast<int64_t>(prompt.input_ids.size());
    ids[row].narrow(0, longest - length, length).copy_(torch::tensor(prompt.input_ids, torch::kLong));
    padding.push_back(longest - length);
    pictures.insert(pictures.end(), prompt.images.begin(), prompt.images.end());
  }
  ids = with_slots(ids, model.config());
  KvCache cache(model.config().text.num_hidden_layers);
  std::vector<std::vector<int64_t>> answers(prompts.size());
  std::vector<bool> done(prompts.size());
  const auto images = read_images(golden, model.config(), pictures);
  auto positions = model.positions(ids, images.shapes, padding);
  auto in = model.embed(ids, images, torch::kFloat, {});
  for (int64_t step = 0; step < steps; ++step) {
    const auto hidden = model.language_model().forward(
        in.tokens, {.positions = positions, .left_padding = padding, .deepstack = in.deepstack, .cache = &cache});
    auto logits = model.logits(hidden.select(1, hidden.size(1) - 1));  // [B, V]
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (prompts[row].repetition_penalty == 1) continue;
      std::set<int64_t> said(prompts[row].input_ids.begin(), prompts[row].input_ids.end());
      said.insert(answers[row].begin(), answers[row].end());
      for (const int64_t id : said) {
        auto logit = logits[static_cast<int64_t>(row)][id];
        logit.mul_(logit.item<float>() < 0 ? prompts[row].repetition_penalty : 1 / prompts[row].repetition_penalty);
      }
    }
    const auto best = logits.argmax(-1);  // [B]
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (done[row]) continue;
      answers[row].push_back(best[static_cast<int64_t>(row)].item<int64_t>());
      done[row] = std::count(stop_ids.begin(), stop_ids.end(), answers[row].back()) > 0 ||
                  static_cast<int64_t>(answers[row].size()) == prompts[row].max_new_tokens;
    }
    in = {model.language_model().embed(best.unsqueeze(1), torch::kFloat)};
    positions = next_positions(positions);
  }
  return answers;
}

std::vector<int64_t> read_stop_ids(const fs::path& dir) {
  const auto value = nlohmann::json::parse(read_file(dir / "generation_config.json")).at("eos_token_id");
  return value.is_array() ? value.get<std::vector<int64_t>>() : std::vector<int64_t>{value.get<int64_t>()};
}

Scratch::Scratch() {
  std::string name = (fs::temp_directory_path() / "vlmtune_parity_XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}

WrittenFolder::WrittenFolder(const std::string& topic, const std::string& name) {
  const char* kept = std::getenv("VLMTUNE_KEEP_WRITTEN");
  path_ = (kept != nullptr ? fs::path(kept) : scratch_.path()) / topic / name;
  fs::create_directories(path_);
}

}  // namespace vlmtune::test
