// Reading rows: containers, dialects, the rules for tags and turns, and what is refused.
#include "lib/data/dataset.h"

#include <gmock/gmock.h>

#include <thread>

#include "lib/base/errors.h"
#include "tests/data/scratch.h"

namespace vlmtune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// "role: text" with pictures as [], videos as {}.
std::string show(const Row& row) {
  std::string text;
  for (const Message& message : row.messages) {
    text += message.role + ":";
    for (const MessagePart& part : message.parts)
      text += part.kind == MessagePart::Kind::kImage   ? "[]"
              : part.kind == MessagePart::Kind::kVideo ? "{}"
                                                       : "<" + part.text + ">";
    text += " ";
  }
  return text;
}

class DatasetTest : public ::testing::Test {
 protected:
  Dataset open(const std::string& content, RowFormat format = RowFormat::kAuto, bool needs_answer = true) {
    DatasetOptions options;
    options.files = {{scratch_.write("data.json", content), 1}};
    options.format = format;
    options.needs_answer = needs_answer;
    return Dataset::open(options);
  }
  Row only_row(const std::string& json) { return open("[" + json + "]").row(0); }
  std::string row_error(const std::string& json, RowFormat format = RowFormat::kAuto) {
    try {
      open("[" + json + "]", format).row(0);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "accepted";
  }
  std::string open_error(const std::string& content) {
    try {
      open(content);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "accepted";
  }
  test::Scratch scratch_;
};

const std::string kTurns = R"([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}])";

TEST_F(DatasetTest, ArrayAndLinesAreToldApartByContent) {
  const std::string row = R"({"id": "a", "conversations": )" + kTurns + "}";
  const Dataset array = open("\xEF\xBB\xBF \r\n[\r\n " + row + " ,\r\n" + row + "\r\n]\r\n");
  ASSERT_EQ(array.size(), 2);
  EXPECT_EQ(show(array.row(1)), "user:<Hi> assistant:<Yo> ");
  EXPECT_THAT(array.row(1).place, HasSubstr("data.json#1"));
  const Dataset lines = open("\xEF\xBB\xBF\n" + row + "\r\n\r\n" + row + "\n\n" + row);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines.row(2).id, "a");
  EXPECT_THAT(lines.place(0), HasSubstr("data.json:2"));
  EXPECT_THAT(lines.place(1), HasSubstr("data.json:4"));
  EXPECT_THAT(lines.place(2), HasSubstr("data.json:6"));
}

TEST_F(DatasetTest, BracketsAndQuotesInsideStrings) {
  const Dataset data = open(R"([{"prompt": "a ] } \" , [ { \\"}, {"prompt": "b\\\\"}, {"prompt": "c \\\" ]"}])",
                            RowFormat::kAuto, false);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(show(data.row(0)), "user:<a ] } \" , [ { \\> ");
  EXPECT_EQ(show(data.row(2)), "user:<c \\\" ]> ");
}

TEST_F(DatasetTest, Dialects) {
  EXPECT_EQ(
      show(only_row(
          R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Q"}]}, {"role": "assistant", "content": [{"type": "text", "text": "A"}]}], "images": ["x.png"]})")),
      "system:<S> user:[]<Q> assistant:<A> ");
  EXPECT_EQ(
      show(only_row(
          R"({"system": "S", "conversations": [{"role": "user", "value": "Q"}, {"from": "gpt", "content": "A"}], "extra": {"deep": [1]}})")),
      "system:<S> user:<Q> assistant:<A> ");
  const Row qwen = only_row(
      R"({"conversations": [{"from": "user", "value": "Picture 1: <img>a b.jpg</img>\nWhat?"}, {"from": "assistant", "value": "A"}]})");
  EXPECT_EQ(show(qwen), "user:[]<What?> assistant:<A> ");
  EXPECT_THAT(qwen.images, ElementsAre((scratch_.path() / "a b.jpg").string()));
  const Row html = only_row(
      R"({"conversations": [{"from": "user", "value": "Fix <img>x</img>"}, {"from": "assistant", "value": "<image>"}]})");
  EXPECT_EQ(show(html), "user:<Fix <img>x</img>> assistant:<<image>> ");
  const Row prompt = open(R"({"id": 7, "prompt": "Read <image> it", "image": "x.png", "references": ["one", "two"]})",
                          RowFormat::kAuto, false)
                         .row(0);
  EXPECT_EQ(prompt.id, "7");
  EXPECT_EQ(show(prompt), "user:<Read >[]< it> ");
  EXPECT_THAT(prompt.references, ElementsAre("one", "two"));
}

