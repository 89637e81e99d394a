// Training and inference rows out of JSON files of several dialects, read lazily: one scan finds where rows begin,
// a row is parsed when it is asked for.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/image/boxes.h"
#include "lib/text/chat_template.h"

namespace vlmtune {

/// A box around an object.
struct ObjectBox {
  Box box;           // in pixels of the original picture
  size_t image = 0;  // of the row's pictures
};

/// One conversation with its pictures.
struct Row {
  std::string id;                   // the row's "id", or its place
  std::string place;                // file:line (JSONL) or file#index (JSON array, from 0)
  std::vector<Message> messages;    // [system] user assistant user ... ; image parts in reading order
  std::vector<std::string> images;  // one per image part: a path that can be opened as it is, or a data URI
  std::vector<std::vector<std::string>> videos;  // one per video part: its frames, as images are given
  std::vector<std::string> references;           // right answers, for metrics
  std::vector<std::string> object_names;         // for the placeholders <ref-object> of the texts, in order
  std::vector<ObjectBox> boxes;                  // for the placeholders <bbox>
};

/// A file and how often its rows are seen in an epoch: 2 is twice, 0.25 is another random quarter each epoch.
struct DataFile {
  std::filesystem::path path;
  double weight = 1;
};

/// The dialects. `kAuto` takes each row as it comes, the others refuse rows of another kind.
enum class RowFormat { kAuto, kLlava, kShareGpt, kMessages, kQwenVl };

struct DatasetOptions {
  std::vector<DataFile> files;
  std::filesystem::path image_folder;  // empty: pictures are relative to the data file
  RowFormat format = RowFormat::kAuto;
  bool needs_answer = true;  // false for inference: rows without an assistant turn are fine
};

/// The rows of one or more files, one after the other.
///
/// A file is a JSON array of rows or JSONL, told apart by content; a byte order mark, CRLF and blank lines are fine.
/// A row is an object with one of
///   - "conversations": [{"from": human|user|gpt|assistant|system, "value": text}]          (LLaVA, ShareGPT, Qwen-VL)
///   - "messages": [{"role": user|assistant|system, "content": text or parts}]              (OpenAI, ms-swift, TRL)
///     parts: {"type": "text", "text": ...}, {"type": "image"} with an optional "image", "path", "url" or "image_url"
///   - "prompt": text                                                                       (inference)
///   - "caption": text                                       (the answer to the row's picture, without a question)
/// (the keys of a turn may be mixed), and optionally "system", "id", "references", "image" (a string or list) and "images"
/// (strings or objects with "path", "url" or "bytes" in base64). Unknown keys are ignored.
///
/// "videos": [[frame, frame, ...], ...] are lists of pictures (ms-swift, LLaMA-Factory), "video" is one; files of videos are not decoded. With
/// them, `<video>` in a user's text marks the place of one, as `<image>` does of a picture, and a part may be {"type": "video"}
/// with an optional "video": [frames].
///
/// Rules for pictures and turns; a row that breaks one is an input_error naming its place:
///   - `<image>` in a user's text marks a picture's place; one newline after it belongs to the tag. In other turns it is
///     ordinary text. `Picture N: <img>path</img>` (Qwen-VL) is a tag that brings its picture.
///   - A row with pictures but no tags gets them before the text of its first user turn.
///   - Otherwise there must be as many tags as pictures.
///   - Turns alternate user, assistant, user, ... after at most one system turn; there is at least one user turn, and for
///     training at least one assistant turn.
///   - Bytes that are not UTF-8, lone surrogates, trailing commas and other breaches of JSON are errors with their offset.
///     (Control characters inside strings are let pass.)
/// Pictures are looked for in image_folder, then beside the data file.
///
/// "objects" {"ref": [names], "bbox": [[x1, y1, x2, y2], ...], "image_id": [...]} (ms-swift) fills <ref-object> and <bbox>
/// where texts have them; boxes are in pixels of the original picture, image_id (the first picture if it is not given) says of which.
///
/// A file may also be a webdataset shard (lib/data/tar_index.h), and a path a pattern in braces (expand_braces).
///
/// Thread-safe. Copies share the index: 8 bytes a row; the files are mapped, not read.
class Dataset {
 public:
  /// Scans the files. Errors: input_error naming a file that is missing, empty or no list of rows.
  static Dataset open(const DatasetOptions& options);

  int64_t size() const;

  /// Parses row i. Errors: input_error naming the row.
  Row row(int64_t i) const;

  /// The id of row i, also when the row is bad; its place when it has none.
  std::string row_id(int64_t i) const;

  /// file:line or file#index of row i.
  std::string place(int64_t i) const;

  /// Length of the row's JSON in bytes: what rows are grouped by, known without parsing.
  int64_t row_bytes(int64_t i) const;

  /// Whether the row's JSON has a picture, as far as the scan can tell.
  bool has_image(int64_t i) const;

  /// Files in order with the range of their rows, for weights.
  struct FileRows {
    int64_t first = 0, count = 0;
    double weight = 1;
  };
  std::vector<FileRows> files() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace vlmtune
