"""The command line: help, recipes, exit codes, what goes to which stream, and what is left behind after an error."""
import json
import re
import resource
import shutil

import program
import tiny

TRAINING = ("pretrain", "lora-finetune")


class CommandLine(program.Case):
    ROWS = 8

    def setUp(self):
        self.out = self.dir / f"out-{self._testMethodName}"

    def train(self, *more, command="lora-finetune", **run_options):
        recipe = program.training_recipe(self, train={"max_steps": 2, "save_steps": 1}, schedule={"warmup_steps": 0})
        return program.run(command, "--recipe", self.write_recipe("recipe.json", recipe), "--set", f"output.dir={self.out}", *more, **run_options)

    def copy_model(self):
        return shutil.copytree(self.model, self.dir / self._testMethodName)

    def expect_error(self, result, code, *words):
        """One sentence on stderr, nothing on stdout, and nothing under a final name."""
        result.expect(code)
        self.assertEqual(result.out, "")
        for word in words:
            self.assertIn(word, result.err)
        error = result.err[result.err.index("error: "):]
        self.assertEqual(error.count("\n"), 1, error)
        self.assertNotIn("frame #", error)
        left = [str(path.relative_to(self.out)) for path in self.out.rglob("*")] if self.out.exists() else []
        self.assertEqual([path for path in left if path.startswith(("final", "merged", "checkpoints/", "report", "memory")) or ".tmp" in path], [])

    # Help and recipes.

    def test_help_has_an_example_that_exists(self):
        everything = program.run("--help").expect(0).out
        for command in (*TRAINING, "infer", "quantize", "prune-ckpt"):
            self.assertIn(command, everything)
            help_text = program.run(command, "--help").expect(0).out
            example = help_text[help_text.index("Example:"):].splitlines()[1].split()
            self.assertEqual(example[:2], ["vlmtune", command])
            if "--recipe" in example:
                recipe = example[example.index("--recipe") + 1]
                program.run(command, "--recipe", recipe, *example[example.index(recipe) + 1:], "--print-recipe", cwd=program.ROOT).expect(0)

    def test_version(self):
        self.assertRegex(program.run("--version").expect(0).out, r"^vlmtune \d+\.\d+\.\d+ \(LibTorch ")

    def test_every_recipe_prints_and_reads_back(self):
        recipes = sorted((program.ROOT / "recipes").glob("*.json"))
        self.assertGreater(len(recipes), 5)
        for recipe in recipes:
            command = "infer" if "infer" in recipe.name else "lora-finetune" if "lora" in recipe.name else "pretrain"
            printed = program.run(command, "--recipe", recipe, "--print-recipe").expect(0)
            self.assertEqual(printed.err, "", recipe.name)
            again = program.run(command, "--recipe", self.write_recipe("printed.json", printed.json()), "--print-recipe").expect(0)
            self.assertEqual(again.out, printed.out, recipe.name)

    def test_set_and_options_reach_the_recipe(self):
        printed = self.train("--set", "optimizer.learning_rate=3e-5", "--set", 'lora.target_modules=["q_proj"]', "--set", "lora.lora_rank=3", "--print-recipe").expect(0).json()
        self.assertEqual((printed["optimizer"]["learning_rate"], printed["lora"]["target_modules"], printed["lora"]["r"]), (3e-5, ["q_proj"], 3))
        printed = program.run("infer", "--model", "M", "--temperature", "0.5", "--seed", 9, "--print-recipe").expect(0).json()
        self.assertEqual((printed["model"]["path"], printed["generation"]["temperature"], printed["generation"]["seed"]), ("M", 0.5, 9))

    # Exit 2: the command line and the recipe.

    def test_usage(self):
        for arguments in ([], ["fly"], ["pretrain", "--fly"], ["infer", "--model", self.model], ["infer", "--prompt", "?"],
                          ["infer", "--model", self.model, "--prompt", "?", "--temperature", -1], ["infer", "--model", self.model, "--score"],
                          ["lora-finetune"], ["lora-finetune", "--recipe", self.dir / "none.json"]):
            result = program.run(*arguments).expect(2)
            self.assertEqual(result.out, "")
            self.assertNotEqual(result.err, "")

    def test_unknown_key(self):
        recipe = program.training_recipe(self, optimizer={"learning_rat": 1})
        result = program.run("lora-finetune", "--recipe", self.write_recipe("misspelt.json", recipe), "--set", f"output.dir={self.out}")
        self.expect_error(result, 2, "misspelt.json", "/optimizer/learning_rat", "learning_rate")
        self.expect_error(self.train("--set", "train.max_step=3"), 2, "--set", "/train/max_step", "max_steps")

    def test_bad_values(self):
        self.expect_error(self.train("--set", "train.max_steps=many"), 2, "/train/max_steps", "many", "integer")
        self.expect_error(self.train("--set", "train.max_steps=0"), 2, "/train/max_steps", "found 0", "at least 1")
        self.expect_error(self.train("--set", "lora.dropout=1"), 2, "/lora/dropout")
        self.expect_error(self.train("--set", "precision.compute=fp23"), 2, "/precision/compute", "fp23", "fp32")
        self.expect_error(self.train("--set", "nonsense"), 2, "--set", "nonsense")

    # Exit 3: what is read.

    def test_missing_model(self):
        nowhere = self.dir / "nowhere"
        self.expect_error(self.train("--set", f"model.path={nowhere}"), 3, str(nowhere))
        self.expect_error(program.run("infer", "--model", nowhere, "--prompt", "?"), 3, str(nowhere))

    def test_damaged_weights(self):
        weights = self.copy_model() / "model.safetensors"
        whole = weights.read_bytes()
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
        for damaged in (whole[:len(whole) * 9 // 10], whole + b"tail", whole[:7], b"", pointer, b"\xff" * 8 + whole[8:]):
            weights.write_bytes(damaged)
            self.expect_error(self.train("--set", f"model.path={weights.parent}"), 3, str(weights))
        weights.unlink()
        self.expect_error(self.train("--set", f"model.path={weights.parent}"), 3, str(weights.parent))

    def test_weights_that_do_not_fit(self):
        model = self.copy_model()
        tensors = tiny.random_weights(1)
        name = "language_model.model.layers.1.mlp.up_proj.weight"
        for tensor in (None, ([2, 2], [0.0] * 4)):
            changed = {**tensors, name: tensor} if tensor else {key: value for key, value in tensors.items() if key != name}
            tiny.write_safetensors(model / "model.safetensors", changed)
            self.expect_error(self.train("--set", f"model.path={model}"), 3, "layers.1.mlp.up_proj.weight")

    def test_damaged_json(self):
        for name in ("config.json", "tokenizer.json", "preprocessor_config.json"):
            model = self.copy_model()
            (model / name).write_text((model / name).read_text()[:-20])
            self.expect_error(self.train("--set", f"model.path={model}"), 3, name)
            shutil.rmtree(model)

    def test_bad_rows_within_and_beyond_the_budget(self):
        folder = shutil.copytree(self.dir / "data", self.dir / "bad")
        png = folder / "images" / "0a.png"
        png.write_bytes(png.read_bytes()[:60])
        (folder / "images" / "1a.png").unlink()
        (folder / "images" / "2a.png").write_text("<html>404</html>")
        data = ["--set", f'data.train=["{folder / "rows.json"}"]', "--set", f"data.image_folder={folder / 'images'}"]
        result = self.train(*data, "--set", "data.bad_sample_budget=0.3")
        self.expect_error(result, 3, "3 of 8 rows", "bad_sample_budget", "rows.json#0", "0a.png", "rows.json#1", "1a.png", "rows.json#2", "2a.png")
        result = self.train(*data, "--set", "data.bad_sample_budget=0.5", "--set", "train.max_steps=4").expect(0)
        for row in range(3):
            self.assertEqual(len(re.findall(rf"warning: .*rows\.json#{row}:", result.err)), 1, result.err)

    def test_infer_names_what_is_missing(self):
        ask = ["infer", "--model", self.model, "--prompt", "?"]
        self.expect_error(program.run(*ask, "--image", self.dir / "no.png"), 3, "no.png")
        self.expect_error(program.run(*ask, "--adapter", self.dir / "no-adapter"), 3, "no-adapter")
        self.expect_error(program.run("infer", "--model", self.model, "--input", self.dir / "no.jsonl"), 3, "no.jsonl")

    # Exit 5: what is written.

    def test_output_that_cannot_be_made(self):
        in_the_way = self.dir / "a-file"
        in_the_way.write_text("")
        self.expect_error(self.train("--set", f"output.dir={in_the_way / 'run'}"), 5, str(in_the_way))
        self.expect_error(program.run("infer", "--model", self.model, "--input", self.rows, "--set", f"data.image_folder={self.dir / 'data/images'}",
                                      "--output", in_the_way / "answers.jsonl"), 5, str(in_the_way))

    def test_full_disk(self):
        """A limit on file sizes stands for it: 8 kB hold the recipe and the metrics, but no checkpoint."""
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        self.expect_error(self.train(preexec_fn=limited, restore_signals=False), 5, "safetensors", "cannot be written")
        self.train().expect(0)
        self.assertTrue((self.out / "final" / "adapter_model.safetensors").exists())

    # Streams.

    def test_training_says_nothing_on_stdout(self):
        for command in TRAINING:
            result = self.train(command=command).expect(0)
            self.assertEqual(result.out, "")
            self.assertNotIn("\r", result.err)  # no bar outside of a terminal
            self.assertNotIn("\x1b", result.err)
            for line in ("rows, 2 optimizer steps", "first sample", "trained", "saved ", "report: "):
                self.assertIn(line, result.err)
            log = (self.out / "log.txt").read_text()
            self.assertIn("saved ", log)
            shutil.rmtree(self.out)

    def test_dry_run(self):
        result = self.train("--dry-run").expect(0)
        self.assertEqual(result.out, "")
        self.assertIn(f"USER: [image: {tiny.IMAGE_TOKENS} tokens]", result.err)
        self.assertRegex(result.err, r"ASSISTANT: \[\[[a-z ]+</s>\]\]")
        self.assertFalse(self.out.exists())

    def test_run_directory(self):
        self.train().expect(0)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                         ["checkpoints", "final", "log.txt", "memory.json", "metrics.jsonl", "recipe.json", "report.html"])
        written = json.loads((self.out / "recipe.json").read_text())
        self.assertEqual(written["output"]["dir"], str(self.out))
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 2])
        self.assertEqual(set(lines[0]), {"step", "epoch", "loss", "learning_rate", "grad_norm", "loss_scale", "samples", "tokens", "label_tokens",
                                         "image_tokens", "step_seconds", "tokens_per_second", "peak_memory_bytes", "resident_bytes"})
        self.assertEqual(json.loads((self.out / "memory.json").read_text())["command"], "lora-finetune")
        self.assertNotIn("http", re.sub(r"http://www\.w3\.org\S*", "", (self.out / "report.html").read_text()))


if __name__ == "__main__":
    program.main()