TEST_F(DatasetTest, VideosAreListsOfFrames) {
  const auto row = [&](const std::string& keys, const std::string& text) {
    return R"({)" + keys + R"(, "conversations": [{"from": "human", "value": ")" + text +
           R"("}, {"from": "gpt", "value": "<video>"}]})";
  };
  const auto file = [&](const char* name) { return (scratch_.path() / name).string(); };
  const Row both =
      only_row(row(R"("videos": [["a.png", "b.png"], ["c.png"]], "images": ["d.png"])", "x<video>\ny<image>z<video>"));
  EXPECT_EQ(show(both), "user:<x>{}<y>[]<z>{} assistant:<<video>> ");
  EXPECT_THAT(both.videos, ElementsAre(ElementsAre(file("a.png"), file("b.png")), ElementsAre(file("c.png"))));
  EXPECT_THAT(both.images, ElementsAre(file("d.png")));
  EXPECT_EQ(show(only_row(row(R"("videos": [["a.png"]], "image": "b.png")", "Q"))),
            "user:[]{}<Q> assistant:<<video>> ");
  EXPECT_EQ(show(only_row(row(R"("video": ["a.png", "b.png"])", "<video>Q"))), "user:{}<Q> assistant:<<video>> ");
  EXPECT_EQ(show(only_row(row(R"("id": 1)", "<video>Q"))), "user:<<video>Q> assistant:<<video>> ");
  const Row parts = only_row(
      R"({"messages": [{"role": "user", "content": [{"type": "video", "video": ["a.png", "b.png"]}, {"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A"}]})");
  EXPECT_EQ(show(parts), "user:{}<Q> assistant:<A> ");
  EXPECT_THAT(parts.videos, ElementsAre(ElementsAre(file("a.png"), file("b.png"))));
  EXPECT_TRUE(open("[" + row(R"("videos": [["a.png"]])", "Q") + "]").has_image(0));
  EXPECT_THAT(row_error(row(R"("videos": ["a.mp4"])", "Q")), HasSubstr("videos are not decoded"));
  EXPECT_THAT(row_error(row(R"("videos": [[]])", "Q")), HasSubstr("empty"));
  EXPECT_THAT(row_error(row(R"("videos": [["a.png"]])", "<video><video>")), HasSubstr("2 video tags for 1 videos"));
}

TEST_F(DatasetTest, TagsMarkPlaces) {
  const auto row = [&](const std::string& images, const std::string& text) {
    return only_row(R"({"image": )" + images + R"(, "conversations": [{"from": "human", "value": ")" + text +
                    R"("}, {"from": "gpt", "value": "A"}]})");
  };
  EXPECT_EQ(show(row(R"("a.png")", "<image>\\nQ")), "user:[]<Q> assistant:<A> ");
  EXPECT_EQ(show(row(R"("a.png")", "<image>\\r\\n\\nQ")), "user:[]<\nQ> assistant:<A> ");
  EXPECT_EQ(show(row(R"("a.png")", "Q\\n<image>")), "user:<Q\n>[] assistant:<A> ");
  EXPECT_EQ(show(row(R"(["a.png", "b.png"])", "x <image> y <image>\\nz")), "user:<x >[]< y >[]<z> assistant:<A> ");
  EXPECT_EQ(show(row(R"("a.png")", "no tag")), "user:[]<no tag> assistant:<A> ");
  EXPECT_EQ(show(row(R"(["a.png", "b.png"])", "no tag")), "user:[][]<no tag> assistant:<A> ");
  EXPECT_EQ(show(row("null", "text only")), "user:<text only> assistant:<A> ");
  EXPECT_EQ(show(row("[]", "text only")), "user:<text only> assistant:<A> ");
  EXPECT_EQ(show(row(R"("")", "text only")), "user:<text only> assistant:<A> ");
}

