// Golden folders (tests/golden/README.md) and what it takes to compare a model with them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lib/base/errors.h"
#include "lib/models/adapter.h"
#include "lib/models/weights.h"

namespace vlmtune::test {

namespace fs = std::filesystem;

// Never raised: the reference's own two attention kernels are 1e-5 and 1e-6 apart.
constexpr double kLogitsTolerance = 1e-4;    // absolute
constexpr double kGradientTolerance = 1e-4;  // relative to the gradient's largest value
constexpr double kLossTolerance = 2e-6;      // relative

/// tests/golden/<name>.
fs::path golden_path(const std::string& name);

struct GenerateCase {
  std::vector<int64_t> input_ids, tokens, images;
  int64_t max_new_tokens = 0;
  double repetition_penalty = 1;
};

/// golden.json and golden.safetensors of a folder; `same_as` is followed.
class Golden {
 public:
  explicit Golden(const std::string& folder);
  ~Golden();
  /// The name of the folder whose values hold.
  const std::string& source() const { return source_; }
  bool has(const std::string& key) const;
  double number(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  /// {name: list}; empty when the key is not there.
  std::map<std::string, std::vector<int64_t>> lists(const std::string& key) const;
  std::vector<GenerateCase> generate(const std::string& key) const;
  bool has_tensor(const std::string& name) const { return tensors_->has(name); }
  Tensor tensor(const std::string& name) const { return tensors_->view(name).clone(); }
  /// Names that begin with `prefix`, without it.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  struct Json;
  std::unique_ptr<Json> json_;
  std::string source_;
  std::optional<Checkpoint> tensors_;
};

struct Batch {
  Tensor ids, mask, labels;  // [B, T]
  ImageInputs images;
};

/// Model `models/<name>`, or `parts` of it; see load_weights.
std::unique_ptr<VlmModel> load_model(const fs::path& dir, const WeightOptions& options = {});
WeightOptions train_everything();

/// The first Qwen-VL's reference lets the bytes of a path and padding stand at a picture's slots: here are the slots.
Tensor with_slots(const Tensor& ids, const VlmConfig& config);

Batch read_batch(const Golden& golden, const VlmConfig& config, const std::string& prefix = "");
/// The pictures of these rows of pixel_values, padding tiles left out; rows behind them are those of pixel_values_videos.
ImageInputs read_images(const Golden& golden, const VlmConfig& config, const std::vector<int64_t>& rows,
                        const std::string& prefix = "");

/// 0, 1, ... of dimension 0.
std::vector<int64_t> all_rows(const Tensor& tensor);

/// Pictures of any size out of transformers' pixel_values, the patches of all pictures one after the other, and
/// image_grid_thw; those of `rows`.
ImageInputs images_of_patches(const Tensor& pixel_values, const Tensor& grids, const std::vector<int64_t>& rows,
                              const VlmConfig& config, double frames_per_second = 0);

/// The same of videos: these rows of pixel_values_videos, each time apart where it has a slot of its own.
ImageInputs read_videos(const Golden& golden, const VlmConfig& config, const std::vector<int64_t>& rows);

/// Logits of a plain forward call [B, T, V].
Tensor forward_logits(const VlmModel& model, const Batch& batch, torch::ScalarType type = torch::kFloat);
/// Mean loss; with `gradients` every trained tensor's gradient by our name.
double forward_loss(VlmModel& model, const Batch& batch, std::map<std::string, Tensor>* gradients,
                    const TrainingMode& mode = {}, int64_t chunk = 0);

/// Largest absolute difference; infinite when shapes differ or a value is no number.
double difference(const Tensor& a, const Tensor& b);
/// Records the difference under `what` in the report and expects it to be at most `tolerance`.
void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what);
void expect_logits(const Tensor& logits, const Golden& golden, const Batch& batch, const std::string& name = "logits");
/// Every `grad.NAME` of the golden, and that nothing else got a gradient.
void expect_gradients(const std::map<std::string, Tensor>& found, const Golden& golden,
                      const std::function<std::string(const std::string&)>& our_name);

/// Greedy answers to all prompts together, padded on the left, stop tokens included.
std::vector<std::vector<int64_t>> greedy(const VlmModel& model, const Golden& golden,
                                         const std::vector<GenerateCase>& prompts,
                                         const std::vector<int64_t>& stop_ids);
std::vector<int64_t> read_stop_ids(const fs::path& dir);

template <typename Callable>
std::string message_of(const Callable& callable) {
  try {
    callable();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// A folder that goes away with the test.
class Scratch {
 public:
  Scratch();
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Where a test writes `topic`/`name`: below the folder that VLMTUNE_KEEP_WRITTEN names, for scripts/golden/check_written.py,
/// or in a scratch folder.
class WrittenFolder {
 public:
  WrittenFolder(const std::string& topic, const std::string& name);
  const fs::path& path() const { return path_; }

 private:
  Scratch scratch_;
  fs::path path_;
};

}  // namespace vlmtune::test
