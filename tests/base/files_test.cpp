#include "lib/base/files.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "lib/base/errors.h"
#include "tests/base/scratch.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FilesTest : public ScratchTest {};

template <typename Run>
UserError error_of(Run run) {
  try {
    run();
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return UserError(ExitCode::kDone, "");
}

TEST_F(FilesTest, Sha256KnownVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(FilesTest, Sha256OfAFileLargerThanTheBuffer) {
  const std::string data(3 * (1 << 20) + 17, 'x');
  EXPECT_EQ(sha256_file(write("big", data)), sha256_hex(data));
  EXPECT_EQ(sha256_file(write("empty", "")), sha256_hex(""));
  EXPECT_EQ(error_of([&] { sha256_file(folder_ / "absent"); }).code(), ExitCode::kInput);
}

TEST_F(FilesTest, ReadFile) {
  const std::string data("a\0b\r\n\xff", 6);
  EXPECT_EQ(read_file(write("f", data)), data);
  EXPECT_EQ(read_file(write("empty", "")), "");
  EXPECT_FALSE(read_file("/proc/self/status").empty()) << "files that report size 0";
  const auto missing = error_of([&] { read_file(folder_ / "absent"); });
  EXPECT_EQ(missing.code(), ExitCode::kInput);
  EXPECT_THAT(missing.what(), HasSubstr("absent"));
  EXPECT_THAT(error_of([&] { read_file(folder_); }).what(), HasSubstr("is a folder"));
}

TEST_F(FilesTest, AtomicWriteReplacesAndLeavesNothingElse) {
  const auto path = folder_ / "f";
  write_file_atomic(path, "one");
  write_file_atomic(path, "two");
  EXPECT_EQ(read(path), "two");
  EXPECT_EQ(num_entries(folder_), 1);
}

TEST_F(FilesTest, AbandonedWriteKeepsTheOldContent) {
  const auto path = write("f", "old");
  {
    AtomicFile file(path);
    file.write("new");
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(num_entries(folder_), 1);
}

TEST_F(FilesTest, UnwritablePlacesAreIoErrors) {
  const auto missing = error_of([&] { write_file_atomic(folder_ / "no/such/folder/f", "x"); });
  EXPECT_EQ(missing.code(), ExitCode::kIo);
  EXPECT_THAT(missing.what(), HasSubstr("no/such/folder/f"));
  fs::create_directories(folder_ / "d/inner");
  EXPECT_EQ(error_of([&] { write_file_atomic(folder_ / "d", "x"); }).code(), ExitCode::kIo) << "a folder in the way";
  EXPECT_EQ(num_entries(folder_), 1) << "no temporary file stays";
}

TEST_F(FilesTest, FullDiskKeepsTheOldFile) {
  const auto path = write("f", "old");
  const pid_t child = ::fork();  // a size limit makes write() fail the way a full disk does, part-way through
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomic(path, std::string(100'000, 'n'));
    } catch (const UserError& error) {
      ::_exit(error.code() == ExitCode::kIo ? 42 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(num_entries(folder_), 1);
}

TEST_F(FilesTest, FullDeviceIsAnIoErrorWithItsReason) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  // AtomicFile opens "<path>.tmp.<pid>": let that name lead to the device that is always full.
  const auto path = folder_ / "f";
  fs::create_symlink("/dev/full", folder_ / fmt::format("f.tmp.{}", ::getpid()));
  const auto error = error_of([&] { write_file_atomic(path, "x"); });
  EXPECT_EQ(error.code(), ExitCode::kIo);
  EXPECT_THAT(error.what(), HasSubstr("No space left"));
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(FilesTest, MappedFile) {
  const auto map = MappedFile::open(write("f", std::string(10'000, 'z')));
  ASSERT_EQ(map->bytes().size(), 10'000U);
  map->drop(0, 10'000);
  EXPECT_EQ(map->bytes()[9'999], std::byte{'z'}) << "dropped pages come back";
  EXPECT_EQ(MappedFile::open(write("empty", ""))->bytes().size(), 0U);
  EXPECT_EQ(error_of([&] { MappedFile::open(folder_ / "absent"); }).code(), ExitCode::kInput);
  EXPECT_THAT(error_of([&] { MappedFile::open(folder_); }).what(), HasSubstr("not a regular file"));
}

TEST_F(FilesTest, SyncDirectory) {
  sync_directory(folder_);
  sync_directory("");
  EXPECT_EQ(error_of([&] { sync_directory(folder_ / "absent"); }).code(), ExitCode::kIo);
}

}  // namespace
}  // namespace vlmtune
