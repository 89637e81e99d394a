// Safetensors files and model folders: every way a file can be broken is refused by name, everything the format allows
// is read, and a writer that fails leaves the folder as it was.
#include "lib/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "lib/base/errors.h"
#include "lib/checkpoint/pickle.h"
#include "lib/checkpoint/safetensors.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = (fs::temp_directory_path() / "vlmtune_checkpoint_XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
  }
  ~CheckpointTest() override { fs::remove_all(dir_); }

  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }
  fs::path write_tensors(const std::string& name, const std::map<std::string, torch::Tensor>& tensors) const {
    write_safetensors(dir_ / name, tensors);
    return dir_ / name;
  }
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) names.push_back(entry.path().filename());
    return names;
  }
  fs::path dir_;
};

std::string little_endian(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

/// A file with this header and `data` bytes behind it.
std::string file_of(const std::string& header, size_t data) {
  return little_endian(header.size()) + header + std::string(data, '\1');
}

/// {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}} with parts replaced.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

template <typename Callable>
std::string message_of(const Callable& callable) {
  try {
    callable();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(CheckpointTest, RefusesBrokenFiles) {
  const std::string good = one("\"F32\"", "[2]", "[0,8]");
  const struct {
    const char* what;
    std::string bytes;
    const char* message;
  } cases[] = {
      {"empty", "", "header too small"},
      {"seven bytes", std::string(7, '\0'), "header too small"},
      {"pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "Git LFS pointer"},
      {"header of 200 MB", little_endian(200'000'000) + "{}", "header too large"},
      {"negative header", little_endian(~uint64_t{0}) + "{}", "header too large"},
      {"header behind the end", little_endian(1000) + "{}", "truncated"},
      {"no header", little_endian(0), "not valid JSON"},
      {"text that is no JSON", file_of("{\"w\":", 0), "not valid JSON"},
      {"bytes that are no UTF-8", file_of("{\"\xff\xfe\":1}", 0), "not valid JSON"},
      {"list", file_of("[1]", 0), "not a JSON object"},
      {"deep nesting", file_of("{\"w\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0),
       "nests deeper"},
      {"same name twice", file_of(good.substr(0, good.size() - 1) + "," + good.substr(1), 8), "\"w\" twice"},
      {"description that is no object", file_of("{\"w\":1}", 0), "\"w\": its description"},
      {"no shape", file_of(R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", 8), "\"shape\" is missing"},
      {"unknown type", file_of(one("\"F7\"", "[2]", "[0,8]"), 8), "\"w\": its dtype F7 is unknown"},
      {"type that is a number", file_of(one("7", "[2]", "[0,8]"), 8), "dtype is not a string"},
      {"negative size", file_of(one("\"F32\"", "[-2]", "[0,8]"), 8), "not a size"},
      {"size with a fraction", file_of(one("\"F32\"", "[2.0]", "[0,8]"), 8), "not a size"},
      {"sizes that overflow", file_of(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0), "overflows"},
      {"bytes that overflow", file_of(one("\"F32\"", "[9223372036854775807]", "[0,8]"), 8), "overflows"},
      {"three offsets", file_of(one("\"F32\"", "[2]", "[0,8,8]"), 8), "not two positions"},
      {"negative offset", file_of(one("\"F32\"", "[2]", "[-8,0]"), 8), "not two positions"},
      {"offsets in the wrong order", file_of(one("\"F32\"", "[2]", "[8,0]"), 8), "do not hold"},
      {"offsets for another shape", file_of(one("\"F32\"", "[3]", "[0,8]"), 8), "do not hold the 12 bytes"},
      {"cut data", file_of(good, 7), "\"w\": its data ends"},
      {"bytes behind the data", file_of(good, 9), "extra bytes"},
      {"gap", file_of(one("\"F32\"", "[2]", "[4,12]"), 12), "gap or overlap"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           6),
       "\"b\" begins"},
      {"empty tensor inside another",
       file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
           4),
       "gap or overlap"},
      {"metadata that is no object", file_of("{\"__metadata__\":[]}", 0), "__metadata__"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    const auto path = write("broken.safetensors", c.bytes);
    const auto message = message_of([&] { TensorFile::open(path); });
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, HasSubstr("broken.safetensors"));
  }
}

TEST_F(CheckpointTest, RefusesEveryTruncation) {
  const auto whole = write_tensors("whole.safetensors", {{"a", torch::rand({3, 5})}, {"b", torch::rand({7})}});
  std::ifstream in(whole, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(TensorFile::open(write("cut.safetensors", bytes.substr(0, size))), UserError) << size;
}

TEST_F(CheckpointTest, AcceptsWhatTheFormatAllows) {
  const std::string header = one("\"F32\"", "[]", "[0,4]");
  EXPECT_EQ(TensorFile::open(write("a", file_of(header + std::string(13, ' '), 4))).view("w").dim(), 0);
  EXPECT_EQ(TensorFile::open(write("b", file_of("   " + header, 4))).view("w").numel(), 1);
  const auto empty = TensorFile::open(write("c", file_of(one("\"BF16\"", "[3,0]", "[0,0]"), 0))).view("w");
  EXPECT_EQ(empty.sizes(), (torch::IntArrayRef{3, 0}));
  for (size_t spaces = 0; spaces < 8; ++spaces) {
    const auto padded = one("\"F32\"", "[2]", "[0,8]") + std::string(spaces, ' ');
    const auto view = TensorFile::open(write("padded", little_endian(padded.size()) + padded +
                                                           std::string("\0\0\x80\x3f\0\0\0\x40", 8)))
                          .view("w");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data_ptr()) % 4, 0U);
    EXPECT_TRUE(torch::equal(view, torch::tensor({1.0F, 2.0F})));
  }
  EXPECT_TRUE(TensorFile::open(write("d", file_of("{}", 0))).entries().empty());
  EXPECT_EQ(TensorFile::open(write("e", file_of(one("\"F8_E4M3\"", "[4]", "[0,4]"), 4))).view("w").scalar_type(),
            torch::kFloat8_e4m3fn);
  const auto described = TensorFile::open(write("f", file_of(R"({"__metadata__":{"format":"pt","n":1}})", 0)));
  EXPECT_EQ(described.metadata().at("format"), "pt");
}

TEST_F(CheckpointTest, RoundTripsEveryTypeAndShape) {
  const torch::ScalarType types[] = {torch::kFloat,  torch::kHalf,          torch::kBFloat16,    torch::kDouble,
                                     torch::kLong,   torch::kInt,           torch::kShort,       torch::kChar,
                                     torch::kByte,   torch::kBool,          torch::kUInt16,      torch::kUInt32,
                                     torch::kUInt64, torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kComplexFloat};
  const std::vector<std::vector<int64_t>> shapes = {{}, {0}, {1}, {3, 0, 2}, {3, 5}, {2, 1, 3}};
  std::map<std::string, torch::Tensor> tensors;
  for (const auto type : types)
    for (const auto& shape : shapes)
      tensors[fmt::format("{}.{}", dtype_to_safetensors(type), fmt::join(shape, "x"))] =
          torch::randint(0, 100, shape, torch::kFloat).to(type);
  tensors["transposed"] = torch::rand({4, 3}).t();
  tensors["sliced \"quoted\" ü"] = torch::rand({6, 6}).slice(1, 1, 6, 2);
  const auto file = TensorFile::open(write_tensors("all.safetensors", tensors));
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const auto& [name, expected] : tensors) {
    SCOPED_TRACE(name);
    const auto found = file.view(name);
    ASSERT_EQ(found.scalar_type(), expected.scalar_type());
    ASSERT_EQ(found.sizes(), expected.sizes());
    const auto want = expected.contiguous();
    if (want.nbytes() > 0) {
      EXPECT_EQ(std::memcmp(found.data_ptr(), want.data_ptr(), want.nbytes()), 0);
    }
    EXPECT_EQ((file.entries().at(name).begin) % want.element_size(), 0U);
    EXPECT_EQ(dtype_from_safetensors(file.entries().at(name).dtype), expected.scalar_type());
  }
}

TEST_F(CheckpointTest, ViewOutlivesItsFileAndDrop) {
  const auto values = torch::rand({64, 1024});
  const auto path = write_tensors("w.safetensors", {{"w", values}});
  torch::Tensor view;
  {
    const auto file = TensorFile::open(path);
    view = file.view("w");
    file.drop("w");
  }
  fs::remove(path);
  EXPECT_TRUE(torch::equal(view, values));
}

TEST_F(CheckpointTest, FailedWriteLeavesNothing) {
  const TensorToWrite good{"a", torch::kFloat, {1024}, [] { return torch::ones(1024); }};
  const TensorToWrite bad{"b", torch::kFloat, {4}, []() -> torch::Tensor { throw input_error("unreadable"); }};
  const auto write = [&](const std::vector<TensorToWrite>& tensors) {
    write_safetensors(dir_ / "m.safetensors", tensors);
  };
  EXPECT_THROW(write({good, bad}), UserError);
  EXPECT_THAT(listing(), testing::IsEmpty());
  const TensorToWrite grown{"b", torch::kFloat, {4}, [] { return torch::ones(5); }};
  EXPECT_THROW(write({good, grown}), InternalError);
  EXPECT_THROW(write({good, good}), InternalError);
  EXPECT_THAT(listing(), testing::IsEmpty());
}

TEST_F(CheckpointTest, FullDiskKeepsTheOldFile) {
  const auto path = write_tensors("m.safetensors", {{"w", torch::full({2}, 7.0)}});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1 << 16;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::optional<ExitCode> code;
  try {
    write_tensors("m.safetensors", {{"w", torch::zeros({1 << 20})}});
  } catch (const UserError& error) {
    code = error.code();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(code, ExitCode::kIo);
  EXPECT_THAT(listing(), testing::ElementsAre("m.safetensors"));
  EXPECT_EQ(TensorFile::open(path).view("w")[1].item<float>(), 7);
}

TEST_F(CheckpointTest, ReadsShardsAsOne) {
  write_tensors("model-1.safetensors", {{"a", torch::ones({2})}, {"b", torch::ones({3})}});
  write_tensors("model-2.safetensors", {{"c", torch::ones({4})}});
  write(
      "model.safetensors.index.json",
      R"({"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(dir_);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(checkpoint.view("c").size(0), 4);
  EXPECT_EQ(checkpoint.file_of("b").filename(), "model-1.safetensors");
  EXPECT_FALSE(checkpoint.has("d"));
}

const fs::path kPickles = fs::path(VLMTUNE_TEST_DATA) / "golden/pickles";

TEST_F(CheckpointTest, ReadsWhatTorchSaves) {
  fs::copy(kPickles / "odd.bin", dir_ / "pytorch_model.bin");
  const auto found = Checkpoint::open(dir_), expected = Checkpoint::open_file(kPickles / "odd.safetensors");
  EXPECT_EQ(found.names(), expected.names());
  for (const auto& name : expected.names()) {
    EXPECT_EQ(found.entry(name).dtype, expected.entry(name).dtype) << name;
    EXPECT_TRUE(torch::equal(found.view(name), expected.view(name))) << name;
  }
}

TEST_F(CheckpointTest, AHeaderMayBeginAsAPickleDoes) {
  const auto path = dir_ / "model.safetensors";
  std::string padding;
  do {
    padding += ' ';
    write_safetensors(path, {{"a", torch::ones({2})}}, {{"padding", padding}});
  } while (!read_file(path).starts_with("\x80\x02") && padding.size() < 700);
  ASSERT_LT(padding.size(), 700U);
  EXPECT_TRUE(torch::equal(Checkpoint::open_file(path).view("a"), torch::ones({2})));
}

TEST_F(CheckpointTest, RefusesOtherPickles) {
  const auto message = [&](const std::string& bytes) {
    const auto path = write("x.bin", bytes);
    return message_of([&] { Checkpoint::open_file(path); });
  };
  EXPECT_THAT(message(read_file(kPickles / "before_zip.bin")), HasSubstr("before 1.6"));
  EXPECT_THAT(message(read_file(kPickles / "calls.bin")), HasSubstr("x.bin: its pickle calls "));
  const auto whole = read_file(kPickles / "odd.bin");
  for (size_t size = 4; size < whole.size(); size += 997)
    EXPECT_THAT(message(whole.substr(0, size)), HasSubstr("x.bin")) << size;
}

TEST(Pickle, RefusesProgramsOfOtherKinds) {
  using namespace std::string_literals;
  const struct {
    std::string bytes, message;
  } cases[] = {
      {"", "ends early"},
      {"N.", "holds no dictionary"},
      {"}X\1\0\0\0aK\1s."s, "no named tensor under \"a\""},
      {"}K\1s."s, "adds to something else"},
      {"K\1e."s, "looks for a mark"},
      {"h\7."s, "did not remember"},
      {"cos\nsystem\nX\2\0\0\0ls\x85R."s, "calls os.system"},
      {std::string(100, ']') + std::string(99, 'a') + ".", "nests deeper"},
      {"ctorch._utils\n_rebuild_tensor_v2\n)R."s, "describes a tensor in another way"},
      {"G\0\0\0\0\0\0\0\0."s, "has the operation 0x47"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.message);
    try {
      read_tensor_pickle(c.bytes, "x.bin");
      ADD_FAILURE() << "was read";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("x.bin"), HasSubstr(c.message)));
    }
  }
}

TEST_F(CheckpointTest, RefusesBrokenFolders) {
  const auto index = "model.safetensors.index.json";
  const auto message = [&] { return message_of([&] { Checkpoint::open(dir_); }); };
  EXPECT_THAT(message_of([&] { Checkpoint::open(dir_ / "absent"); }), HasSubstr("not a folder"));
  EXPECT_THAT(message(), HasSubstr("no model.safetensors, pytorch_model.bin or index"));
  write("pytorch_model.bin", "PK\x03\x04 and then nothing of the kind");
  EXPECT_THAT(message(), HasSubstr("is not what torch.save writes"));
  write_tensors("s1", {{"a", torch::ones({2})}});
  const struct {
    const char *index, *message;
  } cases[] = {
      {"{", "not valid JSON"},
      {"{}", "/weight_map"},
      {R"({"weight_map":{"a":1}})", "/weight_map/a"},
      {R"({"weight_map":{"a":"../s1"}})", "/weight_map/a"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "/weight_map/a"},
      {R"({"weight_map":{"a":".."}})", "shard .. is missing"},
      {R"({"weight_map":{"a":""}})", "is missing"},
      {R"({"weight_map":{"a":"s1","b":"s2"}})", "shard s2 is missing"},
      {R"({"weight_map":{"a":"s1","b":"s1"}})", "\"b\" is not in shard s1"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.index);
    write(index, c.index);
    EXPECT_THAT(message(), HasSubstr(c.message));
  }
  write_tensors("s2", {{"a", torch::ones({2})}, {"b", torch::ones({2})}});
  write(index, R"({"weight_map":{"a":"s1","b":"s2"}})");
  EXPECT_THAT(message(), testing::AllOf(HasSubstr("\"a\""), HasSubstr("s1"), HasSubstr("s2")));
  write("s2", std::string(40, '\0'));
  EXPECT_THAT(message(), HasSubstr("s2"));
}

}  // namespace
}  // namespace vlmtune
