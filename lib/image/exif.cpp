// The one EXIF tag that matters here (TIFF 6.0 IFD0, tag 0x0112), read from bytes nobody vouches for.
#include "lib/image/codecs.h"

namespace vlmtune::codecs {
namespace {

int valid_or_upright(uint32_t value) { return value >= 1 && value <= 8 ? static_cast<int>(value) : 1; }

}  // namespace

int exif_orientation(Bytes exif) {
  if (text(exif).starts_with(std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
  if (exif.size() < 8) return 1;
  const bool big = text(exif).starts_with("MM");
  if (!big && !text(exif).starts_with("II")) return 1;
  const auto u16 = [&](size_t i) { return big ? big16(exif, i) : little16(exif, i); };
  const auto u32 = [&](size_t i) { return big ? big32(exif, i) : little32(exif, i); };
  const size_t directory = u32(4);
  if (u16(2) != 42 || directory > exif.size() - 2) return 1;
  const size_t entries = u16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > exif.size()) break;
    if (u16(entry) != 0x0112) continue;
    const uint32_t type = u16(entry + 2);
    if (u32(entry + 4) < 1) return 1;
    if (type == 3) return valid_or_upright(u16(entry + 8));
    return type == 4 ? valid_or_upright(u32(entry + 8)) : 1;
  }
  return 1;
}

int xmp_orientation(Bytes xmp) {
  static constexpr std::string_view kKey = "tiff:Orientation";
  const std::string_view packet = text(xmp);
  for (size_t at = packet.find(kKey); at != std::string_view::npos; at = packet.find(kKey, at + 1)) {
    std::string_view rest = packet.substr(at + kKey.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '1' && rest[0] <= '8') return rest[0] - '0';
  }
  return 0;
}

}  // namespace vlmtune::codecs
