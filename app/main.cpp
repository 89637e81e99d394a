// vlmtune: the command line. Options become plain structs; every failure becomes one sentence and an exit code.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/commands.h"
#include "lib/base/errors.h"
#include "lib/base/log.h"
#include "lib/memory/tracking.h"

namespace vlmtune {
namespace {

void add_recipe_options(CLI::App& command, std::string& recipe, std::vector<std::string>& sets, bool& print_recipe) {
  command.add_option("--recipe", recipe, "JSON recipe")->type_name("FILE");
  command.add_option("--set", sets, "Override a key of the recipe, e.g. --set train.learning_rate=1e-4")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_flag("--print-recipe", print_recipe, "Print the fully resolved recipe as JSON and stop");
}

void add_training(CLI::App& app, const char* name, const char* what, const char* example, Command kind,
                  std::function<int()>& run) {
  auto* command = app.add_subcommand(name, what);
  auto arguments = std::make_shared<TrainArguments>();
  add_recipe_options(*command, arguments->recipe, arguments->sets, arguments->print_recipe);
  command
      ->add_option("--resume", arguments->resume,
                   "auto: go on from the newest checkpoint of output.dir; none: start anew; or a checkpoint folder")
      ->type_name("auto|none|DIR")
      ->capture_default_str();
  command->add_flag("--dry-run", arguments->dry_run,
                    "Read everything, check the data, show the first sample, and stop before training");
  command->footer(std::string("Example:\n  vlmtune ") + name + " --recipe " + example + " --set train.max_steps=100");
  command->callback([arguments, kind, &run] { run = [arguments, kind] { return run_training(*arguments, kind); }; });
}

void add_infer(CLI::App& app, std::function<int()>& run) {
  auto* command = app.add_subcommand("infer", "Answer questions about pictures");
  auto a = std::make_shared<InferArguments>();
  add_recipe_options(*command, a->recipe, a->sets, a->print_recipe);
  command->add_option("--model", a->model, "Model folder in the Hugging Face layout")->type_name("DIR");
  command->add_option("--adapter", a->adapter, "PEFT adapter folder")->type_name("DIR");
  command->add_option("--image", a->images, "Picture; repeat for several")->type_name("FILE")->allow_extra_args(false);
  command->add_option("--prompt", a->prompt, "What the user says; <image> marks a picture's place")->type_name("TEXT");
  command->add_option("--system", a->system, "System prompt")->type_name("TEXT");
  command->add_flag("--chat", a->chat, "Talk: one line of standard input is one turn, end of file ends");
  command->add_option("--input", a->input, "Rows to answer, JSON or JSONL")->type_name("FILE");
  command->add_option("--output", a->output, "Answers, one JSON line per row; an interrupted file is continued")
      ->type_name("FILE");
  command->add_option("--metrics", a->metrics, "With --input: scores of the answers against the rows' references")
      ->type_name("FILE.json");
  command->add_flag("--score", a->score,
                    "With --input: the loss of each row's own last answer instead of a new answer");
  command->add_option("--max-new-tokens", a->max_new_tokens, "Longest answer in tokens")->check(CLI::PositiveNumber);
  command->add_option("--temperature", a->temperature, "0: always the likeliest token")->check(CLI::NonNegativeNumber);
  command->add_option("--top-p", a->top_p, "Sample from the likeliest tokens of this total probability")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", a->top_k, "Sample from so many tokens; 0: all")->check(CLI::NonNegativeNumber);
  command->add_option("--repetition-penalty", a->repetition_penalty, "Above 1: avoid what was said")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", a->seed, "Of sampling");
  command->add_flag("--json", a->json, "One JSON document on standard output");
  command->add_option("--logprobs", a->logprobs, "With --json: log-probability of each token and of K alternatives")
      ->type_name("K")
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "Example:\n  vlmtune infer --model llava-1.5-7b-hf --image cat.jpg --prompt 'What is in this picture?'");
  command->callback([a, &run] { run = [a] { return run_infer(*a); }; });
}

void add_profile(CLI::App& app, std::function<int()>& run) {
  auto* command =
      app.add_subcommand("profile-memory", "Say how much memory a recipe takes, without a GPU and without weights");
  auto a = std::make_shared<ProfileArguments>();
  command->add_option("--recipe", a->recipe, "JSON recipe")->type_name("FILE")->required();
  command->add_option("--set", a->sets, "Override a key of the recipe")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--command", a->command, "What the recipe is run with; by default what it looks like")
      ->check(CLI::IsMember({"pretrain", "lora-finetune", "infer"}));
  command
      ->add_option("--hardware", a->hardware, "Device to predict for, instead of the recipe's, e.g. 8gb-gpu, a100-80gb")
      ->type_name("NAME");
  command->add_option("--json", a->json, "Write the JSON document to a file, or to standard output (-)")
      ->type_name("FILE|-");
  command
      ->add_option("--report", a->report, "Write a page to look at: memory over time, the peak by module, every device")
      ->type_name("FILE.html");
  command->add_option("--compare", a->compare, "Print the prediction beside what a finished run measured")
      ->type_name("RUN_DIR");
  command
      ->add_option("--peer", a->peer,
                   "What another stack would need instead: transformers, PEFT and torch.optim with their operations, "
                   "logits and cache")
      ->check(CLI::IsMember({"transformers"}));
  command->add_flag("--ablate", a->ablate, "A table of the techniques, added one by one and removed one by one");
  command->add_flag("--fit", a->fit,
                    "Find the fastest recipe that fits, by the techniques that the recipe leaves open");
  command->add_option("--context-mib", a->context_mib, "Memory of the device's driver context, instead of the table's")
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "Example:\n  vlmtune profile-memory --recipe recipes/llava-1.5-7b-lora.json --hardware a100-80gb --ablate");
  command->callback([a, &run] { run = [a] { return run_profile_memory(*a); }; });
}

