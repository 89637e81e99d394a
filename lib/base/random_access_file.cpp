#include "lib/base/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

UserError unreadable(const std::filesystem::path& path) {
  return input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
}

}  // namespace

RandomAccessFile::RandomAccessFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw unreadable(path_);
}

RandomAccessFile::~RandomAccessFile() { ::close(descriptor_); }

uint64_t RandomAccessFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw unreadable(path_);
  return static_cast<uint64_t>(status.st_size);
}

size_t RandomAccessFile::read(uint64_t offset, char* data, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(descriptor_, data + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw unreadable(path_);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace vlmtune
