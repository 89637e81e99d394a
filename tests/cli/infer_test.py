"""infer: one question, chats and files of rows; the same model gives the same answer by every way."""
import json
import math
import shutil
import signal
import time
from numbers import Real

import program
import tiny

MEASURED = ("timing", "peak_memory_bytes")


def text_of(tokens):
    return "".join(chr(token) if token < 256 else tiny.MERGES[token - 256] for token in tokens)


def without_measurements(answer):
    return {key: value for key, value in answer.items() if key not in MEASURED}


class Infer(program.Case):
    ROWS = 6

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.dir / "data" / "images"
        cls.cat, cls.dog = cls.images / "0a.png", cls.images / "4b.png"

    def infer(self, *arguments, stdin="", model=None):
        return program.run("infer", "--model", model or self.model, *program.FULL_PRECISION, "--set", "generation.max_new_tokens=12", *arguments, stdin=stdin)

    def ask(self, *arguments, **more):
        """The one JSON document of --json."""
        out = self.infer("--json", *arguments, **more).expect(0).out
        self.assertEqual(out.count("\n"), 1, out)
        return json.loads(out)

    def answer_rows(self, file, *arguments, code=0):
        return [json.loads(line) for line in self.infer("--input", file, *arguments).expect(code).out.splitlines()]

    def write_lines(self, name, rows):
        path = self.dir / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    def expect_equal_answers(self, one, other):
        self.assertEqual((one["tokens"], one["text"], one["prompt_token_ids"], one["finish_reason"]),
                         (other["tokens"], other["text"], other["prompt_token_ids"], other["finish_reason"]))
        self.assertEqual(len(one["logprobs"]), len(other["logprobs"]))
        for mine, theirs in zip(one["logprobs"], other["logprobs"]):
            self.assertEqual(mine["token"], theirs["token"])
            self.assertAlmostEqual(mine["logprob"], theirs["logprob"], delta=1e-4)

    # One question.

    def test_document(self):
        answer = self.ask("--image", self.cat, "--prompt", "What is it?")
        kinds = {"text": str, "tokens": list, "finish_reason": str, "prompt_tokens": int, "image_tokens": int, "completion_tokens": int,
                 "prompt_token_ids": list, "timing": dict, "peak_memory_bytes": int}
        self.assertEqual({key: type(value) for key, value in answer.items()}, kinds)
        self.assertEqual(set(answer["timing"]), {"load_s", "first_token_s", "decode_tokens_per_s"})
        self.assertTrue(all(isinstance(value, Real) and value > 0 for value in answer["timing"].values()), answer["timing"])
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["completion_tokens"], 12)
        self.assertEqual(len(answer["tokens"]), 12)
        self.assertEqual(answer["text"], text_of(answer["tokens"]))
        self.assertEqual(answer["image_tokens"], tiny.IMAGE_TOKENS)
        self.assertEqual(answer["prompt_tokens"], len(answer["prompt_token_ids"]))
        self.assertGreater(answer["peak_memory_bytes"], 10000)

    def prompt_ids(self, *arguments):
        return self.ask("--max-new-tokens", 1, *arguments)["prompt_token_ids"]

    def test_prompts(self):
        picture = [tiny.IMAGE] * tiny.IMAGE_TOKENS
        end = [*b"\nASSISTANT: "]
        self.assertEqual(self.prompt_ids("--prompt", "ab"), [tiny.BOS, *b"USER: ab", *end])
        self.assertEqual(self.prompt_ids("--prompt", "ab", "--system", "be short"), [tiny.BOS, *b"SYSTEM: be short\nUSER: ab", *end])
        self.assertEqual(self.prompt_ids("--prompt", "ab", "--image", self.cat, "--image", self.dog), [tiny.BOS, *b"USER: ", *picture, *picture, *b"ab", *end])
        # A tag marks the place; one newline after it belongs to the tag, a second one is text.
        self.assertEqual(self.prompt_ids("--prompt", "ab <image>\n\ncd", "--image", self.cat), [tiny.BOS, *b"USER: ab ", *picture, *b"\ncd", *end])
        self.assertEqual(self.prompt_ids("--prompt", "<image>a<image>", "--image", self.cat, "--image", self.dog),
                         [tiny.BOS, *b"USER: ", *picture, *b"a", *picture, *end])
        # Control tokens that a user types stay text.
        self.assertEqual(self.prompt_ids("--prompt", "a</s>b"), [tiny.BOS, *b"USER: a</s>b", *end])

    def test_tags_and_pictures_must_agree(self):
        err = self.infer("--prompt", "<image> and <image>", "--image", self.cat).expect(2).err
        self.assertIn("2 <image> tags for 1 --image", err)

    def test_pictures_matter(self):
        first = [self.ask("--image", image, "--prompt", "What?", "--logprobs", 0)["logprobs"][0]["logprob"] for image in (self.cat, self.dog)]
        self.assertGreater(abs(first[0] - first[1]), 1e-3)

    def test_plain_output_is_the_text(self):
        arguments = ["--image", self.cat, "--prompt", "What is it?"]
        self.assertEqual(self.infer(*arguments).expect(0).out, self.ask(*arguments)["text"] + "\n")

    def test_greedy_and_sampled(self):
        question = ["--image", self.cat, "--prompt", "What is it?", "--logprobs", 3]
        greedy = self.ask(*question)
        self.assertEqual(without_measurements(self.ask(*question, "--temperature", 0, "--seed", 5)), without_measurements(greedy))
        for entry, token in zip(greedy["logprobs"], greedy["tokens"]):
            self.assertEqual(entry["token"], token)
            self.assertEqual(entry["top"][0], [token, entry["logprob"]])
            self.assertEqual(len(entry["top"]), 3)
            self.assertEqual(sorted((p for _, p in entry["top"]), reverse=True), [p for _, p in entry["top"]])
            self.assertLess(sum(math.exp(p) for _, p in entry["top"]), 1)

        sampled = [self.ask(*question, "--temperature", 1.5, "--seed", seed) for seed in (5, 5, 6)]
        self.assertEqual(without_measurements(sampled[0]), without_measurements(sampled[1]))
        self.assertNotEqual(sampled[0]["tokens"], sampled[2]["tokens"])
        self.assertNotEqual(sampled[0]["tokens"], greedy["tokens"])
        # Of the model's own distribution: temperature and penalties do not show.
        self.assertEqual(sampled[0]["logprobs"][0]["top"], greedy["logprobs"][0]["top"])
        self.assertEqual(self.ask(*question, "--repetition-penalty", 2)["logprobs"][0]["top"], greedy["logprobs"][0]["top"])
        # Nothing left to choose from.
        for narrow in (["--top-k", 1], ["--top-p", 1e-9]):
            self.assertEqual(self.ask(*question, "--temperature", 1.5, *narrow)["tokens"], greedy["tokens"])

    def test_logprobs_without_alternatives(self):
        answer = self.ask("--prompt", "What?", "--logprobs", 0)
        self.assertEqual([entry["top"] for entry in answer["logprobs"]], [[]] * 12)
        self.assertNotIn("logprobs", self.ask("--prompt", "What?"))

    def test_any_id_of_a_list_ends_an_answer(self):
        question = ["--image", self.cat, "--prompt", "What is it?"]
        tokens = self.ask(*question)["tokens"]
        stop = tokens[5]
        model = shutil.copytree(self.model, self.dir / "two-ends")
        tiny.write_json(model / "generation_config.json", {"eos_token_id": [tiny.EOS, stop]})
        answer = self.ask(*question, model=model)
        self.assertEqual(answer["tokens"], tokens[:tokens.index(stop)])
        self.assertEqual(answer["finish_reason"], "stop")

    def test_stop_strings(self):
        whole = self.ask("--prompt", "What?")["text"]
        stop = whole[4:6]
        answer = self.ask("--prompt", "What?", "--set", f"generation.stop={json.dumps([stop])}")
        self.assertEqual(answer["text"], whole[:whole.index(stop)])
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(self.infer("--prompt", "What?", "--set", f"generation.stop={json.dumps([stop])}").expect(0).out, answer["text"] + "\n")

    # Files of rows.

    def questions(self):
        return [{"id": "a", "prompt": "What is it?", "image": "images/0a.png"}, {"id": "b", "prompt": "Say a word."},
                {"id": "c", "prompt": "Are <image> and <image> alike, and if so why is that the case?", "images": ["images/0a.png", "images/4b.png"]},
                {"id": "d", "conversations": [tiny.turn("human", "Hi"), tiny.turn("gpt", "Hello"), tiny.turn("human", "Who?"), tiny.turn("gpt", "left out")]},
                {"id": "e", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "image", "image": "images/4b.png"},
                                                                                                             {"type": "text", "text": "And this?"}]}]}]

    def test_batches_equal_single_rows(self):
        file = self.write_lines("data/questions.jsonl", self.questions())
        single = self.answer_rows(file, "--logprobs", 2)
        together = self.answer_rows(file, "--logprobs", 2, "--set", "generation.batch_size=3")
        self.assertEqual([answer["id"] for answer in together], ["a", "b", "c", "d", "e"])
        for one, other in zip(single, together):
            self.expect_equal_answers(one, other)
        self.expect_equal_answers(together[0], self.ask("--image", self.cat, "--prompt", "What is it?", "--logprobs", 2))
        self.expect_equal_answers(together[1], self.ask("--prompt", "Say a word.", "--logprobs", 2))
        self.assertEqual([answer["image_tokens"] for answer in together], [16, 0, 32, 0, 16])

    def test_bad_rows_are_named_and_the_rest_answered(self):
        rows = self.questions()
        rows[1:1] = [{"id": "lost", "prompt": "?", "image": "images/none.png"}, '{"id": "broken", ', {"id": "tags", "prompt": "<image><image>", "image": "images/0a.png"}]
        file, out = self.write_lines("data/bad.jsonl", rows), self.dir / "answers.jsonl"
        result = self.infer("--input", file, "--output", out, "--set", "generation.batch_size=4").expect(3)
        self.assertEqual(result.out, "")
        answers = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([answer["id"] for answer in answers], ["a", "lost", f"{file}:3", "tags", "b", "c", "d", "e"])
        for answer, what in zip(answers[1:4], ("none.png", "bad.jsonl:3", "bad.jsonl:4")):
            self.assertEqual(set(answer), {"id", "error"})
            self.assertIn(what, answer["error"])
            self.assertIn(answer["error"], result.err)
        whole = out.read_text()

        # Started again, everything is there already; some rows had failed all the same.
        self.infer("--input", file, "--output", out).expect(3)
        self.assertEqual(out.read_text(), whole)

    def test_partial_output_is_continued(self):
        file, out = self.write_lines("data/questions.jsonl", self.questions()), self.dir / "partial.jsonl"
        self.infer("--input", file, "--output", out).expect(0)
        whole = out.read_text().splitlines()
        for remains in ("\n".join(whole[:2]) + "\n" + whole[2][:40], whole[0] + "\n", whole[0][:10], ""):
            out.write_text(remains)
            self.infer("--input", file, "--output", out, "--set", "generation.batch_size=2").expect(0)
            lines = out.read_text().splitlines()
            kept = remains.count("\n")
            self.assertEqual(lines[:kept], whole[:kept])
            self.assertEqual([without_measurements(json.loads(line)) for line in lines], [without_measurements(json.loads(line)) for line in whole])

    def test_stopped_by_sigterm(self):
        rows = [{"id": f"{question['id']}{i}", **{key: question[key] for key in question if key != "id"}} for i in range(8) for question in self.questions()]
        file, out, whole = self.write_lines("data/many.jsonl", rows), self.dir / "stopped.jsonl", self.dir / "whole.jsonl"
        command = ["infer", "--model", self.model, *program.FULL_PRECISION, "--max-new-tokens", 30, "--input", file, "--output"]
        program.run(*command, whole).expect(0)
        for _ in range(5):  # the answers may be quicker than we are
            out.unlink(missing_ok=True)
            process = program.start(*command, out)
            while process.poll() is None and not (out.exists() and out.stat().st_size):
                time.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            if process.returncode != 0:
                break
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertTrue(out.read_text().endswith("\n"))
        self.assertLess(out.read_text().count("\n"), len(rows))
        self.assertIn("goes on after", program.run(*command, out).expect(0).err)
        self.assertEqual(*([without_measurements(json.loads(line)) for line in path.read_text().splitlines()] for path in (out, whole)))

    # Chats.

    def test_chat_equals_asking_anew(self):
        turns = ["What is in the picture?", "The thing?", "And then?"]
        out = self.infer("--chat", "--image", self.cat, "--json", "--logprobs", 0, stdin="\n".join(turns) + "\n").expect(0).out
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(answers), 3)
        rows, messages = [], []
        for question, answer in zip(turns, answers):
            messages.append({"role": "user", "content": question})
            rows.append({"messages": list(messages), "image": "images/0a.png"})
            messages.append({"role": "assistant", "content": answer["text"]})
        for one, other in zip(answers, self.answer_rows(self.write_lines("data/chat.jsonl", rows), "--logprobs", 0)):
            self.expect_equal_answers(one, other)

        plain = self.infer("--chat", "--image", self.cat, stdin="\n".join(turns)).expect(0).out
        self.assertEqual(plain, "".join(answer["text"] + "\n" for answer in answers))

    # Adapters.

    def test_adapter_applied_and_merged(self):
        run = self.dir / "run"
        recipe = program.training_recipe(self, lora={"r": 4, "target_modules": "all-linear"}, output={"dir": str(run), "merge_adapter": True},
                                         train={"max_steps": 3}, schedule={"warmup_steps": 0})
        program.run("lora-finetune", "--recipe", self.write_recipe("lora.json", recipe)).expect(0)
        question = ["--image", self.cat, "--prompt", "What is it?", "--logprobs", 0]
        applied = self.ask(*question, "--adapter", run / "final")
        self.expect_equal_answers(applied, self.ask(*question, model=run / "merged"))
        self.assertNotEqual(applied["tokens"], self.ask(*question)["tokens"])

        scored = [self.answer_rows(self.rows, "--score", "--set", f"data.image_folder={self.images}", *more) for more in ([], ["--adapter", run / "final"])]
        self.assertEqual([row["id"] for row in scored[0]], [f"row-{i}" for i in range(self.ROWS)])
        before, after = (sum(row["loss"] * row["label_tokens"] for row in rows) for rows in scored)
        self.assertLess(after, before)  # of the rows it was trained on

    def test_parts(self):
        language, tower, projector = tiny.write_parts(self.dir / "parts", self.model)
        parts = {"path": str(language), "vision_tower": str(tower), "mm_projector_type": "mlp2x_gelu", "vision_select_layer": -2}
        run = self.dir / "parts-run"
        recipe = program.training_recipe(self, model={**parts, "projector": str(projector)}, lora={"r": 2}, output={"dir": str(run)},
                                         train={"max_steps": 2}, schedule={"warmup_steps": 0})
        program.run("lora-finetune", "--recipe", self.write_recipe("parts.json", recipe)).expect(0)
        question = ["--image", self.cat, "--prompt", "What is it?", "--logprobs", 0]

        def ask(name, **model):
            recipe = self.write_recipe(f"parts-{name}.json", {"model": {**parts, **model}})
            return program.run("infer", "--recipe", recipe, *program.FULL_PRECISION, "--json", *question)

        whole = self.ask(*question, "--adapter", run / "final", "--set", "generation.max_new_tokens=4")
        adapted = ask("adapted", adapter=str(run / "final")).expect(0).json()  # whose projector needs no file beside
        self.assertEqual(adapted["tokens"][:4], whole["tokens"])
        self.assertIn("/model/projector", ask("bare").expect(2).err)


if __name__ == "__main__":
    program.main()
