// A config.json seen through typed getters whose errors name the file and the key.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vlmtune {

class ConfigReader {
 public:
  /// Errors: input_error when the file is missing or no JSON object.
  static ConfigReader open(const std::filesystem::path& file);
  static ConfigReader parse(const std::string& text, const std::string& file);
  ~ConfigReader();
  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader(const ConfigReader&);

  bool has(const std::string& key) const;                                    ///< present and not null
  bool mentions(const std::string& key) const;                               ///< present, perhaps null
  ConfigReader object(const std::string& key) const;                         ///< a nested object; empty when absent
  ConfigReader with(const std::string& key, const std::string& text) const;  ///< the same but for this key
  int64_t integer(const std::string& key, int64_t fallback) const;
  double number(const std::string& key, double fallback) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::vector<int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<std::vector<int64_t>> integer_pairs(const std::string& key) const;
  bool is_array(const std::string& key) const;
  /// Errors: input_error naming the first of these keys whose value is no plausible size.
  void check_sizes(std::initializer_list<std::pair<const char*, int64_t>> sizes) const;
  /// "dir/config.json: /text_config/head_dim", for messages.
  std::string place(const std::string& key) const;

 private:
  struct Node;
  explicit ConfigReader(std::shared_ptr<const Node> node);
  template <typename T>
  T get(const std::string& key, const T& fallback, const char* expected) const;
  std::shared_ptr<const Node> node_;
};

}  // namespace vlmtune
