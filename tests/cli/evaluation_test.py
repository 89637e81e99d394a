"""Scores of answers: infer --metrics, and the same during training."""
import json
import signal
import time

import program
import tiny


class Evaluation(program.Case):
    ROWS = 8
    NAMES = ["exact_match", "anls", "vqa_accuracy", "bleu4", "rouge_l", "cider"]

    def command(self, *arguments):
        return ["infer", "--model", self.model, *program.FULL_PRECISION, "--max-new-tokens", 12, *arguments]

    def answers(self, file, *arguments):
        out = program.run(*self.command("--input", file, *arguments)).expect(0).out
        return [json.loads(line)["text"] for line in out.splitlines()]

    def write_lines(self, name, rows):
        path = self.dir / "data" / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def questions(self, count=6):
        return [{"id": str(i), "prompt": f"What is {'<image>' if i % 2 else ''} number {i}?", **({"image": f"images/{i % 2}a.png"} if i % 2 else {})}
                for i in range(count)]

    def with_references(self, name):
        """Rows whose model answers are known: every other one is right, by one of two references."""
        rows = self.questions()
        texts = self.answers(self.write_lines("questions.jsonl", rows))
        for i, (row, text) in enumerate(zip(rows, texts)):
            row["references"] = ["something else", text.upper() + " " if i % 2 == 0 else text[:3]]
        return self.write_lines(name, rows)

    def test_scores(self):
        file, scores = self.with_references("scored.jsonl"), self.dir / "scores.json"
        program.run(*self.command("--input", file, "--metrics", scores)).expect(0)
        written = json.loads(scores.read_text())
        self.assertEqual(list(written), ["rows", "failed_rows", *self.NAMES])
        self.assertEqual((written["rows"], written["failed_rows"]), (6, 0))
        self.assertEqual(written["exact_match"], 0.5)
        self.assertEqual(written["anls"], 0.5)
        self.assertEqual(written["vqa_accuracy"], sum([1 / 6] * 3) / 6)  # one of two people said so
        self.assertTrue(all(0 < written[name] < 1 for name in ("bleu4", "rouge_l")), written)
        self.assertGreater(written["cider"], 1)

    def test_yes_and_no(self):
        rows = [{**row, "references": [("yes", "no")[i % 2]]} for i, row in enumerate(self.questions(4))]
        scores = self.dir / "pope.json"
        program.run(*self.command("--input", self.write_lines("pope.jsonl", rows), "--metrics", scores)).expect(0)
        written = json.loads(scores.read_text())
        # The model never says no.
        self.assertEqual([written[f"pope_{name}"] for name in ("accuracy", "precision", "recall", "yes_ratio")], [0.5, 0.5, 1, 1])

    def test_a_partial_output_is_continued(self):
        file, out = self.with_references("partial.jsonl"), self.dir / "partial-answers.jsonl"
        scores, again = self.dir / "partial.json", self.dir / "partial-again.json"
        program.run(*self.command("--input", file, "--output", out, "--metrics", scores)).expect(0)
        out.write_text("".join(out.read_text().splitlines(keepends=True)[:2]))
        program.run(*self.command("--input", file, "--output", out, "--metrics", again)).expect(0)
        self.assertEqual(again.read_text(), scores.read_text())
        out.write_text(out.read_text() + '{"id": "6", "text": "a"}\n')
        self.assertIn("7 answers for the 6 rows", program.run(*self.command("--input", file, "--output", out)).expect(3).err)
        out.write_text("".join(out.read_text().splitlines(keepends=True)[:6]))
        again.unlink()  # nothing is left to answer
        program.run(*self.command("--input", file, "--output", out, "--metrics", again)).expect(0)
        self.assertEqual(again.read_text(), scores.read_text())

    def test_failed_rows_are_left_out(self):
        rows = [json.loads(line) for line in self.with_references("failing.jsonl").read_text().splitlines()]
        rows.insert(1, {"id": "lost", "prompt": "?", "image": "images/none.png", "references": ["a"]})
        rows.append({"id": "open", "prompt": "Who?"})
        scores = self.dir / "failing.json"
        program.run(*self.command("--input", self.write_lines("failing.jsonl", rows), "--metrics", scores)).expect(3)
        written = json.loads(scores.read_text())
        self.assertEqual((written["rows"], written["failed_rows"], written["exact_match"]), (6, 1, 0.5))

    def test_refusals(self):
        scores, out = self.dir / "none.json", self.dir / "none.jsonl"
        file = self.write_lines("plain.jsonl", self.questions())
        result = program.run(*self.command("--input", file, "--output", out, "--metrics", scores)).expect(3)
        self.assertIn('no row has "references"', result.err)
        self.assertFalse(scores.exists() or out.exists(), "nothing is answered in vain")
        self.assertIn("--input", program.run(*self.command("--prompt", "a", "--metrics", scores)).expect(2).err)
        self.assertIn("--score", program.run(*self.command("--input", file, "--score", "--metrics", scores)).expect(2).err)

    def test_an_interrupted_call_writes_no_scores(self):
        rows = [{**row, "id": str(i), "references": ["a"]} for i in range(40) for row in self.questions()]
        file, out, scores = self.write_lines("many.jsonl", rows), self.dir / "many-answers.jsonl", self.dir / "many.json"
        process = program.start(*self.command("--input", file, "--output", out, "--metrics", scores))
        while process.poll() is None and not (out.exists() and out.stat().st_size):
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertFalse(scores.exists())

    # Training.

    def test_training(self):
        run = self.dir / "run"
        validation = tiny.write_rows(self.dir / "validation", 5, seed=9)
        images = self.dir / "validation" / "images"
        recipe = program.training_recipe(self, lora={"r": 4}, output={"dir": str(run)}, generation={"max_new_tokens": 12, "batch_size": 2},
                                         data={"validation": [str(validation)], "image_folder": str(images)},
                                         train={"max_steps": 6, "eval_steps": 4, "eval_metrics": ["rouge_l", "anls"]})
        recipe["data"]["train"] = [str(validation)]
        program.run("lora-finetune", "--recipe", self.write_recipe("train.json", recipe)).expect(0)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        evaluations = [line for line in lines if "eval_loss" in line]
        self.assertEqual([list(line) for line in evaluations], [["step", "eval_loss", "eval_rouge_l", "eval_anls"]] * 2)
        self.assertEqual([line["step"] for line in evaluations], [4, 6])
        self.assertIn("Evaluation rouge_l", (run / "report.html").read_text())

        # The saved adapter, asked the same questions, has the last scores.
        rows = json.loads(validation.read_text())
        for row in rows:
            row["references"] = [row["conversations"][-1]["value"]]
        file, scores = self.write_lines("asked.jsonl", rows), self.dir / "asked.json"
        program.run(*self.command("--adapter", run / "final", "--input", file, "--metrics", scores, "--set", f"data.image_folder={images}")).expect(0)
        written = json.loads(scores.read_text())
        self.assertEqual((evaluations[-1]["eval_rouge_l"], evaluations[-1]["eval_anls"]), (written["rouge_l"], written["anls"]))

        # References, where rows have them, are what counts.
        for row in rows:
            row["references"] = ["qqqq"]
        recipe["data"]["validation"] = [str(self.write_lines("referenced.jsonl", rows))]
        recipe["output"]["dir"] = str(self.dir / "referenced")
        program.run("lora-finetune", "--recipe", self.write_recipe("referenced.json", recipe)).expect(0)
        last = json.loads((self.dir / "referenced" / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual((last["eval_rouge_l"], last["eval_anls"], last["eval_loss"]), (0, 0, evaluations[-1]["eval_loss"]))

        # Damaged rows and pictures are named and left out.
        broken = json.loads(json.dumps(rows[0]))
        broken["image"] = "broken.png"
        whole = (images / rows[0]["image"]).read_bytes()
        (images / "broken.png").write_bytes(whole[:len(whole) // 2])
        recipe["data"]["validation"] = [str(self.write_lines("damaged.jsonl", [{"id": "none"}, *rows, broken]))]
        recipe["output"]["dir"] = str(self.dir / "damaged")
        said = program.run("lora-finetune", "--recipe", self.write_recipe("damaged.json", recipe)).expect(0).err
        for place in ("damaged.jsonl:1", "broken.png"):
            self.assertRegex(said, f"warning: .*{place}.*; it is left out")
        self.assertEqual(json.loads((self.dir / "damaged" / "metrics.jsonl").read_text().splitlines()[-1]), last)

    def test_recipes(self):
        recipe = program.training_recipe(self, output={"dir": str(self.dir / "refused")})
        for sets, what in ((["train.eval_metrics=[\"bleu\"]"], "bleu4"), (["train.eval_metrics=[\"anls\"]"], "data.validation")):
            result = program.run("pretrain", "--recipe", self.write_recipe("refused.json", recipe), *[x for s in sets for x in ("--set", s)]).expect(2)
            self.assertIn(what, result.err)
        path = self.write_recipe("unused.json", {**recipe, "generation": {"max_new_tokens": 3}})
        self.assertIn("generation has no effect", program.run("pretrain", "--recipe", path, "--dry-run").expect(0).err)


if __name__ == "__main__":
    program.main()