void add_quantize(CLI::App& app, std::function<int()>& run) {
  auto* command = app.add_subcommand("quantize", "Write a model folder whose weights are in few bits");
  auto a = std::make_shared<QuantizeArguments>();
  command->add_option("--model", a->model, "Model folder in the Hugging Face layout")->type_name("DIR");
  command->add_option("--output", a->output, "Folder to write, in the same layout")->type_name("DIR")->required();
  command->add_option("--bits", a->bits, "Bits of a weight; 4 unless a recipe says otherwise")
      ->check(CLI::IsMember({4, 8}));
  command->add_option("--type", a->type, "nf4 (as bitsandbytes has it) or int4; int8")
      ->check(CLI::IsMember({"nf4", "int4", "int8"}));
  command->add_option("--recipe", a->recipe, "JSON recipe, for a model that is put together from parts")
      ->type_name("FILE");
  command
      ->add_option("--set", a->sets,
                   "Override a key of the recipe, e.g. --set quantization.skip_modules='[\"lm_head\"]'")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->footer("Example:\n  vlmtune quantize --model llava-1.5-7b-hf --output llava-1.5-7b-nf4");
  command->callback([a, &run] { run = [a] { return run_quantize(*a); }; });
}

void add_prune(CLI::App& app, std::function<int()>& run) {
  auto* command =
      app.add_subcommand("prune-ckpt", "Show which checkpoints of a run would stay and go; delete with --apply");
  auto a = std::make_shared<PruneArguments>();
  command->add_option("DIR", a->dir, "Run directory or its checkpoints folder")->required();
  command->add_option("--keep-last", a->keep_last, "Newest checkpoints to keep; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--keep-best", a->keep_best,
                   "Best checkpoints to keep besides (lowest evaluation loss, else training loss)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--apply", a->apply, "Delete; without it nothing is touched");
  command->add_flag("--json", a->json, "The plan as one JSON document");
  command->footer("Example:\n  vlmtune prune-ckpt runs/demo-lora --keep-last 2 --apply");
  command->callback([a, &run] { run = [a] { return run_prune_ckpt(*a); }; });
}

int dispatch(int argc, char** argv) {
  CLI::App app("Train and run vision-language models in very little memory.", "vlmtune");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("vlmtune ") + VLMTUNE_VERSION + " (LibTorch " + TORCH_VERSION + ")");
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.fallthrough();
  std::function<int()> run;
  add_training(app, "pretrain", "Align a projector with a frozen language model, or train everything",
               "recipes/llava-1.5-7b-pretrain.json", Command::kPretrain, run);
  add_training(app, "lora-finetune", "Fine-tune with LoRA", "recipes/llava-1.5-7b-lora.json", Command::kLoraFinetune,
               run);
  add_infer(app, run);
  add_profile(app, run);
  add_quantize(app, run);
  add_prune(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    app.exit(error, std::cerr, std::cerr);
    return static_cast<int>(ExitCode::kUsage);
  }
  set_log_level(log_level == "debug"     ? LogLevel::kDebug
                : log_level == "warning" ? LogLevel::kWarning
                : log_level == "error"   ? LogLevel::kError
                                         : LogLevel::kInfo);
  track_allocations();
  return run();
}

/// The exit code; whatever was thrown becomes one line on stderr.
int guarded(int argc, char** argv) {
  const auto report = [](ExitCode code, const std::string& message) {
    log_message(LogLevel::kError, message);
    return static_cast<int>(code);
  };
  try {
    return dispatch(argc, argv);
  } catch (const UserError& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kMemory, "out of memory on the host");
  } catch (const c10::Error& error) {
    const std::string what = log_level() == LogLevel::kDebug ? error.what() : error.what_without_backtrace();
    const bool memory =
        what.find("can't allocate memory") != std::string::npos || what.find("out of memory") != std::string::npos;
    return report(memory ? ExitCode::kMemory : ExitCode::kInternal, what);
  } catch (const std::exception& error) {
    return report(ExitCode::kInternal, error.what());
  }
}

}  // namespace
}  // namespace vlmtune

int main(int argc, char** argv) {
  const int code = vlmtune::guarded(argc, argv);
#ifndef __SANITIZE_ADDRESS__  // which looks for leaks at a usual exit
  // All that is ours is closed by now. Taking LibTorch's tables of operators down would cost a tenth of a second.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
#endif
  return code;
}
