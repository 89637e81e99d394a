// Fuzz target: any bytes as a row and as a data file. Only input_error may come out.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "lib/base/errors.h"
#include "lib/data/dataset.h"
#include "lib/data/json_rows.h"

namespace {

using namespace vlmtune;

void read_rows(const std::string& path, RowFormat format) {
  DatasetOptions options;
  options.files = {{path, 1}};
  options.format = format;
  options.needs_answer = false;
  try {
    const Dataset data = Dataset::open(options);
    for (int64_t i = 0; i < data.size(); ++i) {
      try {
        const Row row = data.row(i);
        size_t slots = 0;
        for (const Message& message : row.messages)
          for (const MessagePart& part : message.parts) slots += part.kind == MessagePart::Kind::kImage;
        VLMTUNE_CHECK(slots == row.images.size(), "slots and pictures differ");
      } catch (const UserError&) {
      }
    }
  } catch (const UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  for (const RowFormat format : {RowFormat::kAuto, RowFormat::kQwenVl, RowFormat::kMessages}) read_rows(path, format);
  return 0;
}
