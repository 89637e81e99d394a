// The two kinds of failure: a user's mistake (UserError, one sentence, an exit code) and ours (InternalError).
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace vlmtune {

/// Exit status of the program, as promised to scripts.
enum class ExitCode { kDone = 0, kInternal = 1, kUsage = 2, kInput = 3, kMemory = 4, kIo = 5, kSignalBase = 128 };

/// A mistake of the user or of the outside world. The message is one sentence that names the file, the place in it
/// (JSON pointer, line, tensor name), what was found and what was expected.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// A broken assumption of our own.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <typename... Args>
UserError make_error(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  return UserError(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Bad command line or recipe (exit 2).
template <typename... Args>
UserError usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ExitCode::kUsage, format, std::forward<Args>(args)...);
}
/// Bad data, image, checkpoint or tokenizer (exit 3).
template <typename... Args>
UserError input_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ExitCode::kInput, format, std::forward<Args>(args)...);
}
/// Does not fit, out of memory (exit 4).
template <typename... Args>
UserError memory_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ExitCode::kMemory, format, std::forward<Args>(args)...);
}
/// Disk full, unwritable (exit 5).
template <typename... Args>
UserError io_error(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ExitCode::kIo, format, std::forward<Args>(args)...);
}

}  // namespace vlmtune

/// Checks an assumption of our own code.
#define VLMTUNE_CHECK(condition, ...)                                                               \
  do {                                                                                              \
    if (!(condition))                                                                               \
      throw ::vlmtune::InternalError(                                                               \
          fmt::format("{}:{}: {} ({})", __FILE__, __LINE__, fmt::format(__VA_ARGS__), #condition)); \
  } while (false)
