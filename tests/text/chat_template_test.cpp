// Chat templates against transformers, the built-in formats, and where checkpoints keep their template.
#include "lib/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path golden() { return fs::path(VLMTUNE_TEST_DATA) / "golden/text/chat"; }

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

MessagePart text(std::string value) { return {MessagePart::Kind::kText, std::move(value)}; }
MessagePart image() { return {MessagePart::Kind::kImage, ""}; }

std::vector<Message> conversation(const Json& json) {
  std::vector<Message> messages;
  for (const auto& one : json) {
    Message message{one.at("role"), {}};
    for (const auto& part : one.at("parts"))
      message.parts.push_back(part.contains("image") ? image() : text(part.at("text")));
    messages.push_back(std::move(message));
  }
  return messages;
}

TEST(ChatTemplate, RenderingsEqualTransformers) {
  auto file = Json::parse(read(golden() / "cases.json"));
  for (const auto& one : file.at("cases")) {
    auto name = one.at("template").get<std::string>();
    auto place = name + " " + one.at("conversation").dump();
    auto chat = ChatTemplate::from_source(read(golden() / (name + ".jinja")), name);
    auto messages = conversation(file.at("conversations").at(one.at("conversation").get<size_t>()));
    bool generation = one.at("generation");
    if (one.contains("error")) {
      EXPECT_THROW(chat.render_text(messages, generation), UserError) << place;
      continue;
    }
    EXPECT_EQ(chat.render_text(messages, generation), one.at("text").get<std::string>()) << place;
  }
}

TEST(ChatTemplate, SpansSayWhoWroteWhat) {
  auto chat = ChatTemplate::from_source(read(golden() / "llava-1.5.jinja"), "llava-1.5");
  auto spans = chat.render({{"user", {image(), text("Is <image> here? </s>")}}, {"assistant", {text("No.")}}}, false);
  using enum SpanKind;
  std::vector<PromptSpan> expected = {
      {kControl, "USER: ", -1},       {kImage, "", -1},    {kControl, "\n", -1}, {kText, "Is <image> here? </s>", 0},
      {kControl, " ASSISTANT: ", -1}, {kAnswer, "No.", 1}, {kControl, " ", -1}};
  EXPECT_EQ(spans, expected);
}

TEST(ChatTemplate, BuiltInsEqualLlava) {  // conversation.py of LLaVA 1.5 and 1.6
  std::vector<Message> chat = {
      {"user", {image(), text("What?")}}, {"assistant", {text("A cat.")}}, {"user", {text("Sure?")}}};
  auto rendered = [&](const char* name) { return ChatTemplate::named(name).render_text(chat, true); };
  EXPECT_EQ(rendered("vicuna_v1"),
            "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
            "detailed, and polite "
            "answers to the user's questions. USER: <image>\nWhat? ASSISTANT: A cat.</s>USER: Sure? ASSISTANT:");
  EXPECT_EQ(rendered("llava_llama_2"),
            "[INST] <<SYS>>\nYou are a helpful language and vision assistant. You are able to understand the visual "
            "content that the user "
            "provides, and assist the user with a variety of tasks using natural language.\n<</SYS>>\n\n<image>\nWhat? "
            "[/INST] A cat. "
            "</s><s>[INST] Sure? [/INST]");
  EXPECT_EQ(rendered("llava_mistral"), "[INST] <image>\nWhat? [/INST] A cat. </s>[INST] Sure? [/INST]");
  EXPECT_EQ(rendered("mistral_instruct"), rendered("llava_mistral"));
  EXPECT_EQ(rendered("mistral"), "<s>[INST] <image>\nWhat? [/INST]A cat.</s>[INST] Sure? [/INST]");
  EXPECT_EQ(rendered("llama-2"), "<s>[INST] <image>\nWhat? [/INST] A cat. </s><s>[INST] Sure? [/INST]");
  EXPECT_EQ(rendered("chatml"),
            "<|im_start|>user\n<image>\nWhat?<|im_end|>\n<|im_start|>assistant\nA "
            "cat.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered("chatml_direct"),
            "<|im_start|>system\nAnswer the "
            "questions.<|im_end|><|im_start|>user\n<image>\nWhat?<|im_end|><|im_start|>assistant\nA cat.<|im_end|>"
            "<|im_start|>user\nSure?<|im_end|><|im_start|>assistant\n");
}

