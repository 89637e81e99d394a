#include "lib/data/json_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/base/errors.h"
#include "lib/data/grounding.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr std::string_view kImageTag = "<image>", kVideoTag = "<video>";

/// Control characters inside strings, which JSON forbids and files hold all the same, as escapes.
std::string escape_controls(const std::string& text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      continue;
    }
    out += c;
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

/// nlohmann's reason without its position and the bytes it read, which may be no text.
std::string parse_reason(const char* what) {
  std::string reason = what;
  const size_t start = reason.rfind(" - ", reason.find("; last read"));
  if (start != std::string::npos) reason = reason.substr(start + 3);
  if (const size_t end = reason.find("; last read"); end != std::string::npos) {
    const size_t expected = reason.find("; expected", end);
    reason = reason.substr(0, end) + (expected == std::string::npos ? "" : reason.substr(expected));
  }
  return reason;
}

Json parse_json(const RowText& row, const RowContext& context) {
  const std::string& text = row.json;
  if (const int64_t bad = first_invalid_utf8(text); bad >= 0)
    throw input_error("{}: byte {} of the file is not UTF-8 (0x{:02x})", context.place,
                      row.offset + static_cast<uint64_t>(bad),
                      static_cast<unsigned char>(text[static_cast<size_t>(bad)]));
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    Json repaired = Json::parse(escape_controls(text), nullptr, false);
    if (!repaired.is_discarded()) return repaired;
    throw input_error("{}: byte {} of the file is not valid JSON: {}", context.place, row.offset + error.byte - 1,
                      parse_reason(error.what()));
  }
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string read_id(const Json& row, const RowContext& context) {
  const Json* id = member(row, "id");
  if (id == nullptr) return context.place;
  return id->is_string() ? id->get<std::string>() : id->dump();
}

/// Collects the turns and pictures of one row.
class RowReader {
 public:
  RowReader(const RowText& text, const RowContext& context) : text_(text), context_(context) {}

