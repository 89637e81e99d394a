#include "lib/base/files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// A descriptor that closes itself.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

constexpr std::string_view kTemporarySuffix = ".tmp.";  // and the writer's process id

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, size_t size) { EVP_DigestUpdate(context_, data, size); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_, digest, &length);
    std::string text;
    for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info {};
  if (file.value < 0 || ::fstat(file.value, &info) != 0)
    throw input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw input_error("{}: is a folder, expected a file", path.string());
  std::string data(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  for (;;) {  // size 0 is also what pipes and /proc report: read to the end
    if (done == data.size()) data.resize(data.size() + 4096);
    const ssize_t got = ::read(file.value, data.data() + done, data.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  data.resize(done);
  return data;
}

void write_file_atomic(const fs::path& path, std::string_view data) {
  AtomicFile file(path);
  file.write(data);
  file.commit();
}

void remove_stale_temporaries(const fs::path& path) {
  const auto prefix = path.filename().string() + std::string(kTemporarySuffix);
  std::error_code error;
  for (fs::directory_iterator entry(path.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;  // what cannot be removed does no harm
    if (entry->path().filename().string().starts_with(prefix)) fs::remove(entry->path(), ignored);
  }
}

void sync_directory(const fs::path& path) {
  const Descriptor folder{::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.value < 0 || (::fsync(folder.value) != 0 && errno != EINVAL))
    throw io_error("{}: the folder cannot be synced ({})", path.string(), std::strerror(errno));
}

std::string sha256_hex(std::string_view data) {
  Sha256 hash;
  hash.update(data.data(), data.size());
  return hash.hex();
}

std::string sha256_file(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) throw input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
  Sha256 hash;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t got = ::read(file.value, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
    if (got == 0) return hash.hex();
    hash.update(buffer.data(), static_cast<size_t>(got));
  }
}

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info {};
  if (file.value < 0 || ::fstat(file.value, &info) != 0)
    throw input_error("{}: cannot be read ({})", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw input_error("{}: is not a regular file", path.string());
  std::shared_ptr<MappedFile> map(new MappedFile);
  map->path_ = path;
  map->size_ = static_cast<size_t>(info.st_size);
  if (map->size_ > 0) {
    map->data_ = ::mmap(nullptr, map->size_, PROT_READ, MAP_PRIVATE, file.value, 0);
    if (map->data_ == MAP_FAILED) {
      map->data_ = nullptr;
      throw input_error("{}: cannot be mapped ({})", path.string(), std::strerror(errno));
    }
  }
  return map;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void drop_pages(const void* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void prefetch_pages(const void* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data), begin = address / page * page;
  ::madvise(reinterpret_cast<void*>(begin), address + bytes - begin, MADV_WILLNEED);
}

void MappedFile::drop(size_t offset, size_t length) const {
  drop_pages(static_cast<const std::byte*>(data_) + offset, length);
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += fmt::format("{}{}", kTemporarySuffix, ::getpid());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw io_error("{}: cannot be written ({})", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(descriptor_, bytes, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw io_error("{}: cannot be written ({})", path_.string(), std::strerror(errno));
    bytes += put;
    size -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) throw io_error("{}: cannot be synced ({})", path_.string(), std::strerror(errno));
  ::close(descriptor_);
  descriptor_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    throw io_error("{}: cannot be renamed into place ({})", path_.string(), std::strerror(error));
  }
  sync_directory(path_.parent_path());
}

}  // namespace vlmtune
