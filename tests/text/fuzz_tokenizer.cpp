// libFuzzer entry for the text room's parsers: the first byte chooses tokenizer.json, a sentencepiece model, or a
// template.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "lib/base/errors.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace {

namespace fs = std::filesystem;

/// A folder of this process; the loaders read files.
const fs::path& folder() {
  static const fs::path path = [] {
    auto made = fs::temp_directory_path() / ("vlmtune_fuzz_" + std::to_string(::getpid()));
    fs::create_directories(made);
    return made;
  }();
  return path;
}

void load_tokenizer(const char* name, const std::string& content) {
  fs::remove(folder() / "tokenizer.json");
  fs::remove(folder() / "tokenizer.model");
  std::ofstream(folder() / name, std::ios::binary) << content;
  auto tokenizer = vlmtune::Tokenizer::load(folder());
  auto ids = tokenizer->encode("The caf\u00e9 </s> 12 \U0001F642\n  x", true);
  tokenizer->decode(ids, false);
  vlmtune::StreamDecoder stream(tokenizer);
  for (auto id : ids) stream.push(id);
  stream.flush();
}

void render_template(const std::string& source) {
  using Kind = vlmtune::MessagePart::Kind;
  auto chat = vlmtune::ChatTemplate::from_source(source, "fuzz");
  chat.render({{"user", {{Kind::kImage, ""}, {Kind::kText, "What?"}}}, {"assistant", {{Kind::kText, " A cat. "}}}},
              true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0)
      load_tokenizer("tokenizer.json", content);
    else if (data[0] % 3 == 1)
      load_tokenizer("tokenizer.model", content);
    else
      render_template(content);
  } catch (const vlmtune::UserError&) {
    // a refusal with a message is what is wanted
  }
  return 0;
}