  Row read(const Json& json) {
    if (!json.is_object()) throw error("is {}, expected an object", json.type_name());
    row_.place = context_.place;
    row_.id = read_id(json, context_);
    for (const char* key : {"image", "images"})
      if (const Json* value = member(json, key)) read_pictures(*value, key);
    read_videos(json);
    if (const Json* system = member(json, "system")) add_system(*system);
    read_turns(json);
    if (row_.images.empty() && std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot; }))
      for (const RowPicture& picture : text_.pictures) row_.images.push_back(picture.source);
    check_turns();
    place_pictures();
    read_references(json);
    read_objects(json);
    return std::move(row_);
  }

 private:
  template <typename... Args>
  UserError error(fmt::format_string<Args...> format, Args&&... args) const {
    return input_error("{}: the row {}", context_.place, fmt::format(format, std::forward<Args>(args)...));
  }

  void add_system(const Json& system) {
    if (!system.is_string()) throw error("has a \"system\" that is {}, expected a string", system.type_name());
    if (!system.get_ref<const std::string&>().empty())
      row_.messages.push_back({"system", {{MessagePart::Kind::kText, system.get<std::string>()}}});
  }

  /// The picture beside the row that goes by this name; else the next one, since rows that were put into shards keep the
  /// names that their pictures had before. None when there are no more.
  const RowPicture* picture_beside(const std::string& name) {
    const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    for (const RowPicture& picture : text_.pictures)
      if (base(picture.name) == base(name)) return &picture;
    return next_beside_ < text_.pictures.size() ? &text_.pictures[next_beside_++] : nullptr;
  }

  /// A path that can be opened, or the URI as it is.
  std::string resolve(const std::string& source) {
    if (const RowPicture* picture = picture_beside(source)) return picture->source;
    if (source.starts_with("data:") || source.find("://") != std::string::npos) return source;
    if (source.find('\0') != std::string::npos) throw error("has a picture whose path holds a zero byte");
    if (context_.image_folder.empty()) return (context_.file_folder / source).string();
    const fs::path path = context_.image_folder / source;
    std::error_code ignored;
    if (!fs::exists(path, ignored) && fs::exists(context_.file_folder / source, ignored))
      return (context_.file_folder / source).string();
    return path.string();
  }

  /// One picture: a string, or an object with "path", "url", "image" or "bytes".
  std::string picture(const Json& json, const char* key) {
    if (json.is_string()) {
      if (json.get_ref<const std::string&>().empty()) throw error("has an empty picture path in \"{}\"", key);
      return resolve(json.get_ref<const std::string&>());
    }
    if (json.is_object()) {
      if (const Json* bytes = member(json, "bytes")) {
        if (!bytes->is_string()) throw error("has picture bytes that are {}, expected base64 text", bytes->type_name());
        return "data:application/octet-stream;base64," + bytes->get<std::string>();
      }
      for (const char* name : {"path", "url", "image"})
        if (const Json* source = member(json, name); source != nullptr && source->is_string())
          return picture(*source, name);
    }
    throw error("has {} in \"{}\", expected a path or an object with \"path\", \"url\" or \"bytes\"", json.type_name(),
                key);
  }

  void read_pictures(const Json& value, const char* key) {
    if (value.is_string() && value.get_ref<const std::string&>().empty()) return;
    if (!value.is_array()) {
      row_.images.push_back(picture(value, key));
      return;
    }
    for (const Json& item : value) row_.images.push_back(picture(item, key));
  }

  std::vector<std::string> frames(const Json& video) {
    if (!video.is_array() || video.empty())
      throw error("has a video that is {}, expected a list of its frames' files: videos are not decoded",
                  video.is_array() ? "empty" : video.type_name());
    std::vector<std::string> sources;
    for (const Json& frame : video) sources.push_back(picture(frame, "videos"));
    return sources;
  }

  /// A list of videos, or one.
  void read_videos(const Json& json) {
    if (const Json* videos = member(json, "videos")) {
      if (!videos->is_array()) throw error("has \"videos\" that are {}, expected a list", videos->type_name());
      for (const Json& video : *videos) row_.videos.push_back(frames(video));
    }
    if (const Json* video = member(json, "video")) row_.videos.push_back(frames(*video));
    has_videos_ = !row_.videos.empty();
  }

  void read_turns(const Json& json) {
    const Json* conversations = member(json, "conversations");
    const Json* messages = member(json, "messages");
    const Json* prompt = member(json, "prompt");
    const bool wants_messages = context_.format == RowFormat::kMessages;
    if (context_.format != RowFormat::kAuto && prompt == nullptr &&
        (wants_messages ? messages : conversations) == nullptr)
      throw error("has no \"{}\"", wants_messages ? "messages" : "conversations");
    const Json* turns = conversations != nullptr && !wants_messages ? conversations : messages;
    if (turns != nullptr) {
      if (!turns->is_array()) throw error("has turns that are {}, expected a list", turns->type_name());
      if (turns->empty()) throw error("has an empty conversation");
      for (const Json& turn : *turns) read_turn(turn);
    } else if (prompt != nullptr) {
      if (!prompt->is_string()) throw error("has a \"prompt\" that is {}, expected a string", prompt->type_name());
      add_message("user");
      add_text(prompt->get_ref<const std::string&>());
    } else if (const auto caption = read_caption(json)) {
      add_message("user");
      add_message("assistant");
      add_plain(*caption);
    } else {
      throw error("has none of \"conversations\", \"messages\", \"prompt\" and \"caption\"");
    }
  }

  std::optional<std::string> read_caption(const Json& json) const {
    const Json* caption = member(json, "caption");
    if (caption == nullptr) return text_.caption;
    if (!caption->is_string()) throw error("has a \"caption\" that is {}, expected a string", caption->type_name());
    return caption->get<std::string>();
  }

  void read_turn(const Json& turn) {
    if (!turn.is_object()) throw error("has a turn that is {}, expected an object", turn.type_name());
    const Json* from = member(turn, "from");
    if (from == nullptr) from = member(turn, "role");
    if (from == nullptr || !from->is_string()) throw error("has a turn without \"from\" or \"role\"");
    add_message(role(from->get_ref<const std::string&>()));
    const Json* value = member(turn, "value");
    if (value == nullptr) value = member(turn, "content");
    if (value == nullptr) throw error("has a turn without \"value\" or \"content\"");
    if (value->is_string()) {
      add_text(value->get_ref<const std::string&>());
    } else if (value->is_array()) {
      for (const Json& part : *value) read_part(part);
    } else {
      throw error("has a turn whose content is {}, expected a string or a list of parts", value->type_name());
    }
  }

  std::string role(const std::string& name) const {
    if (name == "human" || name == "user") return "user";
    if (name == "gpt" || name == "assistant" || name == "model" || name == "bot") return "assistant";
    if (name == "system") return "system";
    throw error("has a turn by \"{}\", expected human, user, gpt, assistant or system", name);
  }

  void read_part(const Json& part) {
    if (part.is_string()) return add_text(part.get_ref<const std::string&>());
    const Json* type = part.is_object() ? member(part, "type") : nullptr;
    if (type == nullptr || !type->is_string()) throw error("has a content part without \"type\"");
    const std::string& name = type->get_ref<const std::string&>();
    if (name == "text") {
      const Json* text = member(part, "text");
      if (text == nullptr || !text->is_string()) throw error("has a text part without \"text\"");
      add_text(text->get_ref<const std::string&>());
    } else if (name == "image" || name == "image_url") {
      if (row_.messages.back().role != "user") throw error("has a picture in a turn that is not the user's");
      std::optional<std::string> source;
      for (const char* key : {"image", "image_url", "path", "url", "bytes"})
        if (const Json* value = member(part, key); value != nullptr && !source)
          source = picture(std::string_view(key) == "bytes" ? part : *value, key);
      add_image(std::move(source));
    } else if (name == "video") {
      if (row_.messages.back().role != "user") throw error("has a video in a turn that is not the user's");
      const Json* video = member(part, "video");
      add_video(video != nullptr ? std::optional(frames(*video)) : std::nullopt);
    } else {
      throw error("has a content part of type \"{}\", expected text, image or video", name);
    }
  }

  void add_message(std::string role) { row_.messages.push_back({std::move(role), {}}); }

  void add_image(std::optional<std::string> source) {
    row_.messages.back().parts.push_back({MessagePart::Kind::kImage, ""});
    slots_.push_back(std::move(source));
  }

  void add_video(std::optional<std::vector<std::string>> frames) {
    row_.messages.back().parts.push_back({MessagePart::Kind::kVideo, ""});
    video_slots_.push_back(std::move(frames));
  }

  void add_plain(std::string_view text) {
    if (!text.empty()) row_.messages.back().parts.push_back({MessagePart::Kind::kText, std::string(text)});
  }

  /// Splits a user's text at its tags.
  void add_text(std::string_view text) {
    if (row_.messages.back().role != "user") return add_plain(text);
    while (!text.empty()) {
      size_t at = text.find(kImageTag), length = kImageTag.size();
      std::optional<std::string> source;
      const size_t video = has_videos_ ? text.find(kVideoTag) : std::string_view::npos;
      if (const auto qwen = find_qwen_tag(text); qwen.at < at) {
        at = qwen.at;
        length = qwen.length;
        source = resolve(qwen.path);
      }
      if (std::min(at, video) == std::string_view::npos) break;
      add_plain(text.substr(0, std::min(at, video)));
      if (video < at) {
        add_video(std::nullopt);
        text.remove_prefix(video + kVideoTag.size());
      } else {
        add_image(std::move(source));
        text.remove_prefix(at + length);
      }
      if (text.starts_with("\r\n"))
        text.remove_prefix(2);
      else if (text.starts_with("\n"))
        text.remove_prefix(1);
    }
    add_plain(text);
  }

  struct QwenTag {
    size_t at = std::string_view::npos, length = 0;
    std::string path;
  };

  /// "Picture 1: <img>path</img>"; without the words only when the format is Qwen-VL's.
  QwenTag find_qwen_tag(std::string_view text) const {
    static constexpr std::string_view kOpen = "<img>", kClose = "</img>", kWord = "Picture ";
    for (size_t open = text.find(kOpen); open != std::string_view::npos; open = text.find(kOpen, open + 1)) {
      const size_t close = text.find(kClose, open);
      if (close == std::string_view::npos || close == open + kOpen.size()) continue;
      size_t at = open;
      const size_t word = text.substr(0, open).rfind(kWord);
      if (word != std::string_view::npos) {
        const std::string_view number = text.substr(word + kWord.size(), open - word - kWord.size());
        const size_t digits = number.find_first_not_of("0123456789");
        if (digits != 0 && digits != std::string_view::npos && number.substr(digits) == ": ") at = word;
      }
      if (at == open && context_.format != RowFormat::kQwenVl) continue;
      return {at, close + kClose.size() - at,
              std::string(text.substr(open + kOpen.size(), close - open - kOpen.size()))};
    }
    return {};
  }

  void check_turns() {
    size_t first = 0;
    while (first < row_.messages.size() && row_.messages[first].role == "system") ++first;
    if (first > 1) throw error("has more than one system prompt");
    bool answered = false;
    for (size_t i = first; i < row_.messages.size(); ++i) {
      const std::string& role = row_.messages[i].role;
      if (role == "system") throw error("has a system turn after the first turn");
      if (role != ((i - first) % 2 == 0 ? "user" : "assistant"))
        throw error("has the {}'s turn at place {}, expected the {}'s (turns alternate, the user begins)", role, i + 1,
                    role == "user" ? "assistant" : "user");
      answered = answered || role == "assistant";
    }
    if (first == row_.messages.size()) throw error("has no user turn");
    if (context_.needs_answer && !answered) throw error("has no assistant turn to train on");
  }

  /// Gives every slot its picture or video, or puts those without slots before the first user text.
  void place_pictures() {
    place(video_slots_, row_.videos, MessagePart::Kind::kVideo, "video");
    place(slots_, row_.images, MessagePart::Kind::kImage, "image");
  }

  /// `all` becomes what the slots hold, in their order.
  template <typename Source>
  void place(std::vector<std::optional<Source>>& slots, std::vector<Source>& all, MessagePart::Kind kind,
             const char* name) {
    if (slots.empty()) {
      for (Message& message : row_.messages) {
        if (message.role != "user") continue;
        message.parts.insert(message.parts.begin(), all.size(), {kind, ""});
        return;
      }
      return;
    }
    std::vector<Source> placed;
    size_t used = 0;
    for (auto& source : slots) {
      if (!source && used == all.size()) break;
      placed.push_back(source ? std::move(*source) : all[used++]);
    }
    if (placed.size() != slots.size() || used != all.size())
      throw error("has {} {} tags for {} {}s", slots.size(), name, placed.size() + all.size() - used,
                  kind == MessagePart::Kind::kVideo ? "video" : "picture");
    all = std::move(placed);
  }

  void read_references(const Json& json) {
    const Json* references = member(json, "references");
    if (references == nullptr) return;
    if (references->is_string()) {
      row_.references.push_back(references->get<std::string>());
      return;
    }
    if (!references->is_array())
      throw error("has \"references\" that are {}, expected a list of strings", references->type_name());
    for (const Json& reference : *references) {
      if (!reference.is_string()) throw error("has a reference that is {}, expected a string", reference.type_name());
      row_.references.push_back(reference.get<std::string>());
    }
  }

  void read_objects(const Json& json) {
    const Json* objects = member(json, "objects");
    if (objects == nullptr || !objects->is_object() || !has_placeholders(row_.messages)) return;  // other annotations
    if (const Json* names = member(*objects, "ref")) {
      if (!names->is_array()) throw error("has an objects/ref that is {}, expected a list", names->type_name());
      for (const Json& name : *names) {
        if (!name.is_string()) throw error("has an object's name that is {}, expected a string", name.type_name());
        row_.object_names.push_back(name.get<std::string>());
      }
    }
    const Json* boxes = member(*objects, "bbox");
    if (boxes == nullptr) return;
    if (const Json* type = member(*objects, "bbox_type"); type != nullptr && *type != "real")
      throw error("has boxes of type {}, expected \"real\": pixels of the original picture", type->dump());
    if (!boxes->is_array()) throw error("has an objects/bbox that is {}, expected a list", boxes->type_name());
    const Json* images = member(*objects, "image_id");
    for (const Json& edges : *boxes) {
      const bool four = edges.is_array() && edges.size() == 4 &&
                        std::all_of(edges.begin(), edges.end(), [](const Json& edge) { return edge.is_number(); });
      if (!four) throw error("has a box {}, expected [x1, y1, x2, y2] in pixels", edges.dump());
      const size_t i = row_.boxes.size();
      const Json* image = images != nullptr && images->is_array() && i < images->size() ? &(*images)[i] : nullptr;
      if (image != nullptr && !image->is_number_unsigned())
        throw error("has an image_id {}, expected the number of a picture from 0", image->dump());
      row_.boxes.push_back({edges.get<Box>(), image == nullptr ? 0 : image->get<size_t>()});
    }
  }

  const RowText& text_;
  const RowContext& context_;
  Row row_;
  size_t next_beside_ = 0;                         // of the pictures beside the row, the first that is not spoken for
  std::vector<std::optional<std::string>> slots_;  // one per image part; the picture it brings, if any
  std::vector<std::optional<std::vector<std::string>>> video_slots_;  // the same of videos
  bool has_videos_ = false;                                           // beside the turns
};

}  // namespace

int64_t first_invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i), second = byte(i + 1);
    size_t length = 1;
    bool valid = lead < 0x80;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
      valid = second >> 6 == 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      valid = second >> 6 == 2 && byte(i + 2) >> 6 == 2 && !(lead == 0xE0 && second < 0xA0) &&
              !(lead == 0xED && second > 0x9F);
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      valid = second >> 6 == 2 && byte(i + 2) >> 6 == 2 && byte(i + 3) >> 6 == 2 && !(lead == 0xF0 && second < 0x90) &&
              !(lead == 0xF4 && second > 0x8F);
    }
    if (!valid) return static_cast<int64_t>(i);
    i += length;
  }
  return -1;
}

Row parse_row(const RowText& text, const RowContext& context) {
  return RowReader(text, context).read(parse_json(text, context));
}

std::string parse_row_id(const RowText& text, const RowContext& context) {
  try {
    return read_id(parse_json(text, context), context);
  } catch (const UserError&) {
    return context.place;
  }
}

}  // namespace vlmtune
