// infer: one question, a chat, or a file of rows.
#include <algorithm>
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
#include "lib/evaluate/metrics.h"
#include "lib/pipeline/answering.h"
#include "lib/pipeline/device.h"
#include "lib/pipeline/options.h"
#include "lib/pipeline/outputs.h"
#include "lib/pipeline/retrieval.h"
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

/// The boxes that the answer speaks of, in pixels of the prompt's picture; nothing where it is not clear which picture.
void add_objects(Json& json, const Answer& answer, const Example& prompt, const ExampleBuilder& builder) {
  if (prompt.images.size() != 1) return;
  const auto objects = find_boxes(answer.text, builder.box_frame(prompt.images[0].original));
  for (const auto& [name, box] : objects) {
    Json object = {{"bbox", box}};
    if (!name.empty()) object["ref"] = name;
    json["objects"].push_back(std::move(object));
  }
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
  Row row;
  row.id = "prompt";
  row.place = "--prompt";
  row.images = a.images;
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
  if (a.json) {
    auto json = to_json(answer, session.load_seconds);
    add_objects(json, answer, prompt, session.builder);
    print_line(json);
  } else {
    std::cout << std::endl;
  }
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

/// The answer to each row so far; none where the row failed.
using Texts = std::vector<std::optional<std::string>>;

std::optional<std::string> text_of(const Json& line) {
  return line.contains("error") ? std::nullopt : std::optional(line.value("text", ""));
}

/// The answers of an earlier, interrupted call: the whole lines of `file`; what follows the last newline is cut off.
Texts resume_output(const fs::path& file) {
  Texts done;
  if (!fs::exists(file)) return done;
  const auto text = read_file(file);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object())
      throw input_error("{}: line {} is no answer; give another --output, or remove the file", file.string(),
                        done.size() + 1);
    done.push_back(text_of(line));
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

Dataset open_rows(const InferArguments& a, const Recipe& recipe) {
  DatasetOptions options;
  options.files.push_back({a.input, 1});
  options.image_folder = recipe.data.image_folder.value_or("");
  options.needs_answer = a.score;
  return Dataset::open(options);
}

/// The row's references; none when the row is bad.
std::vector<std::string> references_of(const Dataset& dataset, int64_t row) {
  try {
    return dataset.row(row).references;
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kInput) throw;
    return {};
  }
}

void check_references(const InferArguments& a, const Dataset& dataset) {
  for (int64_t i = 0; i < dataset.size(); ++i)
    if (!references_of(dataset, i).empty()) return;
  throw input_error("{}: no row has \"references\", which --metrics compares the answers with", a.input);
}

void write_scores(const InferArguments& a, const Session& session, const Dataset& dataset, const Texts& texts) {
  std::vector<AnsweredRow> rows;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto references = references_of(dataset, static_cast<int64_t>(i));
    if (texts[i] && !references.empty()) rows.push_back({*texts[i], std::move(references)});
  }
  if (rows.empty()) throw input_error("{}: no row with \"references\" was answered", a.input);
  Json json = {{"rows", rows.size()}, {"failed_rows", std::count(texts.begin(), texts.end(), std::nullopt)}};
  auto scores = compute_metrics(rows);
  if (session.recipe.model.similarity_head)
    for (auto& score : score_retrieval(session.recipe, *session.parts.model, dataset, session.builder))
      scores.push_back(std::move(score));
  for (const auto& [name, score] : scores) json[name] = score;
  write_file_atomic(a.metrics, json.dump(2) + "\n");
  log_info("{}: scores of {} rows", a.metrics, rows.size());
}

int answer_file(const InferArguments& a, const Session& session, const Dataset& dataset) {
  std::ofstream file;
  Texts texts;
  if (!a.output.empty()) {
    texts = resume_output(a.output);
    if (static_cast<int64_t>(texts.size()) > dataset.size())
      throw input_error("{}: holds {} answers for the {} rows of {}; give another --output, or remove the file",
                        a.output, texts.size(), dataset.size(), a.input);
    if (!texts.empty()) log_info("{}: goes on after {} rows", a.output, texts.size());
    file.open(a.output, std::ios::app);
    if (!file) throw io_error("{}: cannot be written", a.output);
  }
  std::ostream& out = a.output.empty() ? std::cout : file;
  ProgressBar progress("answering", "row", dataset.size());
  for (auto begin = static_cast<int64_t>(texts.size()); begin < dataset.size() && interrupt_signal() == 0;) {
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
      }
    }
    if (!prompts.empty()) {
      const auto answers = session.answerer.answer(prompts, nullptr);
      for (size_t k = 0; k < answers.size(); ++k) {
        lines[where[k]].update(to_json(answers[k], session.load_seconds));
        add_objects(lines[where[k]], answers[k], prompts[k], session.builder);
      }
    }
    for (const auto& line : lines) {
      out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
      texts.push_back(text_of(line));
    }
    if (!out.flush()) throw io_error("{}: cannot be written", a.output);
    begin = end;
    progress.update(begin, "");
  }
  if (const int signal = interrupt_signal()) return static_cast<int>(ExitCode::kSignalBase) + signal;
  if (!a.metrics.empty()) write_scores(a, session, dataset, texts);
  const bool failed = std::find(texts.begin(), texts.end(), std::nullopt) != texts.end();
  return static_cast<int>(failed ? ExitCode::kInput : ExitCode::kDone);
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
  if (!a.metrics.empty() && (a.input.empty() || a.score))
    throw usage_error("infer: --metrics needs --input{}", a.score ? " without --score, which makes no answers" : "");
  if (!a.input.empty())
    catch_interrupts();  // answers under way are still written; --prompt and --chat have nothing to finish
  const double begin = now_seconds();
  std::optional<Dataset> rows;
  if (!a.input.empty()) rows = open_rows(a, recipe);
  if (!a.metrics.empty()) check_references(a, *rows);
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
    code = answer_file(a, session, *rows);
  else
    code = a.chat ? chat(a, session) : answer_once(a, session);
  if (recipe.output.dir) {
    fs::create_directories(*recipe.output.dir);
    write_memory_json(fs::path(*recipe.output.dir) / "memory.json", measured_memory(recipe, Command::kInfer));
  }
  return code;
}

}  // namespace vlmtune
