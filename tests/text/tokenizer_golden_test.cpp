// Every tokenizer folder under golden/text against the ids and decodings of the reference (scripts/golden/make_text.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path tokenizers() { return fs::path(VLMTUNE_TEST_DATA) / "golden/text/tokenizers"; }

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tokenizers())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<int64_t>& ids,
                   bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (auto id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tokenizer = Tokenizer::load(tokenizers() / GetParam());
    golden = read_json(tokenizers() / GetParam() / "cases.json");
  }
  void expect_decodings(const Json& one) {
    auto ids = one.at("ids").get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer->decode(ids, false), one.at("decoded").get<std::string>()) << one.dump();
    EXPECT_EQ(tokenizer->decode(ids, true), one.at("skipped").get<std::string>()) << one.dump();
    EXPECT_EQ(stream(tokenizer, ids, false), one.at("decoded").get<std::string>()) << one.dump();
    EXPECT_EQ(stream(tokenizer, ids, true), one.at("skipped").get<std::string>()) << one.dump();
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  Json golden;
};

TEST_P(TokenizerGolden, IdsEqualTheReference) {
  for (const auto& one : golden.at("cases")) {
    auto text = one.at("text").get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, true), one.at("ids").get<std::vector<int64_t>>()) << one.at("text").dump();
  }
}

TEST_P(TokenizerGolden, DecodingsEqualTheReference) {
  for (const auto& one : golden.at("cases")) expect_decodings(one);
  for (const auto& one : golden.at("decodes")) expect_decodings(one);
}

TEST_P(TokenizerGolden, NamedTokens) {
  auto expect = [&](const char* key, std::optional<int64_t> id) {
    auto wanted = golden.at(key).is_null() ? std::nullopt : std::optional(golden.at(key).get<int64_t>());
    EXPECT_EQ(id, wanted) << key;
  };
  expect("bos", tokenizer->bos_id());
  expect("eos", tokenizer->eos_id());
  expect("pad", tokenizer->pad_id());
  expect("unk", tokenizer->unk_id());
  EXPECT_EQ(tokenizer->vocab_size(), golden.at("vocab_size").get<int64_t>());
  EXPECT_EQ(tokenizer->adds_bos(), golden.at("adds_bos").get<bool>());
  EXPECT_EQ(tokenizer->adds_eos(), golden.at("adds_eos").get<bool>());
}

TEST_P(TokenizerGolden, AKnownTextIsTheSameTwice) {  // the second time from the word cache
  const std::string text = "The quick brown fox\nand the quick brown fox, 12 times.";
  EXPECT_EQ(tokenizer->encode(text, false), tokenizer->encode(text, false));
}

INSTANTIATE_TEST_SUITE_P(Folders, TokenizerGolden, testing::ValuesIn(folders()),
                         [](const auto& info) { return info.param; });

TEST(Tiktoken, IdsAndDecodingsEqualTheReference) {
  const auto folder = fs::path(VLMTUNE_TEST_DATA) / "golden/text/tiktoken/qwen";
  const auto tokenizer = Tokenizer::load(folder);
  const auto golden = read_json(folder / "cases.json");
  EXPECT_EQ(tokenizer->vocab_size(), golden.at("vocab_size").get<int64_t>());
  for (const auto& [token, id] : golden.at("special").items()) EXPECT_EQ(tokenizer->id_of(token), id.get<int64_t>());
  int compared = 0;
  for (const auto& one : golden.at("cases")) {
    const auto text = one.at("text").get<std::string>();
    if (text.find("<img>") != std::string::npos) continue;  // a picture's place is the prompt's matter, not the text's
    const auto ids = one.at("ids").get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer->encode(text, true), ids) << one.at("text").dump();
    EXPECT_EQ(tokenizer->decode(ids, false), one.at("decoded").get<std::string>()) << one.at("text").dump();
    ++compared;
  }
  EXPECT_GT(compared, 100);
  for (const auto& one : golden.at("decodes")) {
    const auto ids = one.at("ids").get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer->decode(ids, false), one.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), one.at("skipped").get<std::string>());
  }
}

/// A turn as rows hold it: "Picture 1: <img>path</img>\n" is a picture.
Message message_of(const std::string& role, const std::string& text) {
  Message message{role, {}};
  const auto end = text.find("</img>\n");
  if (end != std::string::npos) message.parts.push_back({MessagePart::Kind::kImage, ""});
  message.parts.push_back({MessagePart::Kind::kText, end == std::string::npos ? text : text.substr(end + 7)});
  return message;
}

TEST(FirstQwenVl, PromptsEqualTheReference) {
  const auto folder = fs::path(VLMTUNE_TEST_DATA) / "golden/text/tiktoken/qwen";
  const auto tokenizer = Tokenizer::load(folder);
  const auto golden = read_json(folder / "cases.json");
  const auto start = *tokenizer->id_of("<img>"), end = *tokenizer->id_of("</img>");
  TemplateTokens tokens;
  tokens.image_token = "<imgpad>";
  tokens.image_before = "<img>";
  tokens.image_after = "</img>";
  const auto chat_template = ChatTemplate::named("qwen_vl", tokens);
  for (const auto& chat : golden.at("chats")) {
    const bool is_sample = chat.at("prompt").is_null();  // its beginning is a prompt
    auto expected = chat.at(is_sample ? "ids" : "prompt").get<std::vector<int64_t>>();
    const auto turns = chat.at("turns").get<std::vector<std::string>>();
    std::vector<Message> messages{message_of("system", chat.at("system"))};
    for (size_t i = 0; i < (is_sample ? 1 : turns.size()); ++i)
      messages.push_back(message_of(i % 2 == 0 ? "user" : "assistant", turns[i]));
    if (const auto at = std::find(expected.begin(), expected.end(), start); at != expected.end()) {
      *std::next(at) = kImageSlot;  // one slot stands for the picture's 256
      expected.erase(at + 2, std::find(at, expected.end(), end));
    }
    const auto found = tokenizer->encode_prompt(chat_template.render(messages, true), false).ids;
    ASSERT_LE(found.size(), expected.size());
    if (is_sample) expected.resize(found.size());
    EXPECT_EQ(found, expected) << chat.at("turns").dump();
  }
}

}  // namespace
}  // namespace vlmtune
