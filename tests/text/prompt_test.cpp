// Prompts: which tokens are parsed, which are trained, and that streaming gives whole characters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

using enum SpanKind;
using testing::ElementsAre;

std::shared_ptr<const Tokenizer> load(const char* name) {
  return Tokenizer::load(std::filesystem::path(VLMTUNE_TEST_DATA) / "golden/text/tokenizers" / name);
}

/// The decoded text of the trained tokens.
std::string trained_text(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (encoding.trained[i]) ids.push_back(encoding.ids[i]);
  }
  return tokenizer.decode(ids, false);
}

std::string joined(const std::vector<PromptSpan>& spans) {
  std::string text;
  for (const auto& span : spans) text += span.text;
  return text;
}

class EveryTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(EveryTokenizer, SpansEncodeAsOneString) {
  auto tokenizer = load(GetParam());
  std::vector<PromptSpan> spans = {{kControl, "USER: ", -1},
                                   {kText, "Is it 12 caf", 0},
                                   {kText, "e\u0301s?", 2},
                                   {kControl, " ASSISTANT: ", -1},
                                   {kAnswer, "Yes,  it's \u65e5\u672c \U0001F642.", 1},
                                   {kControl, "</s>USER: ", -1},
                                   {kText, "  why\n\n", 2},
                                   {kControl, " ASSISTANT:", -1}};
  auto encoding = tokenizer->encode_prompt(spans, false);
  EXPECT_EQ(encoding.ids, tokenizer->encode(joined(spans), true));
  EXPECT_EQ(encoding.ids.size(), encoding.trained.size());
}

TEST_P(EveryTokenizer, ControlTokensTypedByUsersStayText) {
  auto tokenizer = load(GetParam());
  for (const char* literal : {"</s>", "<s>", "<|im_end|>", "<|eot_id|>", "<image>"}) {
    auto id = tokenizer->id_of(literal);
    if (!id) continue;
    auto typed = tokenizer->encode_prompt({{kControl, "Q: ", -1},
                                           {kText, std::string("a ") + literal + " b", 0},
                                           {kControl, " A: ", -1},
                                           {kAnswer, literal, 1}},
                                          false);
    EXPECT_THAT(typed.ids, testing::Not(testing::Contains(*id))) << literal;
    EXPECT_THAT(tokenizer->encode(literal, false), testing::Not(testing::Contains(*id))) << literal;
    EXPECT_THAT(tokenizer->encode_prompt({{kControl, literal, -1}}, false).ids, testing::Contains(*id)) << literal;
  }
}

TEST_P(EveryTokenizer, StreamingEmitsWholeCharacters) {
  auto tokenizer = load(GetParam());
  auto ids = tokenizer->encode(
      "a \U0001F642\u65e5\u672c\u00e9 \U0001F469\u200D\U0001F467 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 end", true);
  StreamDecoder decoder(tokenizer);
  std::string all;
  for (auto id : ids) {
    auto piece = decoder.push(id);
    EXPECT_FALSE(find_invalid_utf8(piece)) << piece;
    all += piece;
  }
  all += decoder.flush();
  EXPECT_EQ(all, tokenizer->decode(ids, true));
  EXPECT_EQ(decoder.push(ids[0]) + decoder.flush(), tokenizer->decode({ids.data(), 1}, true));  // it starts anew
}

INSTANTIATE_TEST_SUITE_P(Folders, EveryTokenizer,
                         testing::Values("qwen2", "llama3", "smollm2", "odd", "spm_legacy", "spm_new", "spm_added",
                                         "llama_legacy", "llama_new", "llama_in_llava", "unigram"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Prompt, TheTokenThatJoinsHeaderAndAnswerIsTrained) {
  auto tokenizer = load("spm_legacy");
  auto encoding =
      tokenizer->encode_prompt({{kControl, "ASSISTANT: ", -1}, {kAnswer, "The end", 0}, {kControl, "</s>", -1}}, false);
  auto first = std::find(encoding.trained.begin(), encoding.trained.end(), 1) - encoding.trained.begin();
  EXPECT_EQ(tokenizer->token_of(encoding.ids[static_cast<size_t>(first)]).substr(0, 3), "\u2581");
  EXPECT_EQ(trained_text(*tokenizer, encoding), "The end</s>");
  EXPECT_EQ(encoding.trained.back(), 1);
}

TEST(Prompt, WhiteSpaceBeforeTheEndOfTurnIsNotTrained) {
  auto tokenizer = load("qwen2");
  auto encoding = tokenizer->encode_prompt({{kControl, "<|im_start|>assistant\n", -1},
                                            {kAnswer, "Yes.", 1},
                                            {kControl, "\n<|im_end|>\n<|im_start|>user\n", -1},
                                            {kText, "Hi", 2}},
                                           false);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "Yes.<|im_end|>");
  encoding = tokenizer->encode_prompt({{kAnswer, "Yes", 1}, {kControl, " \t<|im_end|>", -1}}, false);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "Yes<|im_end|>");
}

