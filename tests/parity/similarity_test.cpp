// The similarity head against transformers' modules and CLIP's loss (scripts/golden/make_similarity.py).
#include "lib/models/similarity.h"

#include "lib/train/similarity.h"
#include "tests/parity/golden.h"

namespace vlmtune::test {
namespace {

std::unique_ptr<VlmModel> model_with_head(const Golden& golden) {
  const auto dir = golden_path("models/" + golden.text("base"));
  auto config = read_vlm_config(dir, std::nullopt, {});
  config.similarity_head = true;
  auto model = std::make_unique<VlmModel>(config);
  auto options = train_everything();
  options.fresh = [](const std::string& name, torch::IntArrayRef shape) {
    return fresh_similarity_tensor(name, shape, torch::kCPU);
  };
  load_weights(*model, {{Checkpoint::open(dir), PartKind::kWhole}}, options);
  return model;
}

TEST(Similarity, LossAndGradients) {
  const Golden golden("similarity");
  const auto model = model_with_head(golden);
  std::map<std::string, Tensor*> tensors;
  model->visit([&](const std::string& name, Tensor& tensor) {
    tensor.requires_grad_();
    tensors[name] = &tensor;
  });
  const std::string head = "model.similarity_head.";
  *tensors.at(head + "text_projection.weight") = golden.tensor("text_projection").requires_grad_();
  *tensors.at(head + "logit_scale") = golden.tensor("logit_scale").requires_grad_();
  const auto read = read_batch(golden, model->config());
  const ModelBatch batch{read.ids, read.labels, read.images, {}};
  const auto pairs = embed_pairs(*model, batch, model->embed(batch.ids, batch.images, torch::kFloat, {}).tokens, {});
  ASSERT_EQ(pairs.count(), 4) << "all rows but those without a picture and with two";
  expect_close(pairs.pictures, golden.tensor("pictures"), 1e-5, "pictures");
  expect_close(pairs.texts, golden.tensor("texts"), 1e-5, "texts");
  const auto loss = contrastive_loss(pairs.pictures, pairs.texts, model->similarity_head().logit_scale);
  EXPECT_NEAR(loss.item<double>(), golden.number("loss"), kLossTolerance * golden.number("loss"));
  loss.backward();
  for (const auto& name : golden.names("grad.")) {
    const bool of_head = name == "logit_scale" || name == "text_projection";
    const auto ours = of_head ? head + name + (name == "logit_scale" ? "" : ".weight")
                              : canonical_tensor_name(name, PartKind::kWhole);
    const auto expected = golden.tensor("grad." + name);
    expect_close(tensors.at(ours)->grad(), expected, kGradientTolerance * expected.abs().max().item<double>(), name);
  }
}

TEST(Similarity, FreshHeadChangesNothing) {
  const Golden golden("similarity");
  const auto model = model_with_head(golden);
  const auto states = torch::randn({3, model->config().text.hidden_size});
  EXPECT_LE(difference(model->similarity_head().embed_texts(states), unit_vectors(states)), 1e-6);
  EXPECT_NEAR(model->similarity_head().logit_scale.exp().item<double>(), 1 / 0.07, 1e-4);
}

}  // namespace
}  // namespace vlmtune::test
