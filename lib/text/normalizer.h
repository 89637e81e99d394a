// The "normalizer" of tokenizer.json: rewrites the text before it is cut.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/text/labelled_text.h"
#include "lib/text/regex.h"

namespace vlmtune {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(LabelledText& text) const = 0;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(LabelledText& text) const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

/// NFC, NFD, NFKC, NFKD.
class UnicodeNormalizer : public Normalizer {
 public:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  explicit UnicodeNormalizer(Form form) : form_(form) {}
  void apply(LabelledText& text) const override;

 private:
  std::string normalize(std::string_view text) const;
  Form form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(LabelledText& text) const override;
};

/// Every match of a string or pattern becomes `content`.
class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}
  ReplaceNormalizer(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(LabelledText& text) const override;

 private:
  bool find(std::string_view text, size_t start, size_t& begin, size_t& end) const;
  std::string literal_;
  std::optional<Regex> pattern_;
  std::string content_;
};

/// Puts a string in front of a text that is not empty.
class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(LabelledText& text) const override;

 private:
  std::string prefix_;
};

/// Drops white space at the ends.
class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(LabelledText& text) const override;

 private:
  bool left_, right_;
};

}  // namespace vlmtune