TEST(ChatTemplate, BuiltInsTakeASystemText) {
  std::vector<Message> chat = {{"system", {text("Be brief.")}}, {"user", {text("Hi")}}};
  EXPECT_EQ(ChatTemplate::named("vicuna_v1").render_text(chat, true), "Be brief. USER: Hi ASSISTANT:");
  EXPECT_EQ(ChatTemplate::named("llama-2").render_text(chat, true),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]");
  EXPECT_THROW(ChatTemplate::named("vicuna_v1").render_text({{"tool", {text("x")}}}, true), UserError);
}

TEST(ChatTemplate, PlainTrainsCaptionAndNewline) {
  auto chat = ChatTemplate::named("plain");
  EXPECT_TRUE(chat.answers_end_themselves());
  auto spans = chat.render({{"user", {image(), text("Describe it.")}}, {"assistant", {text("a red bus")}}}, false);
  EXPECT_EQ(spans, (std::vector<PromptSpan>{{SpanKind::kImage, "", -1}, {SpanKind::kAnswer, "a red bus\n", 1}}));
}

TEST(ChatTemplate, ImagesMustFindTheirSlots) {
  auto chat = ChatTemplate::from_source(
      "{% for m in messages %}{{ m.role }}: {% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}", "no images");
  EXPECT_THROW(chat.render({{"user", {image(), text("What?")}}}, false), UserError);
  EXPECT_NO_THROW(chat.render({{"user", {text("What?")}}}, false));
}

class CheckpointFolder : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir); }
  void TearDown() override { fs::remove_all(dir); }
  void write(const char* name, const std::string& content) { std::ofstream(dir / name) << content; }
  fs::path dir = fs::temp_directory_path() / ("vlmtune_chat_" + std::to_string(::getpid()));
  std::vector<Message> hello = {{"user", {text("Hi")}}};
};

TEST_F(CheckpointFolder, WithoutATemplateIsEmpty) {
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  auto chat = ChatTemplate::from_checkpoint(dir, "");
  EXPECT_TRUE(chat.empty());
  EXPECT_THROW(chat.render(hello, true), UserError);
}

TEST_F(CheckpointFolder, ThePlacesInTheirOrder) {
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "4{{ bos_token }}{{ messages[0].content }}"}]})");
  EXPECT_EQ(ChatTemplate::from_checkpoint(dir, "").render_text(hello, true), "4<b>Hi");
  write("processor_config.json", R"({"chat_template": "3{{ messages[0].content }}"})");
  EXPECT_EQ(ChatTemplate::from_checkpoint(dir, "").render_text(hello, true), "3Hi");
  write("chat_template.json", R"({"chat_template": "2{{ messages[0].content }}"})");
  EXPECT_EQ(ChatTemplate::from_checkpoint(dir, "").render_text(hello, true), "2Hi");
  write("chat_template.jinja", "1{{ messages[0].content }}");
  EXPECT_EQ(ChatTemplate::from_checkpoint(dir, "").render_text(hello, true), "1Hi");
  EXPECT_EQ(ChatTemplate::from_checkpoint(dir, "chat_template.jinja").render_text(hello, true), "1Hi");
}

TEST_F(CheckpointFolder, AnOverrideUsesTheCheckpointsTokens) {
  write(
      "tokenizer_config.json",
      R"({"eos_token": {"content": "<|end|>"}, "tokenizer_class": "PreTrainedTokenizerFast", "image_token": "<img>"})");
  write("tokenizer.json", "{}");
  auto chat = ChatTemplate::from_checkpoint(dir, "llava_mistral");
  EXPECT_EQ(chat.image_token(), "<img>");
  EXPECT_EQ(chat.render_text({{"user", {image(), text("Hi")}}, {"assistant", {text("Yo")}}}, false),
            "[INST] <img>\nHi [/INST] Yo <|end|>");
  try {
    ChatTemplate::from_checkpoint(dir, "vicunna");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("vicunna"), testing::HasSubstr("vicuna_v1")));
  }
}

TEST_F(CheckpointFolder, ABrokenTemplateNamesFileAndLine) {
  write("chat_template.jinja", "a\n{% if %}");
  try {
    ChatTemplate::from_checkpoint(dir, "");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("chat_template.jinja"), testing::HasSubstr("line 2")));
  }
}

}  // namespace
}  // namespace vlmtune
