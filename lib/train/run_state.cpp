#include "lib/train/run_state.h"

#include <nlohmann/json.hpp>

#include "lib/base/errors.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/checkpoint/safetensors.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::json;

void save_run_state(const fs::path& dir, const RunPosition& position, const Optimizer& optimizer,
                    const LossScaler& scaler) {
  std::map<std::string, torch::Tensor> trained;
  for (const auto& t : optimizer.tensors()) trained[t.name] = t.tensor.detach();
  write_safetensors(dir / "trained.safetensors", trained);
  write_safetensors(dir / "optimizer.safetensors", optimizer.state());
  const Json state = {{"step", position.step},
                      {"epoch", position.epoch},
                      {"position", position.position},
                      {"loss_scale", scaler.scale()},
                      {"good_steps", scaler.good_steps()}};
  write_file_atomic(dir / "state.json", state.dump(2) + "\n");
}

RunPosition load_run_state(const fs::path& dir, Optimizer& optimizer, LossScaler& scaler) {
  const torch::NoGradGuard no_grad;
  const auto file = dir / "trained.safetensors";
  const auto trained = Checkpoint::open_file(file);
  if (trained.names().size() != optimizer.tensors().size())
    throw input_error("{}: holds {} trained tensors, the recipe trains {}", file.string(), trained.names().size(),
                      optimizer.tensors().size());
  for (const auto& t : optimizer.tensors()) {
    if (!trained.has(t.name))
      throw input_error("{}: tensor \"{}\", which the recipe trains, is missing", file.string(), t.name);
    const auto values = trained.view(t.name);
    if (values.sizes() != t.tensor.sizes())
      throw input_error("{}: tensor \"{}\" has another shape than in the recipe", file.string(), t.name);
    auto tensor = t.tensor;
    tensor.copy_(values);
  }
  const auto moments = Checkpoint::open_file(dir / "optimizer.safetensors");
  std::map<std::string, torch::Tensor> state;
  for (const auto& name : moments.names()) state[name] = moments.view(name);
  optimizer.load_state(state);
  try {
    const auto json = Json::parse(read_file(dir / "state.json"));
    scaler.restore(json.at("loss_scale"), json.at("good_steps"));
    return {json.at("step"), json.at("epoch"), json.at("position")};
  } catch (const Json::exception& error) {
    throw input_error("{}: is damaged ({})", (dir / "state.json").string(), error.what());
  }
}

}  // namespace vlmtune
