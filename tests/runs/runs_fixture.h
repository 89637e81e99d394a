// A scratch run with checkpoints made to order.
#pragma once
#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "lib/runs/manifest.h"
#include "tests/base/scratch.h"

namespace vlmtune {

namespace fs = std::filesystem;

class RunsTest : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    checkpoints_ = folder_ / "checkpoints";
  }
  /// Writes and seals a checkpoint with one file of `bytes` bytes.
  fs::path save(int64_t step, std::optional<double> eval_loss = {}, std::optional<double> train_loss = {},
                size_t bytes = 10) {
    CheckpointWriter writer(checkpoints_, step);
    std::ofstream(writer.path() / "adapter_model.safetensors") << std::string(bytes, 'w');
    return writer.seal(train_loss, eval_loss);
  }
  template <typename Run>
  static UserError error_of(Run run) {
    try {
      run();
    } catch (const UserError& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return UserError(ExitCode::kDone, "");
  }
  template <typename Run>
  static std::string log_of(Run run) {
    testing::internal::CaptureStderr();
    run();
    return testing::internal::GetCapturedStderr();
  }

  fs::path checkpoints_;
};

}  // namespace vlmtune
