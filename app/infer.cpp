// infer: one question, a chat, or a file of rows.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "lib/base/clock.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/base/interrupt.h"
#include "lib/base/log.h"
#include "lib/pipeline/answering.h"
#include "lib/pipeline/device.h"
#include "lib/pipeline/outputs.h"
#include "lib/profile/dry_run.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
namespace {

/// Command-line options are shorthands of recipe keys.
std::vector<std::string> as_sets(const InferArguments& a) {
  auto sets = a.sets;
  const auto set = [&](const char* key, const auto& value) {
    sets.push_back(fmt::format("{}={}", key, Json(value).dump()));
  };
  if (!a.model.empty()) set("model.path", a.model);
  if (!a.adapter.empty()) set("model.adapter", a.adapter);
  if (a.max_new_tokens) set("generation.max_new_tokens", *a.max_new_tokens);
  if (a.temperature) set("generation.temperature", *a.temperature);
  if (a.top_p) set("generation.top_p", *a.top_p);
  if (a.top_k) set("generation.top_k", *a.top_k);
  if (a.repetition_penalty) set("generation.repetition_penalty", *a.repetition_penalty);
  if (a.seed) set("generation.seed", *a.seed);
  return sets;
}

Json to_json(const Answer& answer, double load_seconds) {
  Json json = {{"text", answer.text},
               {"tokens", answer.generated.tokens},
               {"finish_reason", answer.generated.stopped ? "stop" : "length"},
               {"prompt_tokens", answer.prompt_ids.size()},
               {"image_tokens", answer.image_tokens},
               {"completion_tokens", answer.generated.tokens.size()},
               {"prompt_token_ids", answer.prompt_ids}};
  if (!answer.generated.logprobs.empty()) {
    json["logprobs"] = Json::array();
    for (const auto& token : answer.generated.logprobs) {
      Json top = Json::array();
      for (const auto& [id, logprob] : token.top) top.push_back({id, logprob});
      json["logprobs"].push_back({{"token", token.id}, {"logprob", token.logprob}, {"top", top}});
    }
  }
  json["timing"] = {{"load_s", load_seconds},
                    {"first_token_s", answer.first_token_seconds},
                    {"decode_tokens_per_s", answer.decode_tokens_per_second}};
  json["peak_memory_bytes"] = memory_accounts().device->window_peak();
  return json;
}

void print_line(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

/// A user turn: `<image>` tags mark places, pictures without a tag come first, and one newline after a tag belongs to it.
Message user_turn(const std::string& prompt, size_t num_images) {
  Message message{"user", {}};
  constexpr std::string_view kTag = "<image>";
  size_t tags = 0;
  for (size_t at = prompt.find(kTag); at != std::string::npos; at = prompt.find(kTag, at + 1)) ++tags;
  if (tags != 0 && tags != num_images)
    throw usage_error("--prompt: has {} <image> tags for {} --image options", tags, num_images);
  if (tags == 0)
    for (size_t i = 0; i < num_images; ++i) message.parts.push_back({MessagePart::Kind::kImage, ""});
  std::string_view rest = prompt;
  for (size_t at; tags != 0 && (at = rest.find(kTag)) != std::string_view::npos;) {
    if (at > 0) message.parts.push_back({MessagePart::Kind::kText, std::string(rest.substr(0, at))});
    message.parts.push_back({MessagePart::Kind::kImage, ""});
    rest.remove_prefix(at + kTag.size());
    if (rest.starts_with('\n')) rest.remove_prefix(1);
  }
  if (!rest.empty()) message.parts.push_back({MessagePart::Kind::kText, std::string(rest)});
  return message;
}

Row first_turn(const InferArguments& a, const std::string& prompt) {
  Row row{.id = "prompt", .place = "--prompt", .messages = {}, .images = a.images, .references = {}};
  if (!a.system.empty()) row.messages.push_back({"system", {{MessagePart::Kind::kText, a.system}}});
  row.messages.push_back(user_turn(prompt, a.images.size()));
  return row;
}

struct Session {
  const Recipe& recipe;
  const InputParts& inputs;
  const ModelParts& parts;
  const ExampleBuilder& builder;
  const Answerer& answerer;
  double load_seconds;
};

int answer_once(const InferArguments& a, const Session& session) {
  const auto prompt = session.builder.build_prompt(first_turn(a, a.prompt));
  const auto answer = session.answerer
                          .answer({prompt},
                                  [&](size_t, const std::string& piece) {
                                    if (!a.json) std::cout << piece << std::flush;
                                  })
                          .front();
  if (a.json)
    print_line(to_json(answer, session.load_seconds));
  else
    std::cout << std::endl;
  log_info("{} prompt tokens ({} of pictures), first token after {:.2f} s, {:.1f} tokens/s", answer.prompt_ids.size(),
           answer.image_tokens, answer.first_token_seconds, answer.decode_tokens_per_second);
  return 0;
}

int chat(const InferArguments& a, const Session& session) {
  KvCache cache(session.inputs.config.text.num_hidden_layers);
  std::vector<int64_t> history;
  std::optional<Row> row;
  for (std::string line; std::getline(std::cin, line);) {
    if (!row)
      row = first_turn(a, line);
    else
      row->messages.push_back(user_turn(line, 0));
    const auto answer = session.answerer.answer_turn(session.builder.build_prompt(*row), cache, history,
                                                     [&](size_t, const std::string& piece) {
                                                       if (!a.json) std::cout << piece << std::flush;
                                                     });
    if (a.json)
      print_line(to_json(answer, session.load_seconds));
    else
      std::cout << std::endl;
    row->messages.push_back({"assistant", {{MessagePart::Kind::kText, answer.text}}});
  }
  return 0;
}

/// Rows that an earlier, interrupted call has dealt with.
struct DoneRows {
  int64_t count = 0, failed = 0;
};

/// Reads the whole lines of `file`; what follows the last newline is cut off.
DoneRows resume_output(const fs::path& file) {
  DoneRows done;
  if (!fs::exists(file)) return done;
  const auto text = read_file(file);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object())
      throw input_error("{}: line {} is no answer; give another --output, or remove the file", file.string(),
                        done.count + 1);
    ++done.count;
    done.failed += line.contains("error");
  }
  if (begin != text.size()) fs::resize_file(file, begin);
  return done;
}

