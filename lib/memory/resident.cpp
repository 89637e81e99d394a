#include "lib/memory/resident.h"

#include <fstream>
#include <string>

namespace vlmtune {
namespace {

int64_t status_kib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(std::char_traits<char>::length(key) + 1));
  return 0;
}

}  // namespace

int64_t resident_bytes() { return status_kib("VmRSS") * 1024; }
int64_t peak_resident_bytes() { return status_kib("VmHWM") * 1024; }

}  // namespace vlmtune