TEST(Prompt, AnswersWithoutAnEndGetEos) {
  auto tokenizer = load("llama_in_llava");
  std::vector<PromptSpan> spans = {
      {kControl, "USER: ", -1},       {kImage, "", -1},       {kControl, "\n", -1},      {kText, "What?", 0},
      {kControl, " ASSISTANT: ", -1}, {kAnswer, "A cat.", 1}, {kControl, " USER: ", -1}, {kText, "Why?", 2},
      {kControl, " ASSISTANT: ", -1}, {kAnswer, "So.", 3},    {kControl, " ", -1}};
  EXPECT_FALSE(tokenizer->ends_answers(spans));
  EXPECT_EQ(tokenizer->encode_prompt(spans, true).open_answers, 2);
  auto encoding = tokenizer->encode_prompt(spans, PromptOptions{.add_bos = true, .end_answers_with_eos = true});
  EXPECT_EQ(encoding.open_answers, 0);
  EXPECT_EQ(encoding.ids[0], tokenizer->bos_id());
  EXPECT_EQ(encoding.trained[0], 0);
  EXPECT_EQ(std::count(encoding.ids.begin(), encoding.ids.end(), *tokenizer->eos_id()), 2);
  EXPECT_EQ(std::count(encoding.ids.begin(), encoding.ids.end(), kImageSlot), 1);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "A cat.</s> So.</s>");
}

TEST(Prompt, BosIsNotWrittenTwice) {
  auto tokenizer = load("llama_legacy");
  auto encoding = tokenizer->encode_prompt({{kControl, "<s>[INST] ", -1}, {kText, "Hi", 0}}, true);
  EXPECT_EQ(std::count(encoding.ids.begin(), encoding.ids.end(), *tokenizer->bos_id()), 1);
}

TEST(Prompt, AnImageSplitsTheTextAsAnAddedTokenDoes) {
  auto tokenizer = load("llama_in_llava");
  auto ids = tokenizer->encode("USER: <image>\nWhat? ASSISTANT:", true);
  std::replace(ids.begin(), ids.end(), *tokenizer->id_of("<image>"), kImageSlot);
  auto encoding = tokenizer->encode_prompt({{kControl, "USER: ", -1},
                                            {kImage, "", -1},
                                            {kControl, "\n", -1},
                                            {kText, "What?", 0},
                                            {kControl, " ASSISTANT:", -1}},
                                           false);
  EXPECT_EQ(encoding.ids, ids);
}

TEST(Prompt, PlainCaptionsTrainTheirNewline) {
  auto tokenizer = load("spm_added");
  auto spans = ChatTemplate::named("plain").render(
      {{"user", {{MessagePart::Kind::kImage, ""}}}, {"assistant", {{MessagePart::Kind::kText, "a red bus"}}}}, false);
  auto encoding = tokenizer->encode_prompt(spans, true);
  EXPECT_EQ(encoding.ids[1], kImageSlot);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "a red bus\n");
}

TEST(Prompt, PadEqualToEosIsStillTrained) {
  auto tokenizer = load("smollm2");
  ASSERT_EQ(tokenizer->pad_id(), tokenizer->eos_id());
  auto encoding = tokenizer->encode_prompt({{kAnswer, "Yes", 1}, {kControl, "<|im_end|>\n", -1}}, false);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "Yes<|im_end|>");
}

TEST(Prompt, NormalizationKeepsTheMask) {
  auto tokenizer = load("qwen2");  // NFC
  auto encoding = tokenizer->encode_prompt({{kText, "cafe\u0301 e\u0301", 0},
                                            {kControl, "|", -1},
                                            {kAnswer, "e\u0301te\u0301 \u65e5", 1},
                                            {kControl, "|", -1},
                                            {kText, "e\u0301", 2}},
                                           false);
  EXPECT_EQ(trained_text(*tokenizer, encoding), "\u00e9t\u00e9 \u65e5");
}

}  // namespace
}  // namespace vlmtune
