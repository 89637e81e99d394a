"""The similarity head: it learns which text belongs to which picture, is written, read, resumed, and scored by retrieval."""
import json
import shutil

import program
import tiny

WORDS = ("hat", "pen", "bus", "fox", "oak", "jug", "key", "zip")


class Similarity(program.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.dir / "pairs"
        folder.mkdir()
        rows = []
        for i, word in enumerate(WORDS):
            tiny.write_png(folder / f"{i}.png", 40, 30, seed=100 + i)
            rows.append({"id": str(i), "image": f"{i}.png", "conversations": [tiny.turn("human", "<image>"), tiny.turn("gpt", word)]})
        tiny.write_json(folder / "rows.json", rows)
        (folder / "questions.jsonl").write_text("".join(
            json.dumps({"id": row["id"], "image": row["image"], "conversations": row["conversations"][:1], "references": [WORDS[i]]}) + "\n"
            for i, row in enumerate(rows)))
        cls.pairs = folder

    def recipe(self, name, steps=60, **sections):
        out = self.dir / f"{self._testMethodName}-{name}"
        recipe = program.training_recipe(self, output={"dir": str(out)}, model={"similarity_head": True})
        recipe["data"] = {"train": [str(self.pairs / "rows.json")], "validation": [str(self.pairs / "rows.json")], "image_folder": str(self.pairs)}
        recipe["train"] = {"max_steps": steps, "per_device_batch_size": 8, "save_steps": 0, "eval_metrics": ["retrieval"], "similarity_weight": 1}
        for section, values in sections.items():
            recipe.setdefault(section, {}).update(values)
        return self.write_recipe(f"{out.name}.json", recipe), out

    def steps(self, out):
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line]

    def scores(self, out, *options):
        metrics = self.dir / "scores.json"
        program.run("infer", *options, "--set", "model.similarity_head=true", "--input", self.pairs / "questions.jsonl", "--set", f"data.image_folder={self.pairs}",
                    "--output", out / "answers.jsonl", "--metrics", metrics, "--max-new-tokens", "2", *program.FULL_PRECISION).expect(0)
        return json.loads(metrics.read_text())

    def test_learns_what_belongs_together(self):
        path, out = self.recipe("run")
        program.run("pretrain", "--recipe", path).expect(0)
        steps, evaluations = self.steps(out)
        self.assertGreater(steps[-1]["similarity"], steps[0]["similarity"])
        final = evaluations[-1]
        self.assertEqual((final["eval_image_to_text_r1"], final["eval_text_to_image_r1"]), (1, 1))
        self.assertIn("Similarity", (out / "report.html").read_text())
        projector = out / "final/projector.safetensors"
        self.assertIn("similarity_head.text_projection.weight", tiny.read_safetensors(projector))
        # The same scores from what was written.
        found = self.scores(out, "--model", self.model, "--set", f"model.projector={projector}", "--set", "model.chat_template=plain")
        for name in ("image_to_text_r1", "image_to_text_r5", "text_to_image_r10"):
            self.assertEqual(found[name], final[f"eval_{name}"])
        self.assertAlmostEqual(found["similarity"], final["eval_similarity"], places=5)
        # Other commands do without the head.
        program.run("infer", "--model", self.model, "--set", f"model.projector={projector}", "--prompt", "a", "--max-new-tokens", "2",
                    *program.FULL_PRECISION).expect(0)

    def test_an_adapter_holds_it(self):
        path, out = self.recipe("lora", steps=30, lora={"r": 4, "target_modules": "all-linear"})
        program.run("lora-finetune", "--recipe", path).expect(0)
        final = self.steps(out)[1][-1]
        found = self.scores(out, "--model", self.model, "--adapter", out / "final")
        self.assertAlmostEqual(found["similarity"], final["eval_similarity"], places=5)
        self.assertEqual(found["image_to_text_r5"], final["eval_image_to_text_r5"])

    def test_a_stopped_run_goes_on(self):
        whole_path, whole = self.recipe("whole", steps=6)
        program.run("pretrain", "--recipe", whole_path).expect(0)
        path, out = self.recipe("parts", steps=6, train={"save_steps": 3})
        program.run("pretrain", "--recipe", path).expect(0)
        shutil.rmtree(max((out / "checkpoints").iterdir()))
        self.assertIn("resumed from step 3", program.run("pretrain", "--recipe", path).expect(0).err)
        self.assertEqual([(step["loss"], step["similarity"]) for step in self.steps(out)[0]],
                         [(step["loss"], step["similarity"]) for step in self.steps(whole)[0]])

    def test_needs_pictures_to_tell_apart(self):
        for sections, named in (({"train": {"per_device_batch_size": 1}}, "per_device_batch_size"), ({"data": {"packing": True}}, "data.packing"),
                                ({"model": {"similarity_head": False}}, "retrieval")):
            path, out = self.recipe("refused", **sections)
            result = program.run("pretrain", "--recipe", path).expect(2)
            self.assertIn(named, result.err)
            self.assertFalse(out.exists())


if __name__ == "__main__":
    program.main()