TEST_F(DatasetTest, PicturesAreFound) {
  scratch_.write("beside.png", "");
  scratch_.write("folder/inside.png", "");
  DatasetOptions options;
  options.image_folder = scratch_.path() / "folder";
  options.needs_answer = false;
  options.files = {
      {scratch_.write(
           "d.jsonl",
           R"({"prompt": "p", "images": ["inside.png", "beside.png", "none.png", "/abs.png", "data:image/png;base64,AA==", {"bytes": "QUJD"}, {"path": "inside.png"}, "file:///x.png"]})"),
       1}};
  const std::string folder = (scratch_.path() / "folder").string(), beside = scratch_.path().string();
  EXPECT_THAT(Dataset::open(options).row(0).images,
              ElementsAre(folder + "/inside.png", beside + "/beside.png", folder + "/none.png", "/abs.png",
                          "data:image/png;base64,AA==", "data:application/octet-stream;base64,QUJD",
                          folder + "/inside.png", "file:///x.png"));
}

TEST_F(DatasetTest, PartsMayBringTheirPictures) {
  const Row row = only_row(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "image", "image": "a.png"}, {"type": "image_url", "image_url": {"url": "file:///b.png"}}, {"type": "image"}]}, {"role": "assistant", "content": "A"}], "images": [{"path": "c.png"}]})");
  EXPECT_EQ(show(row), "user:<1>[][][] assistant:<A> ");
  EXPECT_THAT(row.images,
              ElementsAre((scratch_.path() / "a.png").string(), "file:///b.png", (scratch_.path() / "c.png").string()));
}

TEST_F(DatasetTest, BrokenRulesNameTheRow) {
  const auto turns = [](const std::string& list, const std::string& more = "") {
    return R"({"conversations": [)" + list + "]" + more + "}";
  };
  const std::string human = R"({"from": "human", "value": "Q"})", gpt = R"({"from": "gpt", "value": "A"})";
  EXPECT_THAT(row_error(turns("")), AllOf(HasSubstr("data.json#0"), HasSubstr("empty conversation")));
  EXPECT_THAT(row_error(turns(gpt + "," + human)), HasSubstr("the assistant's turn at place 1, expected the user's"));
  EXPECT_THAT(row_error(turns(human + "," + human + "," + gpt)), HasSubstr("the user's turn at place 2"));
  EXPECT_THAT(row_error(turns(human)), HasSubstr("no assistant turn"));
  EXPECT_THAT(row_error(turns(R"({"from": "system", "value": "S"})")), HasSubstr("no user turn"));
  EXPECT_THAT(row_error(turns(human + R"(,{"from": "tool", "value": "x"})")), HasSubstr("a turn by \"tool\""));
  EXPECT_THAT(
      row_error(turns(R"({"from": "human", "value": "<image><image><image>"},)" + gpt, R"(, "image": ["a", "b"])")),
      HasSubstr("3 image tags for 2 pictures"));
  EXPECT_THAT(row_error(turns(R"({"from": "human", "value": "<image>"},)" + gpt, R"(, "image": ["a", "b"])")),
              HasSubstr("1 image tags for 2 pictures"));
  EXPECT_THAT(row_error(turns(R"({"from": "human", "value": "<image>"},)" + gpt)),
              HasSubstr("1 image tags for 0 pictures"));
  EXPECT_THAT(row_error("[1]"), HasSubstr("is array, expected an object"));
  EXPECT_THAT(row_error(R"({"id": 1})"), HasSubstr("none of"));
  EXPECT_THAT(row_error(R"({"messages": [{"role": "user", "content": "x"}]})", RowFormat::kLlava),
              HasSubstr("no \"conversations\""));
  EXPECT_THAT(row_error(R"({"image": 5, "conversations": )" + kTurns + "}"), HasSubstr("number in \"image\""));
}

