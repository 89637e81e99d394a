// Webdataset shards: tar files whose members of one name up to the first dot are one sample ("0001.jpg", "0001.json").
#pragma once
#include <functional>
#include <string_view>

#include "lib/base/random_access_file.h"
#include "lib/data/row_file.h"

namespace vlmtune {

/// The samples of one shard, found by one scan over its headers: 16 bytes a sample. A sample's ".json" member is its row, its
/// ".txt" member a caption, its pictures (jpg, jpeg, png, webp, bmp, gif, ppm) are in the shard's order; other members are
/// left alone. Names in the formats of ustar, GNU and pax.
class TarIndex : public RowFile {
 public:
  static constexpr size_t kBlock = 512;

  /// Whether a file begins with a member's header.
  static bool is_tar(std::string_view head);

  /// Errors: input_error naming the offset of what is no header, or a member that is cut short.
  explicit TarIndex(std::filesystem::path path);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  const std::filesystem::path& path() const override { return path_; }
  int64_t row_bytes(int64_t i) const override { return sample(i).text_bytes; }
  bool has_image(int64_t i) const override { return sample(i).has_image; }
  RowText read(int64_t i) const override;
  /// shard/key.
  std::string place(int64_t i) const override;

 private:
  struct Sample {
    uint64_t offset;      // of the first member's first header
    uint32_t text_bytes;  // of JSON and caption
    bool has_image;
  };
  struct Member {
    std::string name;
    uint64_t offset = 0, size = 0;  // of the content
    uint64_t begin = 0, end = 0;    // from its first header to the next member's
  };

  const Sample& sample(int64_t i) const { return samples_[static_cast<size_t>(i)]; }
  std::string content(const Member& member) const;
  /// The regular file whose headers begin at or behind `at`; nothing at the archive's end.
  std::optional<Member> next_member(uint64_t at) const;
  /// The members of the sample that begins at `at`, in order.
  void each_member(uint64_t at, const std::function<void(const Member&)>& visit) const;

  std::filesystem::path path_;
  RandomAccessFile file_;
  std::vector<Sample> samples_;
};

}  // namespace vlmtune
