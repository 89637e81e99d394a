#include "lib/pipeline/retrieval.h"

#include "lib/base/log.h"
#include "lib/data/damage.h"
#include "lib/evaluate/retrieval.h"
#include "lib/memory/transfer.h"
#include "lib/models/similarity.h"
#include "lib/pipeline/evaluation.h"
#include "lib/pipeline/options.h"
#include "lib/train/similarity.h"

namespace vlmtune {
namespace {

std::vector<int64_t> supervised_tokens(const Example& example) {
  std::vector<int64_t> tokens;
  std::copy_if(example.labels.begin(), example.labels.end(), std::back_inserter(tokens),
               [](int64_t label) { return label != kIgnoreLabel; });
  return tokens;
}

/// The tokens that training would supervise for each of the row's right answers.
std::vector<std::vector<int64_t>> texts_of(Row row, const ExampleBuilder& builder) {
  std::vector<std::vector<int64_t>> texts;
  for (const auto& answer : right_answers(row)) {
    if (row.messages.back().role == "assistant") row.messages.pop_back();
    row.messages.push_back({.role = "assistant", .parts = {{.text = answer}}});
    Skip skip = Skip::kNone;
    auto tokens = supervised_tokens(builder.measure(row, &skip));
    if (skip == Skip::kNone && !tokens.empty()) texts.push_back(std::move(tokens));
  }
  return texts;
}

}  // namespace

Scores score_retrieval(const Recipe& recipe, const VlmModel& model, const Dataset& dataset,
                       const ExampleBuilder& builder) {
  const torch::NoGradGuard no_grad;
  const auto type = to_scalar_type(recipe.precision.compute);
  std::vector<Tensor> pictures, texts;
  std::vector<int64_t> picture_of;
  ProgressBar progress("embedding", "row", dataset.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<std::vector<int64_t>> tokens;
    std::vector<Example> prompt;
    leaving_out_damage([&] {
      const auto row = dataset.row(i);
      tokens = texts_of(row, builder);
      if (!tokens.empty()) prompt.push_back(builder.build_prompt(row));
    });
    progress.update(i + 1, "");
    if (prompt.empty() || prompt[0].images.size() != 1) continue;
    const auto batch = make_batch(prompt, /*pad_id=*/0, PaddingSide::kRight);
    const auto features = model.encode_images(batch.images, type, {}).tokens;
    picture_of.insert(picture_of.end(), tokens.size(), static_cast<int64_t>(pictures.size()));
    pictures.push_back(to_host(unit_vectors(features.mean(0, /*keepdim=*/false, torch::kFloat))));
    texts.push_back(to_host(embed_texts(model, tokens, type, {})));
  }
  if (pictures.empty()) return {};
  const auto similarities = torch::matmul(torch::stack(pictures), torch::cat(texts).t()).contiguous();
  return retrieval_scores({similarities.data_ptr<float>(), static_cast<size_t>(similarities.numel())}, picture_of);
}

}  // namespace vlmtune
