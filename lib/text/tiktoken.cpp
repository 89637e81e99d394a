#include "lib/text/tiktoken.h"

#include <charconv>

#include "lib/base/base64.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/text/pre_tokenizer.h"

namespace vlmtune {
namespace {

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += byte_level_character(static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

std::unique_ptr<BpeModel> read_tiktoken(const std::filesystem::path& file) {
  constexpr size_t kLongest = 256;  // bytes of a token; a longer one is damage, and its cuts are quadratic work
  const auto content = read_file(file);
  Vocabulary vocabulary;
  std::vector<std::string> tokens;  // their bytes
  size_t line = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const auto text = std::string_view(content).substr(at, end - at);
    at = end + 1;
    const auto place = fmt::format("{}:{}", file.string(), ++line);
    if (text.empty()) continue;
    const size_t space = text.find(' ');
    int64_t rank = -1;
    if (space != std::string_view::npos) std::from_chars(text.data() + space + 1, text.data() + text.size(), rank);
    if (rank < 0 || rank > kMaxTokenId)
      throw input_error("{}: found \"{}\", expected base64 and a rank", place, text.substr(0, 60));
    tokens.push_back(decode_base64(text.substr(0, space), place));
    if (tokens.back().empty() || tokens.back().size() > kLongest)
      throw input_error("{}: a token of {} bytes, expected 1 to {}", place, tokens.back().size(), kLongest);
    if (vocabulary.id_of(printable(tokens.back()))) throw input_error("{}: the token is there already", place);
    vocabulary.add(printable(tokens.back()), rank);
  }
  std::vector<BpeModel::Merge> merges;
  for (const auto& token : tokens)
    for (size_t cut = 1; cut < token.size(); ++cut) {
      auto left = printable(token.substr(0, cut)), right = printable(token.substr(cut));
      if (vocabulary.id_of(left) && vocabulary.id_of(right)) merges.push_back({std::move(left), std::move(right)});
    }
  BpeOptions options;
  options.rank_by_token = true;
  return std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options));
}

}  // namespace vlmtune
