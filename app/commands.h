// The subcommands: options as the command line gives them, and a function each that does the work and returns the exit code.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/recipe/recipe.h"

namespace vlmtune {

struct TrainArguments {
  std::string recipe;
  std::vector<std::string> sets;
  std::string resume = "auto";  // auto, none or a checkpoint folder
  bool dry_run = false, print_recipe = false;
};

struct InferArguments {
  std::string recipe, model, adapter, prompt, system, input, output, metrics;
  std::vector<std::string> images, sets;
  std::optional<int64_t> max_new_tokens, top_k, seed;
  std::optional<double> temperature, top_p, repetition_penalty;
  int64_t logprobs = -1;
  bool chat = false, json = false, score = false, print_recipe = false;
};

struct QuantizeArguments {
  std::string recipe, model, output, type;
  std::vector<std::string> sets;
  std::optional<int> bits;
};

struct PruneArguments {
  std::string dir;
  int64_t keep_last = 3, keep_best = 1;
  bool apply = false, json = false;
};

struct ProfileArguments {
  std::string recipe, command, hardware, json, report, compare, peer;
  std::vector<std::string> sets;
  std::optional<double> context_mib;
  bool ablate = false, fit = false;
};

int run_training(const TrainArguments& arguments, Command command);
int run_infer(const InferArguments& arguments);
int run_profile_memory(const ProfileArguments& arguments);
int run_quantize(const QuantizeArguments& arguments);
int run_prune_ckpt(const PruneArguments& arguments);

}  // namespace vlmtune
