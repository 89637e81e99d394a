#include "lib/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "lib/base/clock.h"
#include "lib/base/errors.h"

namespace vlmtune {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::mutex g_mutex;
std::FILE* g_file = nullptr;
bool g_bar_shown = false;  // a progress line stands on the terminal without a newline

void erase_bar() {
  if (g_bar_shown) std::fputs("\r\x1b[K", stderr);
  g_bar_shown = false;
}

std::string clock_text(double seconds) {
  const long s = static_cast<long>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

void open_log_file(const std::filesystem::path& path) {
  const std::lock_guard lock(g_mutex);
  if (g_file != nullptr) std::fclose(g_file);
  g_file = nullptr;
  if (path.empty()) return;
  g_file = std::fopen(path.c_str(), "a");
  if (g_file == nullptr) throw io_error("{}: cannot be opened for writing", path.string());
}

void log_message(LogLevel level, std::string_view message) {
  if (level < g_level) return;
  static constexpr std::string_view kPrefix[] = {"debug: ", "", "warning: ", "error: "};
  const auto line = fmt::format("{}{}\n", kPrefix[static_cast<int>(level)], message);
  const std::lock_guard lock(g_mutex);
  erase_bar();
  std::fputs(line.c_str(), stderr);
  if (g_file != nullptr) {
    std::fputs(line.c_str(), g_file);
    std::fflush(g_file);
  }
}

ProgressBar::ProgressBar(std::string title, std::string unit, long total)
    : title_(std::move(title)), unit_(std::move(unit)), total_(total), started_(now_seconds()) {}

ProgressBar::~ProgressBar() {
  const std::lock_guard lock(g_mutex);
  if (g_bar_shown) std::fputs("\n", stderr);
  g_bar_shown = false;
}

void ProgressBar::update(long done, std::string_view text) {
  if (first_ < 0) first_ = done - 1;
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const double now = now_seconds();
  const bool last = total_ > 0 && done >= total_;
  if (!last && now - last_drawn_ < (is_terminal ? 0.1 : 10.0)) return;
  last_drawn_ = now;
  const double elapsed = now - started_;
  std::string line = fmt::format("{} {}", title_, done);
  if (total_ > 0) {
    constexpr int kWidth = 20;
    const int full = static_cast<int>(kWidth * done / total_);
    const double rest =
        done > first_ ? elapsed / static_cast<double>(done - first_) * static_cast<double>(total_ - done) : 0;
    line = fmt::format("{} {:3}% |{}{}| {}/{} {} [{}<{}]", title_, 100 * done / total_, std::string(full, '#'),
                       std::string(kWidth - full, '.'), done, total_, unit_, clock_text(elapsed), clock_text(rest));
  }
  const std::lock_guard lock(g_mutex);
  if (is_terminal) {
    fmt::print(stderr, "\r{} {}\x1b[K", line, text);
    g_bar_shown = true;
  } else {
    fmt::print(stderr, "{} {}\n", line, text);
  }
  std::fflush(stderr);
}

}  // namespace vlmtune
