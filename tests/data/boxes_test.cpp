// Boxes: from pixels to what each family writes and back, and where rows put them.
#include "lib/image/boxes.h"

#include <gmock/gmock.h>

#include "lib/base/errors.h"
#include "tests/data/tiny_model.h"

namespace vlmtune {
namespace {

using ::testing::HasSubstr;

const ImageSize kOriginal{300, 200}, kResized{280, 196};
const Box kBox{30, 20, 150, 199};

BoxFrame frame(BoxStyle style) { return {style, kOriginal, kResized}; }

TEST(Boxes, AsEachFamilyWritesThem) {
  EXPECT_EQ(write_box(kBox, frame(BoxStyle::kLlava)), "[0.100, 0.233, 0.500, 0.830]");  // 50 rows above the picture
  EXPECT_EQ(write_box(kBox, frame(BoxStyle::kQwenVl)), "<box>(100,100),(500,995)</box>");
  EXPECT_EQ(write_box(kBox, frame(BoxStyle::kQwen2Vl)), "<|box_start|>(100,100),(500,995)<|box_end|>");
  EXPECT_EQ(write_box(kBox, frame(BoxStyle::kQwen25Vl)), "[28, 20, 140, 195]");
  EXPECT_EQ(write_box(kBox, frame(BoxStyle::kQwen3Vl)), "[100, 100, 500, 995]");
  EXPECT_EQ(write_reference("cat", BoxStyle::kQwenVl), "<ref>cat</ref>");
  EXPECT_EQ(write_reference("cat", BoxStyle::kQwen2Vl), "<|object_ref_start|>cat<|object_ref_end|>");
  EXPECT_EQ(write_reference("cat", BoxStyle::kLlava), "cat");
}

TEST(Boxes, ComeBackInPixels) {
  for (const auto style :
       {BoxStyle::kLlava, BoxStyle::kQwenVl, BoxStyle::kQwen2Vl, BoxStyle::kQwen25Vl, BoxStyle::kQwen3Vl}) {
    const auto text = "the " + write_reference("cat", style) + write_box(kBox, frame(style)) + " and " +
                      write_box({0, 0, 300, 200}, frame(style)) + ".";
    const auto found = find_boxes(text, frame(style));
    ASSERT_EQ(found.size(), 2U) << text;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(found[0].box[i], kBox[i], 0.6) << text;
      EXPECT_NEAR(found[1].box[i], i < 2 ? 0 : i == 2 ? 300 : 200, 0.6) << text;
    }
    const bool marked = style == BoxStyle::kQwenVl || style == BoxStyle::kQwen2Vl;
    EXPECT_EQ(found[0].name, marked ? "cat" : "") << text;
    EXPECT_EQ(found[1].name, "");
  }
}

TEST(Boxes, InOtherClothes) {
  const auto json = find_boxes(R"([{"bbox_2d": [28, 20, 140, 195], "label": "a cat"}])", frame(BoxStyle::kQwen25Vl));
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0].name, "a cat");
  EXPECT_DOUBLE_EQ(json[0].box[0], 30);
  EXPECT_EQ(find_boxes("cat(100,100),(500,995)", frame(BoxStyle::kQwenVl)).size(), 1U) << "marks are left out in text";
  const auto outside = find_boxes("[0.0, 0.0, 1, 1.0]", frame(BoxStyle::kLlava));
  ASSERT_EQ(outside.size(), 1U);
  EXPECT_EQ(outside[0].box, (Box{0, 0, 300, 200})) << "the padding is no part of the picture";
  for (const char* text : {"", "[1, 2, 3]", "(1,2)", "[0.1, 0.2, 0.3]", "[cat]", "[0.1, 0.2, 0.3, 44]"})
    for (const auto style : {BoxStyle::kLlava, BoxStyle::kQwenVl})
      EXPECT_TRUE(find_boxes(text, frame(style)).empty()) << text;
}

TEST(Boxes, OfQwenVlInOtherFamilies) {
  const std::string text = "a <ref>cat</ref><box>(100,100),(500,995)</box> (here)";
  EXPECT_EQ(convert_qwen_boxes(text, frame(BoxStyle::kQwenVl)), text);
  EXPECT_EQ(convert_qwen_boxes(text, frame(BoxStyle::kQwen25Vl)), "a cat[28, 20, 140, 195] (here)");
  EXPECT_EQ(convert_qwen_boxes(text, frame(BoxStyle::kQwen2Vl)),
            "a <|object_ref_start|>cat<|object_ref_end|><|box_start|>(100,100),(500,995)<|box_end|> (here)");
}

