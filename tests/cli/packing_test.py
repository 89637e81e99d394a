"""data.packing: several samples in a row, each as if it stood alone."""
import json

import program
import tiny


class Packing(program.Case):
    ROWS = 24

    def recipe(self, packing, rows, accumulation=1, **sections):
        recipe = program.training_recipe(self, lora={"r": 4, "dropout": 0.0}, schedule={"warmup_steps": 0, "type": "constant"}, **sections)
        recipe["train"].update({"max_steps": 3, "per_device_batch_size": rows, "gradient_accumulation_steps": accumulation, "save_steps": 0, "shuffle": False})
        recipe["data"].update({"packing": packing, "max_length": 700, "group_by_modality_length": False})
        return recipe

    def train(self, name, recipe, command="lora-finetune"):
        if command == "pretrain":
            del recipe["lora"]
        run = self.dir / name.replace(" ", "-")
        self.err = program.run(command, "--recipe", self.write_recipe(f"{run.name}.json", recipe), "--set", f"output.dir={run}").expect(0).err
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def test_a_step_is_that_of_its_samples(self):
        for name, command, rows, sections in [("lora", "lora-finetune", 2, {}), ("projector", "pretrain", 2, {}),
                                              ("full checkpointing", "pretrain", 1, {"freeze": {"language_model": False}, "memory": {"checkpointing": "full"}}),
                                              ("selective", "lora-finetune", 3, {"memory": {"checkpointing": "selective", "loss_chunk_tokens": 16}})]:
            with self.subTest(name):
                packed = self.train(f"{name} packed", self.recipe(True, rows, **sections), command)
                samples = packed[0]["samples"]
                self.assertGreater(samples, 2 * rows)
                plain = self.train(f"{name} plain", self.recipe(False, samples, **sections), command)
                for key in ("samples", "tokens", "image_tokens", "label_tokens"):
                    self.assertEqual(packed[0][key], plain[0][key], key)
                for key in ("loss", "grad_norm"):
                    self.assertAlmostEqual(packed[0][key] / plain[0][key], 1, delta=1e-6, msg=key)

    def test_window(self):
        model = self.dir / "windowed"
        tiny.write_model(model)
        config = json.loads((model / "config.json").read_text())
        config["text_config"].update({"model_type": "mistral", "sliding_window": 48})
        tiny.write_json(model / "config.json", config)
        sections = {"model": {"path": str(model)}}
        packed = self.train("window packed", self.recipe(True, 2, **sections))
        plain = self.train("window plain", self.recipe(False, packed[0]["samples"], **sections))
        full = self.train("no window", self.recipe(False, packed[0]["samples"]))
        self.assertAlmostEqual(packed[0]["loss"] / plain[0]["loss"], 1, delta=1e-6)
        self.assertNotAlmostEqual(full[0]["loss"] / plain[0]["loss"], 1, delta=1e-4)

    def test_accumulation_and_epochs(self):
        recipe = self.recipe(True, 1, 2)
        del recipe["train"]["max_steps"]
        recipe["train"].update({"num_train_epochs": 2, "shuffle": True})
        steps = self.train("epochs", recipe)
        self.assertIn(f"{len(steps)} optimizer steps", self.err)
        self.assertEqual(sum(step["samples"] for step in steps), 2 * self.ROWS)
        self.assertLessEqual(max(step["tokens"] for step in steps), 2 * 700)
        self.assertEqual(steps[-1]["epoch"], 2)

    def test_grouping_has_no_effect(self):
        recipe = self.recipe(True, 1)
        recipe["data"]["group_by_modality_length"] = True
        self.train("grouped", recipe)
        self.assertIn("data.group_by_modality_length has no effect with data.packing", self.err)


class TokenBudget(program.Case):
    """train.max_tokens_per_batch: micro-batches by tokens instead of rows."""
    ROWS, TOKENS, LONGEST = 30, 1536, 512

    def recipe(self, **train):
        recipe = program.training_recipe(self, lora={"r": 4, "dropout": 0.1}, schedule={"warmup_steps": 0, "type": "constant"})
        recipe["data"]["max_length"] = self.LONGEST
        del recipe["train"]
        recipe["train"] = {"max_tokens_per_batch": self.TOKENS, "save_steps": 2, **train}
        return recipe

    def run_it(self, name, recipe, *sets):
        run = self.dir / name
        self.err = program.run("lora-finetune", "--recipe", self.write_recipe(f"{name}.json", recipe), "--set", f"output.dir={run}", *sets).expect(0).err
        return run, [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def test_an_epoch_has_every_row_and_a_step_its_budget(self):
        run, steps = self.run_it("epoch", self.recipe(gradient_accumulation_steps=2))
        self.assertIn(f"{len(steps)} optimizer steps of {2 * self.TOKENS} tokens at most", self.err)
        self.assertEqual(sum(step["samples"] for step in steps), self.ROWS)
        self.assertLessEqual(max(step["tokens"] for step in steps), 2 * self.TOKENS)
        self.assertGreater(max(step["samples"] for step in steps), 4)
        predicted = program.run("profile-memory", "--command", "lora-finetune", "--recipe", self.dir / "epoch.json", "--json", "-").expect(0).json()
        measured = json.loads((run / "memory.json").read_text())
        self.assertLessEqual(measured["peak_allocated_bytes"], predicted["peak_allocated_bytes"])
        self.assertGreater(measured["peak_allocated_bytes"], 0.6 * predicted["peak_allocated_bytes"])

    def test_goes_on(self):
        straight, _ = self.run_it("straight", self.recipe(max_steps=5))
        self.run_it("resumed", self.recipe(max_steps=5), "--set", "train.max_steps=2")
        resumed, _ = self.run_it("resumed", self.recipe(max_steps=5))
        self.assertIn("resumed from step 2", self.err)
        self.assertEqual((straight / "final/adapter_model.safetensors").read_bytes(), (resumed / "final/adapter_model.safetensors").read_bytes())

    def test_what_it_cannot_be_with(self):
        for train, sets, words in (({"max_tokens_per_batch": 100}, [], "expected at least data.max_length 512"), ({}, ["data.packing=true"], "beside data.packing"),
                                   ({"global_batch_size": 8}, [], "beside global_batch_size 8"), ({}, ["data.prefetch=lots"], '/data/prefetch: found "lots"')):
            with self.subTest(words):
                result = program.run("lora-finetune", "--recipe", self.write_recipe("bad.json", self.recipe(**train)), *[x for s in sets for x in ("--set", s)]).expect(2)
                self.assertIn(words, result.err)


if __name__ == "__main__":
    program.main()
