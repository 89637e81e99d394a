#include "lib/checkpoint/pickle.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

enum class Kind { kNone, kMark, kNumber, kText, kSequence, kDictionary, kGlobal, kStorage, kTensor };

struct Value;
using Reference = std::shared_ptr<Value>;

struct Value {
  Kind kind = Kind::kNone;
  int depth = 0;  // of nesting
  int64_t number = 0;
  std::string text = {};              // also a global's name
  std::vector<Reference> items = {};  // of a dictionary: key, value, key, value...
  PickledTensor tensor = {};          // of a storage: dtype and name alone
};

constexpr int kDeepest = 32;

struct StorageType {
  const char *name, *dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch.FloatStorage", "F32"},  {"torch.HalfStorage", "F16"}, {"torch.BFloat16Storage", "BF16"},
    {"torch.DoubleStorage", "F64"}, {"torch.LongStorage", "I64"}, {"torch.IntStorage", "I32"},
    {"torch.ShortStorage", "I16"},  {"torch.CharStorage", "I8"},  {"torch.ByteStorage", "U8"},
    {"torch.BoolStorage", "BOOL"},
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Reference run() {
    while (true) {
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') return pop();
      step(op);
    }
  }

 private:
  UserError fail(const std::string& what) const {
    return input_error("{}: its pickle {} at byte {}, which a dictionary of tensors does not", file_, what, at_);
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size() - at_) throw input_error("{}: its pickle ends early: truncated", file_);
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t unsigned_number(size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, take(size).data(), size);  // little-endian, as the machine
    return value;
  }
  std::string line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw fail("has a name without an end");
    const std::string text(take(end - at_));
    take(1);
    return text;
  }

  void push(Value value) {
    for (const auto& item : value.items) value.depth = std::max(value.depth, item->depth + 1);
    if (value.depth > kDeepest) throw fail("nests deeper than 32 levels");
    stack_.push_back(std::make_shared<Value>(std::move(value)));
  }
  void push_number(int64_t number) { push({.kind = Kind::kNumber, .number = number}); }
  Reference pop() {
    if (stack_.empty() || stack_.back()->kind == Kind::kMark) throw fail("takes a value that is not there");
    auto value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<Reference> pop(size_t count) {
    std::vector<Reference> values(count);
    for (size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }
  std::vector<Reference> pop_to_mark() {
    std::vector<Reference> values;
    while (!stack_.empty() && stack_.back()->kind != Kind::kMark) {
      values.insert(values.begin(), stack_.back());
      stack_.pop_back();
    }
    if (stack_.empty()) throw fail("looks for a mark that is not there");
    stack_.pop_back();
    return values;
  }
  void add_to(Kind kind, const std::vector<Reference>& values) {
    if (stack_.empty() || stack_.back()->kind != kind || (kind == Kind::kDictionary && values.size() % 2 != 0))
      throw fail("adds to something else");
    auto& to = *stack_.back();
    for (const auto& value : values) {
      if (value->depth >= kDeepest) throw fail("nests deeper than 32 levels");
      to.depth = std::max(to.depth, value->depth + 1);
      to.items.push_back(value);
    }
  }

  void step(unsigned char op) {
    switch (op) {
      case 0x80:  // PROTO
        take(1);
        break;
      case 'N':
        push({});
        break;
      case '(':
        push({.kind = Kind::kMark});
        break;
      case 0x88:
      case 0x89:
        push_number(op == 0x88);
        break;
      case 'K':
        push_number(static_cast<int64_t>(unsigned_number(1)));
        break;
      case 'M':
        push_number(static_cast<int64_t>(unsigned_number(2)));
        break;
      case 'J':
        push_number(static_cast<int32_t>(unsigned_number(4)));
        break;
      case 0x8a: {  // LONG1
        const size_t size = unsigned_number(1);
        if (size > 8) throw fail("holds an integer of more than 64 bits");
        const uint64_t value = unsigned_number(size);
        const int unused = static_cast<int>(64 - 8 * size);
        push_number(size == 0 ? 0 : static_cast<int64_t>(value << unused) >> unused);
        break;
      }
      case 'X':
        push({.kind = Kind::kText, .text = std::string(take(unsigned_number(4)))});
        break;
      case 'c': {
        const auto module = line();
        push({.kind = Kind::kGlobal, .text = module + "." + line()});
        break;
      }
      case 'q':
      case 'r':
        if (stack_.empty()) throw fail("remembers nothing");
        memory_[unsigned_number(op == 'q' ? 1 : 4)] = stack_.back();
        break;
      case 'h':
      case 'j': {
        const auto found = memory_.find(unsigned_number(op == 'h' ? 1 : 4));
        if (found == memory_.end()) throw fail("recalls what it did not remember");
        stack_.push_back(found->second);
        break;
      }
      case ')':
      case ']':
        push({.kind = Kind::kSequence});
        break;
      case '}':
        push({.kind = Kind::kDictionary});
        break;
      case 't': {
        auto items = pop_to_mark();
        push({.kind = Kind::kSequence, .items = std::move(items)});
        break;
      }
      case 0x85:
      case 0x86:
      case 0x87: {  // TUPLE1 to 3
        auto items = pop(op - 0x84u);
        push({.kind = Kind::kSequence, .items = std::move(items)});
        break;
      }
      case 'a':
      case 'e': {
        const auto values = op == 'a' ? pop(1) : pop_to_mark();
        add_to(Kind::kSequence, values);
        break;
      }
      case 's':
      case 'u': {
        const auto values = op == 's' ? pop(2) : pop_to_mark();
        add_to(Kind::kDictionary, values);
        break;
      }
      case 'b':  // BUILD: attributes, of which a dictionary's are of no use here
        pop();
        break;
      case 'Q':
        push(storage(*pop()));
        break;
      case 'R': {
        const auto arguments = pop(), function = pop();
        push(call(*function, *arguments));
        break;
      }
      default:
        throw fail(fmt::format("has the operation 0x{:02x}", op));
    }
  }

  const Value& item(const Value& sequence, size_t index, Kind kind) const {
    if (sequence.kind != Kind::kSequence || index >= sequence.items.size() || sequence.items[index]->kind != kind)
      throw fail("describes a tensor in another way");
    return *sequence.items[index];
  }

  Value storage(const Value& id) const {  // ("storage", type, name, device, number of elements)
    for (const auto& type : kStorageTypes)
      if (item(id, 1, Kind::kGlobal).text == type.name)
        return {.kind = Kind::kStorage,
                .tensor = {.dtype = type.dtype, .storage = item(id, 2, Kind::kText).text, .shape = {}, .strides = {}}};
    throw fail("holds a " + item(id, 1, Kind::kGlobal).text);
  }

  std::vector<int64_t> sizes(const Value& sequence) const {
    std::vector<int64_t> result;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      result.push_back(item(sequence, i, Kind::kNumber).number);
      if (result.back() < 0) throw fail("has a negative size");
    }
    return result;
  }

  Value call(const Value& function, const Value& arguments) const {
    if (function.kind == Kind::kGlobal && function.text == "collections.OrderedDict")
      return {.kind = Kind::kDictionary};
    if (function.kind == Kind::kGlobal && function.text == "torch._utils._rebuild_parameter")
      return item(arguments, 0, Kind::kTensor);
    if (function.kind != Kind::kGlobal || function.text != "torch._utils._rebuild_tensor_v2")
      throw fail("calls " + (function.kind == Kind::kGlobal ? function.text : "something"));
    Value tensor = item(arguments, 0, Kind::kStorage);
    tensor.kind = Kind::kTensor;
    tensor.tensor.offset = item(arguments, 1, Kind::kNumber).number;
    tensor.tensor.shape = sizes(item(arguments, 2, Kind::kSequence));
    tensor.tensor.strides = sizes(item(arguments, 3, Kind::kSequence));
    if (tensor.tensor.offset < 0 || tensor.tensor.shape.size() != tensor.tensor.strides.size())
      throw fail("describes a tensor in another way");
    return tensor;
  }

  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
  std::vector<Reference> stack_;
  std::map<uint64_t, Reference> memory_;
};

}  // namespace

std::vector<std::pair<std::string, PickledTensor>> read_tensor_pickle(std::string_view bytes, const std::string& file) {
  const auto root = Reader(bytes, file).run();
  if (root->kind != Kind::kDictionary) throw input_error("{}: holds no dictionary of tensors", file);
  std::vector<std::pair<std::string, PickledTensor>> tensors;
  for (size_t i = 0; i < root->items.size(); i += 2) {
    const auto &key = *root->items[i], &value = *root->items[i + 1];
    if (key.kind != Kind::kText || value.kind != Kind::kTensor)
      throw input_error("{}: holds something that is no named tensor{}", file,
                        key.kind == Kind::kText ? fmt::format(" under \"{}\"", key.text) : "");
    tensors.emplace_back(key.text, value.tensor);
  }
  return tensors;
}

}  // namespace vlmtune
