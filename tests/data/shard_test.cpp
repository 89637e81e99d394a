// Webdataset shards: which members make a row, and archives that are not what they say.
#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "lib/data/dataset.h"
#include "lib/data/row_file.h"
#include "lib/image/source.h"
#include "tests/data/scratch.h"
#include "tests/data/tiny_model.h"

namespace vlmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A member in the format of ustar; `size` as its header has it, if that is not the content's.
std::string member(const std::string& name, const std::string& content, std::optional<uint64_t> size = {}) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 12, fmt::format("{:011o} ", size.value_or(content.size())).substr(0, 12));
  header[156] = '0';
  header.replace(257, 5, "ustar");
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

class ShardTest : public ::testing::Test {
 protected:
  Dataset open(const std::string& content) {
    DatasetOptions options;
    options.files = {{scratch_.write("s.tar", content), 1}};
    return Dataset::open(options);
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
  static std::string bytes_of(const std::string& source) { return read_image_source(source, {}); }

  test::Scratch scratch_;
};

std::string row(const std::string& image, const std::string& question = "q") {
  return fmt::format(R"({{{}"conversations": [{{"from": "human", "value": "{}"}}, {{"from": "gpt", "value": "a"}}]}})",
                     image, question);
}

TEST_F(ShardTest, MembersOfOneKeyAreOneRow) {
  const std::string text_row = row("");
  const auto data =
      open(member("d/b.one.png", "P1") + member("d/._b.png", "no picture") + member("d/b.json", row("")) +
           member("d/b.two.PNG", "P2") + member("d/a.json", text_row) + member("d/a.weights", "w") +
           member("d/a.txt", "not needed") + member("d/c.d.jpg", "P3") + member("d/c.txt", "a cat") + kEnd);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.place(0), (scratch_.path() / "s.tar/d/b").string());
  EXPECT_THAT((std::vector{data.has_image(0), data.has_image(1), data.has_image(2)}), ElementsAre(true, false, true));
  EXPECT_EQ(data.row_bytes(1), static_cast<int64_t>(text_row.size() + 10)) << "of its texts alone";
  const auto two = data.row(0);
  EXPECT_EQ(bytes_of(two.images.at(0)), "P1");
  EXPECT_EQ(bytes_of(two.images.at(1)), "P2");
  EXPECT_EQ(image_source_name(two.images[1]), (scratch_.path() / "s.tar/d/b.two.PNG").string());
  EXPECT_TRUE(data.row(1).images.empty());
  const auto caption = data.row(2);
  EXPECT_EQ(caption.messages.at(0).parts.at(0).kind, MessagePart::Kind::kImage);
  EXPECT_EQ(caption.messages.at(1).parts.at(0).text, "a cat");
}

TEST_F(ShardTest, RowsNamePicturesByWhatTheyAreCalledNowOrOnce) {
  const auto pictures = member("k.0.png", "P0") + member("k.1.png", "P1");
  const auto images = [&](const std::string& json) {
    std::vector<std::string> contents;
    for (const auto& source : open(pictures + member("k.json", json) + kEnd).row(0).images)
      contents.push_back(bytes_of(source));
    return contents;
  };
  EXPECT_THAT(images(row(R"("images": ["k.1.png", "k.0.png"], )")), ElementsAre("P1", "P0"));
  EXPECT_THAT(images(row(R"("images": ["coco/7.png", "coco/8.png"], )")), ElementsAre("P0", "P1"));
  EXPECT_THAT(images(row("", "<image> and <image>")), ElementsAre("P0", "P1"));
}

TEST_F(ShardTest, PicturesAreMeasuredInPlace) {
  const auto data = open(member("k.ppm", test::pixmap(5, 8)) + member("k.txt", "a") + kEnd);
  const auto source = data.row(0).images.at(0);
  EXPECT_EQ(probe_image_source(source, {}).width, 5);
  EXPECT_EQ(load_image(source, {}).height, 8);
  scratch_.write("s.tar", "shorter");
  EXPECT_THROW(bytes_of(source), UserError);
}

TEST_F(ShardTest, DamagedArchives) {
  EXPECT_THAT(open_error(member("a.txt", "x") + member("b.png", "x", uint64_t{1} << 32)),
              HasSubstr("s.tar/b.png: the member is cut short"));
  EXPECT_THAT(open_error(member("a.txt", "x") + std::string(512, 'x')), HasSubstr("byte 1024 is no header"));
  EXPECT_THAT(open_error(member("a.bin", "x") + kEnd), HasSubstr("holds no pictures"));
  EXPECT_EQ(open(member("a.txt", "x")).size(), 1) << "the end's zeros may be missing";
}

TEST(RowFiles, Braces) {
  EXPECT_THAT(expand_braces("a-{008..010}.tar"), ElementsAre("a-008.tar", "a-009.tar", "a-010.tar"));
  EXPECT_THAT(expand_braces("{x,y}{0..1}"), ElementsAre("x0", "x1", "y0", "y1"));
  EXPECT_THAT(expand_braces("plain.json"), ElementsAre("plain.json"));
  EXPECT_THROW(expand_braces("a-{0..1.tar"), UserError);
}

}  // namespace
}  // namespace vlmtune
