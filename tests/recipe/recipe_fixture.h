// A scratch folder with recipe files, and short ways to load them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lib/base/errors.h"
#include "lib/recipe/recipe.h"

namespace vlmtune {

class RecipeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        fmt::format("vlmtune_recipe_{}_{}", ::getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  Recipe load(const std::string& text, Command command = Command::kLoraFinetune,
              const std::vector<std::string>& sets = {}) {
    LoadOptions options;
    options.require_inputs = false;
    return load_recipe(write("recipe.json", text), command, sets, options);
  }
  Recipe load_sets(const std::vector<std::string>& sets, Command command = Command::kLoraFinetune) {
    return load("{}", command, sets);
  }
  /// The message of the usage error that `run` ends with.
  template <typename Run>
  static std::string error_of(Run run) {
    try {
      run();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::string error_in(const std::string& text, Command command = Command::kLoraFinetune,
                       const std::vector<std::string>& sets = {}) {
    return error_of([&] { load(text, command, sets); });
  }
  /// What a person sees on stderr while `run` runs.
  template <typename Run>
  static std::string log_of(Run run) {
    testing::internal::CaptureStderr();
    run();
    return testing::internal::GetCapturedStderr();
  }

  std::filesystem::path folder_;
};

}  // namespace vlmtune
