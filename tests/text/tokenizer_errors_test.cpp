// Damaged and unknown tokenizer files: one sentence that names file and place, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lib/base/errors.h"
#include "lib/text/tokenizer.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BrokenTokenizer : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir); }
  void TearDown() override { fs::remove_all(dir); }
  void write(const char* name, const std::string& content) { std::ofstream(dir / name, std::ios::binary) << content; }
  std::string message() {
    try {
      Tokenizer::load(dir)->encode("some text </s> \u00e9", true);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "";
  }
  std::string message_for(const std::string& json) {
    write("tokenizer.json", json);
    return message();
  }
  fs::path dir = fs::temp_directory_path() / ("vlmtune_tokenizer_" + std::to_string(::getpid()));
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(BrokenTokenizer, MissingFiles) { EXPECT_THAT(message(), HasSubstr("no tokenizer.json")); }

TEST_F(BrokenTokenizer, WrongTiktokenLinesAreNamed) {
  const auto message_of_lines = [&](const std::string& lines) {
    write("qwen.tiktoken", lines);
    return message();
  };
  EXPECT_THAT(message_of_lines("YQ== 0\nYg==\n"), HasSubstr("qwen.tiktoken:2: found \"Yg==\""));
  EXPECT_THAT(message_of_lines("YQ== x\n"), HasSubstr("qwen.tiktoken:1: found"));
  EXPECT_THAT(message_of_lines("YQ== 0\nY!== 1\n"), HasSubstr("qwen.tiktoken:2: byte 1 of the base64"));
  EXPECT_THAT(message_of_lines("YQ== 0\nYQ== 1\n"), HasSubstr("qwen.tiktoken:2: the token is there already"));
  EXPECT_THAT(message_of_lines("YQ== 0\n 1\n"), HasSubstr("a token of 0 bytes"));
  EXPECT_THAT(message_of_lines("YQ== 99999999\n"), HasSubstr("expected base64 and a rank"));
}

TEST_F(BrokenTokenizer, WrongJsonNamesThePointer) {
  EXPECT_THAT(message_for("{\"model\":"), HasSubstr("tokenizer.json: not valid JSON"));
  EXPECT_THAT(message_for("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(message_for("{}"), HasSubstr("\"model\" is missing"));
  EXPECT_THAT(message_for(R"({"model": {"type": "WordPiece", "vocab": {}}})"),
              HasSubstr("/model: unknown model \"WordPiece\""));
  EXPECT_THAT(message_for(R"({"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}})"),
              HasSubstr("/model/vocab/a: expected an integer"));
  EXPECT_THAT(message_for(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"), HasSubstr("the id -1"));
  EXPECT_THAT(message_for(R"({"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}})"),
              HasSubstr("the id 99999999999"));
  EXPECT_THAT(message_for(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"),
              HasSubstr("\"b\" is not in the vocabulary"));
  EXPECT_THAT(message_for(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})"),
              HasSubstr("/model/merges/0"));
  const std::string head = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, )";
  EXPECT_THAT(
      message_for(head + R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}})"),
      HasSubstr("/normalizer/normalizers/1: unknown normalizer"));
  EXPECT_THAT(
      message_for(head + R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}})"),
      HasSubstr("/pre_tokenizer/pattern/Regex"));
  EXPECT_THAT(
      message_for(head + R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"}})"),
      HasSubstr("Sideways"));
  EXPECT_THAT(message_for(head + R"("decoder": {"type": "CTC"}})"), HasSubstr("/decoder: unknown decoder"));
  EXPECT_THAT(message_for(head + R"("added_tokens": [{"id": 1}]})"),
              HasSubstr("/added_tokens/0: \"content\" is missing"));
  std::string deep = head + "\"normalizer\": ";
  for (int i = 0; i < 100000; ++i) deep += "{\"type\":\"Sequence\",\"normalizers\":[";
  EXPECT_THAT(message_for(deep), HasSubstr("tokenizer.json"));
}

TEST_F(BrokenTokenizer, TextThatIsNotUtf8) {
  auto tokenizer = Tokenizer::load(fs::path(VLMTUNE_TEST_DATA) / "golden/text/tokenizers/qwen2");
  for (const char* bytes : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\x80"}) {
    EXPECT_THROW(tokenizer->encode(bytes, true), UserError);
  }
}

TEST_F(BrokenTokenizer, EveryPrefixOfASentencepieceModel) {
  auto whole = read(fs::path(VLMTUNE_TEST_DATA) / "golden/text/tokenizers/spm_legacy/tokenizer.model");
  ASSERT_GT(whole.size(), 1000u);
  for (size_t size = 0; size < whole.size(); size += 97) {
    write("tokenizer.model", whole.substr(0, size));
    message();  // a cut between two fields is a smaller model; anything else is an error, never a crash
  }
  write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_THAT(message(), HasSubstr("not a sentencepiece model"));
}

TEST_F(BrokenTokenizer, FlippedBytesOfASentencepieceModel) {
  auto whole = read(fs::path(VLMTUNE_TEST_DATA) / "golden/text/tokenizers/spm_legacy/tokenizer.model");
  for (size_t at = 0; at < whole.size(); at += 131) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xA5);
    write("tokenizer.model", damaged);
    message();
  }
}

}  // namespace
}  // namespace vlmtune