/// Loss of the row's own last answer in nats per token.
Json score(const Session& session, const Row& row) {
  const torch::NoGradGuard no_grad;
  const std::vector<Example> examples{session.builder.build(row)};
  const auto batch = make_batch(examples, session.inputs.pad_id, PaddingSide::kRight);
  auto options = step_options(session.recipe, session.inputs);
  options.mode = {};
  const int64_t labels = label_tokens(batch);
  return {{"loss", batch_loss_sum(*session.parts.model, batch, options).item<double>() / static_cast<double>(labels)},
          {"label_tokens", labels}};
}

int answer_file(const InferArguments& a, const Session& session) {
  catch_interrupts();  // answers under way are still written; --prompt and --chat have nothing to finish
  DatasetOptions options;
  options.files.push_back({a.input, 1});
  options.image_folder = session.recipe.data.image_folder.value_or("");
  options.needs_answer = a.score;
  const auto dataset = Dataset::open(options);
  std::ofstream file;
  DoneRows done;
  if (!a.output.empty()) {
    done = resume_output(a.output);
    if (done.count > 0) log_info("{}: goes on after {} rows", a.output, done.count);
    file.open(a.output, std::ios::app);
    if (!file) throw io_error("{}: cannot be written", a.output);
  }
  std::ostream& out = a.output.empty() ? std::cout : file;
  int64_t failed = done.failed;
  ProgressBar progress("answering", "row", dataset.size());
  for (int64_t begin = done.count; begin < dataset.size() && interrupt_signal() == 0;) {
    const int64_t end = std::min(dataset.size(), begin + session.recipe.generation.batch_size);
    std::vector<Json> lines(static_cast<size_t>(end - begin));
    std::vector<Example> prompts;
    std::vector<size_t> where;
    for (int64_t i = begin; i < end; ++i) {
      auto& line = lines[static_cast<size_t>(i - begin)];
      try {
        const auto row = dataset.row(i);
        line["id"] = row.id;
        if (a.score) {
          line.update(score(session, row));
        } else {
          prompts.push_back(session.builder.build_prompt(row));
          where.push_back(static_cast<size_t>(i - begin));
        }
      } catch (const UserError& error) {
        if (error.code() != ExitCode::kInput) throw;
        line = {{"id", dataset.row_id(i)}, {"error", error.what()}};
        log_warning("{}", error.what());
        ++failed;
      }
    }
    if (!prompts.empty()) {
      const auto answers = session.answerer.answer(prompts, nullptr);
      for (size_t k = 0; k < answers.size(); ++k) lines[where[k]].update(to_json(answers[k], session.load_seconds));
    }
    for (const auto& line : lines) out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    if (!out.flush()) throw io_error("{}: cannot be written", a.output);
    begin = end;
    progress.update(begin, "");
  }
  if (const int signal = interrupt_signal()) return static_cast<int>(ExitCode::kSignalBase) + signal;
  return static_cast<int>(failed > 0 ? ExitCode::kInput : ExitCode::kDone);
}

}  // namespace

int run_infer(const InferArguments& a) {
  const auto recipe =
      load_recipe(a.recipe, Command::kInfer, as_sets(a), {.hardware_dirs = {}, .require_inputs = !a.print_recipe});
  if (a.print_recipe) {
    std::cout << print_recipe(recipe) << std::endl;
    return 0;
  }
  if (!a.chat && a.input.empty() && a.prompt.empty())
    throw usage_error("infer: one of --prompt, --chat and --input is needed");
  if (!a.input.empty() && a.chat) throw usage_error("infer: --input and --chat exclude each other");
  if (a.score && a.input.empty()) throw usage_error("infer: --score needs --input");
  const double begin = now_seconds();
  const auto device = open_device(recipe);
  const auto inputs = assemble_inputs(recipe, Command::kInfer);
  const auto parts = assemble_model(recipe, inputs.config, Command::kInfer, device);
  auto example_options = inputs.example_options(recipe);
  example_options.max_length = inputs.config.text.max_position_embeddings;
  const ExampleBuilder builder(example_options);
  Answerer answerer(recipe, inputs, *parts.model);
  answerer.top_logprobs = a.logprobs;
  const Session session{recipe, inputs, parts, builder, answerer, now_seconds() - begin};
  int code = 0;
  if (!a.input.empty())
    code = answer_file(a, session);
  else
    code = a.chat ? chat(a, session) : answer_once(a, session);
  if (recipe.output.dir) {
    fs::create_directories(*recipe.output.dir);
    write_memory_json(fs::path(*recipe.output.dir) / "memory.json", measured_memory(recipe, Command::kInfer));
  }
  return code;
}

}  // namespace vlmtune
