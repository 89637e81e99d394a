"""The loss of an optimizer step is the mean over all its supervised tokens, however they are cut into micro-batches."""
import json

import program
import tiny


class Accumulation(program.Case):
    ROWS = 0

    def write_rows(self, *names):
        # "long" trains the three tokens of "ab</s>"; of "short" only "a" is left within 30 tokens.
        questions = {"long": "Say it.", "short": "Say it now"}
        file = self.dir / f"{'-'.join(names)}.json"
        tiny.write_json(file, [{"id": name, "conversations": [tiny.turn("human", questions[name]), tiny.turn("gpt", "ab")]} for name in names])
        return file

    def first_step(self, file, rows, accumulation):
        run = self.dir / f"{file.stem}-{rows}-{accumulation}"
        recipe = program.training_recipe(
            self, lora={"dropout": 0.0}, data={"train": [str(file)], "max_length": 30, "truncation": "cut_text"}, output={"dir": str(run)},
            schedule={"warmup_steps": 0},
            train={"max_steps": 1, "per_device_batch_size": rows, "gradient_accumulation_steps": accumulation, "shuffle": False})
        program.run("lora-finetune", "--recipe", self.write_recipe("recipe.json", recipe)).expect(0)
        return json.loads((run / "metrics.jsonl").read_text().splitlines()[0])

    def test_micro_batches_weigh_by_tokens(self):
        both = self.write_rows("long", "short")
        long, short = (self.first_step(self.write_rows(name), 1, 1) for name in ("long", "short"))
        self.assertEqual((long["label_tokens"], short["label_tokens"]), (3, 1))
        self.assertGreater(abs(long["loss"] - short["loss"]), 1e-2)  # else any weights would do
        apart, together = self.first_step(both, 1, 2), self.first_step(both, 2, 1)
        self.assertEqual((apart["label_tokens"], together["label_tokens"]), (4, 4))
        self.assertEqual((apart["samples"], together["samples"]), (2, 2))
        for key in ("loss", "grad_norm"):
            self.assertAlmostEqual(apart[key] / together[key], 1, delta=1e-6, msg=key)
        self.assertAlmostEqual((3 * long["loss"] + short["loss"]) / 4 / apart["loss"], 1, delta=1e-6)

        scored = program.run("infer", "--model", self.model, *program.FULL_PRECISION, "--input", self.write_rows("long"), "--score").expect(0).json()
        self.assertEqual((scored["id"], scored["label_tokens"]), ("long", 3))
        self.assertAlmostEqual(scored["loss"] / long["loss"], 1, delta=1e-6)

    def test_stages(self):
        file = self.dir / "stages.json"
        tiny.write_json(file, [{"id": str(i), "conversations": [tiny.turn("human", "Say it."), tiny.turn("gpt", "ab")]} for i in range(13)])
        recipe = program.training_recipe(
            self, lora={}, data={"train": [str(file)]}, train={"per_device_batch_size": 1}, schedule={"warmup_steps": 2, "accumulation_stages":
                                                                                                      [{"until_step": 2, "steps": 4}, {"steps": 2}]})
        for key in ("max_steps", "gradient_accumulation_steps"):
            del recipe["train"][key]
        path = self.write_recipe("stages-recipe.json", recipe)
        for epochs, samples in [(1, [4, 4, 2, 2, 1]), (1.5, [4, 4, 2, 2, 1, 2, 2, 2, 2]), (0.4, [4, 4])]:
            run = self.dir / f"stages-{epochs}"
            err = program.run("lora-finetune", "--recipe", path, "--set", f"output.dir={run}", "--set", f"train.num_train_epochs={epochs}").expect(0).err
            self.assertIn(f"{len(samples)} optimizer steps of 4 until step 2, then 2 rows", err)
            steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([step["samples"] for step in steps], samples)
            self.assertEqual(steps[0]["learning_rate"], 0)
            if len(samples) > 2:
                self.assertEqual(max(step["learning_rate"] for step in steps), steps[2]["learning_rate"])

        def peak(*sets):
            return program.run("profile-memory", "--recipe", path, "--json", "-", *[x for pair in sets for x in ("--set", pair)]).expect(0).json()

        self.assertEqual(peak()["phases"], peak("train.gradient_accumulation_steps=4")["phases"])


if __name__ == "__main__":
    program.main()