TEST_F(DatasetTest, TextThatIsNoJson) {
  EXPECT_THAT(row_error("{\"prompt\": \"a\xFF\"}"), AllOf(HasSubstr("byte 14 of the file is not UTF-8 (0xff)")));
  EXPECT_THAT(row_error(R"({"prompt": "\ud800 x"})"), HasSubstr("surrogate"));
  EXPECT_THAT(row_error(R"({"prompt": "x",})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(row_error("{'prompt': 1}"), HasSubstr("not valid JSON"));
  EXPECT_EQ(show(open("{\"prompt\": \"a\tb\rc \\ud83d\\ude00\"}", RowFormat::kAuto, false).row(0)),
            "user:<a\tb\rc \U0001F600> ");
  EXPECT_THAT(open_error(""), HasSubstr("empty"));
  EXPECT_THAT(open_error("[]"), HasSubstr("holds no rows"));
  EXPECT_THAT(open_error("<html>"), HasSubstr("byte 0 is neither"));
  EXPECT_THAT(open_error(R"([{"a": 1}, {"b": "x)"), AllOf(HasSubstr("#1"), HasSubstr("never ends")));
  EXPECT_THAT(open_error(R"([{"a": 1},)"), HasSubstr("never ends"));
  EXPECT_THAT(open_error(R"([{"a": 1})"), HasSubstr("not closed after its 1 rows"));
  EXPECT_THAT(open_error(R"([{"a": 1},])"), HasSubstr("expected a row"));
  EXPECT_THAT(open_error(R"([{"a": 1} {"a": 1}])"), HasSubstr("expected ',' or ']'"));
  EXPECT_THAT(open_error(R"([{"a": 1}] x)"), HasSubstr("expected the end of the file"));
  EXPECT_THAT(open_error("{\n\"a\": 1"), HasSubstr("no line is a whole JSON object"));
}

TEST_F(DatasetTest, ABadLineIsOneBadRow) {
  const Dataset data = open("{\"prompt\": \"a\"}\n{\"prompt\": \"b\n{\"prompt\": \"c\"}\n", RowFormat::kAuto, false);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(show(data.row(0)), "user:<a> ");
  EXPECT_THROW(data.row(1), UserError);
  EXPECT_EQ(show(data.row(2)), "user:<c> ");
}

TEST_F(DatasetTest, ScanSeesPictures) {
  const Dataset data = open(
      R"([{"image": "x"}, {"images": []}, {"image":null}, {"t": "say \"image\": 1"}, {"c": [{"type": "image"}]}, {"images": ["a"]}, {"v": "<img>x</img>"}, {"imagery": 1}])");
  std::vector<bool> seen;
  for (int64_t i = 0; i < data.size(); ++i) seen.push_back(data.has_image(i));
  EXPECT_EQ(seen, (std::vector<bool>{true, false, false, false, true, true, true, false}));
}

TEST_F(DatasetTest, SeveralFilesAndThreads) {
  DatasetOptions options;
  options.needs_answer = false;
  options.files = {{scratch_.write("a.jsonl", "{\"prompt\": \"0\"}\n{\"prompt\": \"1\"}\n"), 1},
                   {scratch_.write("b.json", R"([{"prompt": "2"}])"), 2}};
  const Dataset data = Dataset::open(options);
  ASSERT_EQ(data.size(), 3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 60; ++i) EXPECT_EQ(show(data.row(i % 3)), "user:<" + std::to_string(i % 3) + "> ");
    });
  for (auto& thread : threads) thread.join();
  const auto files = data.files();
  EXPECT_EQ(files[1].first, 2);
  EXPECT_EQ(files[1].weight, 2);
  EXPECT_THAT(data.row(2).references, IsEmpty());
}

TEST_F(DatasetTest, MissingFile) {
  DatasetOptions options;
  options.files = {{scratch_.path() / "none.json", 1}};
  EXPECT_THROW(Dataset::open(options), UserError);
}

}  // namespace
}  // namespace vlmtune
