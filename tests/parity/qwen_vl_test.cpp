// What is Qwen-VL's own: pixels, token counts and positions of pictures of any size.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/files.h"
#include "lib/models/qwen_vl/patches.h"
#include "lib/models/vlm/positions.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

Image read_picture(const std::string& name) {
  const auto bytes = read_file(golden_path("images/" + name));
  return decode_image(std::as_bytes(std::span(bytes)), name);
}

class QwenVl : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return std::string("models/") + GetParam(); }
  const QwenVlVisionConfig& vision() const { return dynamic_cast<const QwenVlVisionConfig&>(*config_.vision); }
  Golden golden_{folder()};
  VlmConfig config_ = read_vlm_config(golden_path(folder()), std::nullopt, {});
};

TEST_P(QwenVl, PixelsAndTokenCounts) {
  auto processor = ImageProcessor::load(golden_path(folder()));
  config_.vision->adapt(processor, "folder");
  std::vector<Tensor> patches;
  const auto counts = golden_.integers("image_tokens");
  const auto grids = golden_.tensor("image_grid_thw");
  size_t i = 0;
  for (const auto& name : golden_.texts("images")) {
    const auto picture = read_picture(name);
    const auto image = processor.process(picture);
    const auto shape = processor.shape_of(picture.size());
    EXPECT_EQ(std::pair(image.width, image.height), std::pair(shape.width, shape.height)) << name;
    EXPECT_EQ(vision().image_tokens(shape), counts.at(i)) << name;
    EXPECT_EQ(vision().tower_shape(shape)[0],
              grids[static_cast<int64_t>(i)].prod().item<int64_t>() * vision().num_states())
        << name;
    const auto pixels = torch::tensor(image.pixels).view({1, 3, image.height, image.width});
    patches.push_back(blockwise_patches(pixels, vision()));
    ++i;
  }
  EXPECT_EQ(i, counts.size());
  expect_close(torch::cat(patches, 0), golden_.tensor("pixel_values"), 1e-6, "pixel_values");
}

TEST_P(QwenVl, Positions) {
  const auto model = load_model(golden_path(folder()));
  const auto batch = read_batch(golden_, config_);
  const auto expected = golden_.tensor("position_ids");
  const auto found = model->positions(batch.ids, batch.images.shapes, {});
  EXPECT_TRUE(torch::equal(found * batch.mask, expected));
  // The same rows padded on the left.
  const int64_t tokens = batch.ids.size(1);
  auto ids = torch::zeros_like(batch.ids);
  std::vector<int64_t> padding;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const auto length = batch.mask[row].sum().item<int64_t>();
    padding.push_back(tokens - length);
    ids[row].narrow(0, tokens - length, length).copy_(batch.ids[row].narrow(0, 0, length));
  }
  const auto left = model->positions(ids, batch.images.shapes, padding);
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const auto pad = padding[static_cast<size_t>(row)];
    EXPECT_TRUE(torch::equal(left.select(1, row).narrow(1, pad, tokens - pad),
                             expected.select(1, row).narrow(1, 0, tokens - pad)))
        << row;
    EXPECT_EQ(next_positions(left)[row].item<int64_t>(), expected.select(1, row).max().item<int64_t>() + 1) << row;
  }
}

TEST_P(QwenVl, PositionsOfPackedRows) {
  const auto model = load_model(golden_path(folder()));
  const auto batch = read_batch(golden_, config_);
  std::vector<Tensor> ids, first_keys, expected;
  int64_t begin = 0;
  for (int64_t row = 0; row < batch.ids.size(0); ++row) {
    const auto length = batch.mask[row].sum().item<int64_t>();
    ids.push_back(batch.ids[row].narrow(0, 0, length));
    first_keys.push_back(torch::full({length}, begin, torch::kInt));
    expected.push_back(golden_.tensor("position_ids").select(1, row).narrow(1, 0, length));
    begin += length;
  }
  const auto found =
      model->positions(torch::cat(ids).unsqueeze(0), batch.images.shapes, {}, torch::cat(first_keys).unsqueeze(0));
  EXPECT_TRUE(torch::equal(found.select(1, 0), torch::cat(expected, 1)));
}

INSTANTIATE_TEST_SUITE_P(Goldens, QwenVl, testing::Values("qwen2-vl", "qwen2-vl-tied", "qwen2.5-vl", "qwen3-vl"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(SmartResize, EqualsTransformers) {
  const auto table = nlohmann::json::parse(read_file(golden_path("images/smart_resize.json")))["rows"];
  for (const auto& row : table) {
    ImageProcessor p;
    p.aspect_ratio = AspectRatio::kDynamic;
    p.patch_size = row[2];
    p.merge_size = 1;
    p.min_pixels = row[3];
    p.max_pixels = row[4];
    const auto shape = p.shape_of({.width = row[1], .height = row[0]});
    EXPECT_EQ(std::pair(shape.height, shape.width), std::pair(row[5].get<int>(), row[6].get<int>())) << row;
  }
  ImageProcessor p;
  p.aspect_ratio = AspectRatio::kDynamic;
  EXPECT_THROW(p.shape_of({.width = 1, .height = 201}), UserError);
}

TEST(SmartResize, LargestSizeIsTheLargest) {
  ImageProcessor p;
  p.aspect_ratio = AspectRatio::kDynamic;
  p.max_pixels = 28 * 28 * 1280;
  const auto tokens = [&](ImageSize size) {
    const auto shape = p.shape_of(size);
    return shape.width / 28 * (shape.height / 28);
  };
  EXPECT_EQ(tokens(p.largest_size(5000)), 1280);
  for (const int64_t limit : {4, 100, 129, 1000}) {
    EXPECT_LE(tokens(p.largest_size(limit)), limit);
    EXPECT_GE(tokens(p.largest_size(limit)), limit - 1);
  }
}

TEST(QwenVlConfig, ErrorsNameTheKey) {
  const auto read = [](const std::string& config) {
    const Scratch scratch;
    write_file_atomic(scratch.path() / "config.json", config);
    return read_vlm_config(scratch.path(), std::nullopt, {});
  };
  const std::string text = R"("hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2)";
  const std::pair<std::string, const char*> wrong[] = {
      {R"({"model_type":"qwen2_vl",)" + text + "}", "/rope_scaling/mrope_section"},
      {R"({"model_type":"qwen2_vl","rope_scaling":{"type":"mrope","mrope_section":[2,1,1]},)" + text + "}",
       "/vision_config/hidden_size"},
      {R"({"model_type":"qwen2_vl","rope_scaling":{"type":"mrope","mrope_section":[2,1,1]},"vision_config":{"num_heads":7},)" +
           text + "}",
       "/vision_config/num_heads"},
  };
  for (const auto& [config, place] : wrong)
    EXPECT_THAT(message_of([&, config = config] { read(config); }), testing::HasSubstr(place)) << config;
}

TEST(QwenVl, BoxesAreWrittenAsTheFamilyDoes) {
  const auto style = [](const char* name) {
    return read_vlm_config(golden_path(std::string("models/") + name), std::nullopt, {}).vision->box_style();
  };
  EXPECT_EQ(style("qwen2-vl"), BoxStyle::kQwen2Vl);
  EXPECT_EQ(style("qwen2.5-vl"), BoxStyle::kQwen25Vl);
  EXPECT_EQ(style("qwen3-vl"), BoxStyle::kQwen3Vl);
  EXPECT_EQ(style("llava-clip-llama"), BoxStyle::kLlava);
}

}  // namespace
}  // namespace vlmtune::test
