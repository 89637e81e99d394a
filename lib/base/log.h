// Messages for people: stderr, and the run's log file when one is open. Results never come this way.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace vlmtune {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);
LogLevel log_level();

/// Also appends every message to `path` (errors: io_error). An empty path closes the file.
void open_log_file(const std::filesystem::path& path);

void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kDebug) log_message(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

/// A line that is redrawn in place on a terminal and printed now and then elsewhere.
class ProgressBar {
 public:
  /// `unit` is what is counted, e.g. "step"; a total of 0 means unknown.
  ProgressBar(std::string title, std::string unit, long total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Shows `done` of the total and a short text such as "loss 1.234".
  void update(long done, std::string_view text);

 private:
  std::string title_, unit_;
  long total_;
  long first_ = -1;
  double started_ = 0, last_drawn_ = 0;
};

}  // namespace vlmtune
