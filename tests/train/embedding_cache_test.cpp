// Shards of features: found by key, left out when damaged or of another context, whole or absent.
#include "lib/train/embedding_cache.h"

#include <gmock/gmock.h>

#include <fstream>

#include "lib/base/errors.h"
#include "lib/image/processor.h"
#include "tests/data/scratch.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using testing::SizeIs;

class EmbeddingCacheTest : public testing::Test {
 protected:
  EmbeddingCache opened(const std::string& context = "a tower") const {
    EmbeddingCache cache(scratch_.path() / "cache", context);
    cache.open_shards();
    return cache;
  }
  static std::vector<fs::path> files(const EmbeddingCache& cache) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache.folder())) files.push_back(entry.path());
    return files;
  }
  test::Scratch scratch_;
  torch::Tensor one_ = torch::randn({1, 3, 5}), two_ = torch::randn({4, 3, 5}).to(torch::kBFloat16);
};

TEST_F(EmbeddingCacheTest, FindsWhatWasAddedNowAndLater) {
  auto cache = opened();
  EXPECT_EQ(cache.find("one"), nullptr);
  cache.add({{"one", one_}, {"two", two_}});
  cache.add({{"three", one_ + 1}});
  for (const auto& now : {cache, opened()}) {
    EXPECT_EQ(now.size(), 3u);
    ASSERT_TRUE(now.has("two"));
    EXPECT_TRUE(torch::equal(now.find("one")->values, one_));
    EXPECT_TRUE(torch::equal(now.find("two")->values, two_));
    EXPECT_EQ(now.find("two")->values.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(torch::equal(now.find("three")->values, one_ + 1));
    EXPECT_EQ(now.find("four"), nullptr);
  }
  EXPECT_THAT(files(cache), SizeIs(2));
}

TEST_F(EmbeddingCacheTest, FeaturesOutliveTheCache) {
  std::shared_ptr<const PictureFeatures> features;
  {
    auto cache = opened();
    cache.add({{"one", one_}});
    features = cache.find("one");
  }
  EXPECT_TRUE(torch::equal(features->values, one_));
}

TEST_F(EmbeddingCacheTest, ContextsAreApart) {
  auto cache = opened();
  cache.add({{"one", one_}});
  const auto other = opened("another tower");
  EXPECT_FALSE(other.has("one"));
  // A shard that somebody has copied over is of no use.
  fs::copy_file(files(cache)[0], other.folder() / files(cache)[0].filename());
  EXPECT_FALSE(opened("another tower").has("one"));
  EXPECT_THAT(files(other), SizeIs(0));
  EXPECT_TRUE(opened().has("one"));
}

TEST_F(EmbeddingCacheTest, DamageOfEveryKindIsFound) {
  const auto damage = [](const fs::path& file, size_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  };
  auto cache = opened();
  cache.add({{"one", one_}});
  const auto shard = files(cache)[0];
  const auto size = fs::file_size(shard);
  const auto whole = read_file(shard);
  for (size_t at = 0; at < size; at += 7) {
    write_file_atomic(shard, whole);
    damage(shard, at);
    EXPECT_FALSE(opened().has("one")) << "byte " << at;
    EXPECT_FALSE(fs::exists(shard));
    write_file_atomic(shard, whole.substr(0, at));
    EXPECT_FALSE(opened().has("one")) << "cut at byte " << at;
  }
  write_file_atomic(shard, whole);
  EXPECT_TRUE(opened().has("one"));
}

TEST_F(EmbeddingCacheTest, RemainsOfAKilledWriterDoNoHarm) {
  auto cache = opened();
  std::ofstream(cache.folder() / "unnamed.tmp.1") << "half";
  std::ofstream(cache.folder() / "unnamed") << "half";
  EXPECT_EQ(opened().size(), 0u);
  cache.add({{"one", one_}});
  EXPECT_THAT(files(cache), SizeIs(1));
}

TEST_F(EmbeddingCacheTest, FolderThatCannotBeMade) {
  scratch_.write("cache", "a file");
  EXPECT_THROW(opened(), UserError);
}

TEST(ImageProcessorTest, SettingsTellEveryFieldApart) {
  const ImageProcessor plain;
  std::vector<ImageProcessor> changed(15);
  changed[0].do_resize = changed[1].do_center_crop = changed[2].do_rescale = changed[3].do_normalize = false;
  changed[4].shortest_edge = changed[5].size_height = changed[6].size_width = 225;
  changed[7].crop_height = changed[8].crop_width = 225;
  changed[9].resample = Resample::kBilinear;
  changed[10].rescale_factor = 1.0 / 256;
  changed[11].image_mean[2] += 1e-7;
  changed[12].image_std[0] += 1e-7;
  changed[13].aspect_ratio = AspectRatio::kPad;
  changed[14].grid_pinpoints = {{336, 672}};
  for (size_t i = 0; i < changed.size(); ++i) EXPECT_NE(changed[i].settings(), plain.settings()) << i;
  ImageProcessor dynamic;
  dynamic.aspect_ratio = AspectRatio::kDynamic;
  changed.assign(4, dynamic);
  changed[0].min_pixels = changed[1].max_pixels = changed[2].patch_size = changed[3].merge_size = 3;
  for (size_t i = 0; i < changed.size(); ++i) EXPECT_NE(changed[i].settings(), dynamic.settings()) << i;
}

}  // namespace
}  // namespace vlmtune