class GroundedRows : public ::testing::Test {
 protected:
  GroundedRows() {
    model_.scratch.write("a.ppm", test::pixmap(30, 20));
    model_.scratch.write("b.ppm", test::pixmap(10, 10));
  }

  static std::string row(const std::string& objects, const std::string& question, const std::string& answer) {
    return fmt::format(
        R"([{{"images": ["a.ppm", "b.ppm"], {}"conversations": [{{"from": "human", "value": "{}"}}, {{"from": "gpt", "value": "{}"}}]}}])",
        objects, question, answer);
  }

  /// The row as the model sees it.
  std::string text(const std::string& rows, BoxStyle style = BoxStyle::kLlava) const {
    auto options = model_.options();
    options.box_style = style;
    options.image_token_id = test::kImage;
    const auto example = ExampleBuilder(options).build(model_.data(rows).row(0));
    return describe_example(example, *model_.tokenizer);
  }

  std::string error(const std::string& rows) const {
    try {
      text(rows);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }

  test::TinyModel model_;
};

TEST_F(GroundedRows, PlaceholdersAreFilledInOrder) {
  const auto rows =
      row(R"("objects": {"ref": ["cat", "dog"], "bbox": [[3, 2, 15, 20], [0, 0, 5, 10]], "image_id": [0, 1]}, )",
          "Where is <ref-object>?", "<bbox>, and <ref-object>: <bbox>");
  EXPECT_EQ(text(rows, BoxStyle::kQwenVl),
            "u:[image: 30 tokens][image: 10 tokens]Where is <ref>cat</ref>?|a:[[<box>(100,100),(500,1000)</box>, and "
            "<ref>dog</ref>: <box>(0,0),(500,1000)</box></s>]]");
  EXPECT_THAT(text(rows), HasSubstr("[[[0.100, 0.233, 0.500, 0.833], and dog: [0.000, 0.000, 0.500, 1.000]</s>]]"));
}

TEST_F(GroundedRows, MarksBelongToThePictureBefore) {
  const auto rows = row("", "<image>Look<image>Find it", "<ref>it</ref><box>(0,0),(1000,1000)</box>");
  EXPECT_THAT(text(rows, BoxStyle::kLlava), HasSubstr("[[it[0.000, 0.000, 1.000, 1.000]</s>]]"));
}

TEST_F(GroundedRows, OtherTextStays) {
  EXPECT_THAT(text(row("", "a <bbox> and <ref-object>", "<ref>b</ref>")),
              HasSubstr("a <bbox> and <ref-object>|a:[[<ref>b</ref></s>]]"));
  for (const char* objects : {R"([{"x": 1}])", R"({"bbox": [[1, 2, 3, 4]], "area": [1]})", R"({"bbox": "none"})"})
    EXPECT_THAT(text(row(fmt::format(R"("objects": {}, )", objects), "a", "b")), HasSubstr("[[b</s>]]"));
}

TEST_F(GroundedRows, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(error(row(R"("objects": {"ref": ["a"], "bbox": [[1, 2, 3, 4]]}, )", "<ref-object>", "b")),
              testing::AllOf(HasSubstr("data.json#0: "), HasSubstr("0 <bbox>"), HasSubstr("1 boxes")));
  EXPECT_THAT(error(row(R"("objects": {"bbox": [[1, 2, 3, 4]]}, )", "<bbox>", "<bbox>")), HasSubstr("2 <bbox>"));
  EXPECT_THAT(error(row(R"("objects": {"bbox": [[1, 2, 3]]}, )", "<bbox>", "b")), HasSubstr("[1,2,3]"));
  EXPECT_THAT(error(row(R"("objects": {"bbox": [[1, 2, 3, 4]], "image_id": [2]}, )", "<bbox>", "b")),
              HasSubstr("picture 2, the row has 2"));
  EXPECT_THAT(
      error(
          R"([{"objects": {"ref": ["a"]}, "messages": [{"role": "user", "content": "<ref-object>"}, {"role": "assistant", "content": "b"}]}])"),
      HasSubstr("no picture"));
  EXPECT_THAT(error(row(R"("objects": {"bbox": [[1, 2, 3, 4]], "bbox_type": "norm1"}, )", "<bbox>", "b")),
              HasSubstr("expected \"real\""));
}

}  // namespace
}  // namespace vlmtune
