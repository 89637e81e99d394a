#include "lib/pipeline/answering.h"

#include "lib/base/clock.h"
#include "lib/base/errors.h"
#include "lib/models/config_reader.h"
#include "lib/pipeline/options.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

/// Where the first of `stops` begins in `text`, or npos.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const auto& stop : stops)
    if (!stop.empty()) first = std::min(first, text.find(stop));
  return first;
}

}  // namespace

std::vector<int64_t> stop_ids(const fs::path& model_dir, const Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  const auto add = [&](const ConfigReader& config) {
    if (!config.has("eos_token_id")) return;
    const auto listed = config.is_array("eos_token_id") ? config.integers("eos_token_id")
                                                        : std::vector<int64_t>{config.integer("eos_token_id", -1)};
    ids.insert(ids.end(), listed.begin(), listed.end());
  };
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::exists(model_dir / name)) continue;
    const auto config = ConfigReader::open(model_dir / name);
    add(config);
    add(config.object("text_config"));
    if (!ids.empty()) break;  // generation_config.json has the last word, as in transformers
  }
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  return ids;
}

Answerer::Answerer(const Recipe& recipe, const InputParts& inputs, const VlmModel& model)
    : recipe_(recipe), inputs_(inputs), model_(model) {
  const auto& g = recipe.generation;
  options_.max_new_tokens = g.max_new_tokens;
  options_.sampling = {g.temperature, g.top_p, g.top_k, g.repetition_penalty, static_cast<uint64_t>(g.seed)};
  options_.stop_ids = stop_ids(recipe.model.path, *inputs.tokenizer);
  if (inputs.config.vision)
    for (const auto& token : inputs.config.vision->stop_tokens())
      if (const auto id = inputs.tokenizer->id_of(token)) options_.stop_ids.push_back(*id);
  options_.vocab_limit = inputs.tokenizer->vocab_size();
  options_.all_logits = g.logits == LogitsKept::kAll;
  options_.compute_type = to_scalar_type(recipe.precision.compute);
}

std::vector<Answer> Answerer::run(const PromptBatch& batch, const std::vector<Example>& prompts, KvCache& cache,
                                  const TextCallback& on_text) const {
  auto options = options_;
  options.top_logprobs = top_logprobs;
  std::vector<StreamDecoder> decoders;
  std::vector<Answer> answers(prompts.size());
  std::vector<size_t> shown(prompts.size(), 0);
  for (size_t row = 0; row < prompts.size(); ++row) {
    decoders.emplace_back(inputs_.tokenizer);
    answers[row].prompt_ids = prompts[row].ids;
    answers[row].image_tokens = prompts[row].image_tokens;
  }
  const double begin = now_seconds();
  double first = 0;
  // Text that may be the beginning of a stop string is held back until it is clear that it is not.
  size_t longest_stop = 0;
  for (const auto& stop : recipe_.generation.stop) longest_stop = std::max(longest_stop, stop.size());
  const auto show = [&](size_t row, size_t end) {
    if (end <= shown[row]) return;
    if (on_text) on_text(row, answers[row].text.substr(shown[row], end - shown[row]));
    shown[row] = end;
  };
  const auto results = generate(model_, batch, cache, options, [&](size_t row, int64_t id) {
    if (first == 0) first = now_seconds();
    auto& text = answers[row].text;
    text += decoders[row].push(id);
    const size_t stop = find_stop(text, recipe_.generation.stop);
    if (stop != std::string::npos) {
      text.resize(stop);
      show(row, stop);
      return false;
    }
    show(row, text.size() - std::min(text.size(), longest_stop > 0 ? longest_stop - 1 : 0));
    return true;
  });
  const double end = now_seconds();
  size_t longest = 0;
  for (size_t row = 0; row < prompts.size(); ++row) {
    auto& answer = answers[row];
    if (find_stop(answer.text, recipe_.generation.stop) == std::string::npos) answer.text += decoders[row].flush();
    show(row, answer.text.size());
    answer.generated = results[row];
    longest = std::max(longest, results[row].tokens.size());
    answer.first_token_seconds = (first > 0 ? first : end) - begin;
  }
  for (auto& answer : answers)
    answer.decode_tokens_per_second = longest > 1 && end > first ? static_cast<double>(longest - 1) / (end - first) : 0;
  return answers;
}

std::vector<Answer> Answerer::answer(const std::vector<Example>& prompts, const TextCallback& on_text) const {
  const auto batch = make_batch(prompts, inputs_.pad_id, PaddingSide::kLeft);
  KvCache cache(inputs_.config.text.num_hidden_layers);
  return run({batch.ids, batch.images, batch.left_padding}, prompts, cache, on_text);
}

Answer Answerer::answer_turn(const Example& prompt, KvCache& cache, std::vector<int64_t>& history,
                             const TextCallback& on_text) const {
  // Keep the longest common beginning, but compute at least one token.
  size_t kept = 0;
  const size_t limit = std::min({history.size(), prompt.ids.size() - 1, static_cast<size_t>(cache.length())});
  while (kept < limit && history[kept] == prompt.ids[kept]) ++kept;
  if (!same_frequencies(inputs_.config.text.rope, cache.rope_length, static_cast<int64_t>(prompt.ids.size()))) kept = 0;
  std::vector<Example> rest(1);
  for (size_t i = 0; i < prompt.images.size(); ++i) {
    const auto begin = static_cast<size_t>(prompt.image_starts[i]),
               end = begin + static_cast<size_t>(prompt.image_lengths[i]);
    if (begin < kept && kept < end) kept = begin;  // a picture is computed whole
    if (begin >= kept) rest[0].images.push_back(prompt.images[i]);
  }
  cache.truncate(static_cast<int64_t>(kept));
  rest[0].ids.assign(prompt.ids.begin() + static_cast<std::ptrdiff_t>(kept), prompt.ids.end());
  const auto batch = make_batch(rest, inputs_.pad_id, PaddingSide::kLeft);
  const std::vector<PictureShape> pictures(prompt.images.begin(), prompt.images.end());
  const auto all = torch::tensor(prompt.ids, torch::kLong).unsqueeze(0);
  const auto positions = model_.positions(all, pictures, {}).slice(-1, static_cast<int64_t>(kept));
  auto answer = run({batch.ids, batch.images, {}, positions}, {prompt}, cache, on_text).front();
  history = prompt.ids;
  history.insert(history.end(), answer.generated.tokens.begin(), answer.generated.tokens.end());
  return answer;
}

}  // namespace vlmtune
