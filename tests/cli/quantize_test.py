"""quantize: what it writes is used as the layers quantised while reading are, bit for bit."""
import json
import shutil

import program
import tiny

TYPES = {"nf4": ["--bits", "4"], "int4": ["--bits", "4", "--type", "int4"], "int8": ["--bits", "8"]}
LORA = {"r": 4, "target_modules": "all-linear"}
DISK = {"memory": {"checkpointing": "none", "offload": {"parameters": "disk"}}}


class Quantize(program.Case):
    ROWS = 8

    def quantize(self, name, *more, model=None):
        folder = self.dir / f"{self._testMethodName}-{name}"
        program.run("quantize", "--model", model or self.model, "--output", folder, *more).expect(0)
        return folder

    def losses(self, name, model, output=(), **sections):
        out = self.dir / f"{self._testMethodName}-run-{name}"
        recipe = program.training_recipe(self, model={"path": str(model)}, lora=LORA, train={"max_steps": 3},
                                          output={"dir": str(out), **dict(output)}, **sections)
        result = program.run("lora-finetune", "--recipe", self.write_recipe(f"{out.name}.json", recipe)).expect(0)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line], out, result

    def test_training_on_it_is_training_with_the_recipe(self):
        for name, options in TYPES.items():
            with self.subTest(name):
                folder = self.quantize(name, *options)
                bits = {"bits": 8 if name == "int8" else 4, "type": name}
                from_whole, _, _ = self.losses(f"{name}-whole", self.model, quantization=bits)
                from_file, _, _ = self.losses(f"{name}-file", folder)
                self.assertEqual(len(from_file), 3)
                self.assertEqual(from_file, from_whole)
                again, _, result = self.losses(f"{name}-again", folder, quantization=bits)
                self.assertEqual(again, from_whole)
                self.assertIn("quantization has no effect", result.err)

    def test_is_smaller_and_answers(self):
        for name, options in TYPES.items():
            with self.subTest(name):
                folder = self.quantize(name, *options)
                codes = tiny.read_safetensors(folder / "model.safetensors")["language_model.model.layers.0.self_attn.q_proj.weight"]
                self.assertEqual(len(codes), tiny.HIDDEN ** 2 // (1 if name == "int8" else 2))
                self.assertFalse(list(self.dir.rglob("*.tmp")))
                ask = ["--json", "--image", self.dir / "data/images/0a.png", "--prompt", "the thing", "--max-new-tokens", "8",
                       *program.FULL_PRECISION]
                whole = program.run("infer", "--model", self.model, "--set", f"quantization.bits={8 if name == 'int8' else 4}",
                                    "--set", f"quantization.type={name}", *ask).expect(0).json()
                self.assertEqual(program.run("infer", "--model", folder, *ask).expect(0).json()["tokens"], whole["tokens"])

    def test_a_trained_projector_in_few_bits(self):
        folder = self.quantize("all", "--set", 'quantization.skip_modules=["lm_head"]')
        losses, out, _ = self.losses("all", folder)
        self.assertLess(losses[-1], losses[0] + 1)
        program.run("infer", "--model", folder, "--adapter", out / "final", "--prompt", "a", "--max-new-tokens", "2", *program.FULL_PRECISION).expect(0)

    def test_merging_makes_it_whole(self):
        folder = self.quantize("nf4")
        _, out, _ = self.losses("nf4", folder, output={"merge_adapter": True})
        merged = json.loads((out / "merged/config.json").read_text())
        self.assertNotIn("quantization_config", merged)
        self.assertFalse([name for name in tiny.read_safetensors(out / "merged/model.safetensors") if "quant" in name])
        ask = ["--prompt", "the thing", "--max-new-tokens", "8", "--json", *program.FULL_PRECISION]
        self.assertEqual(program.run("infer", "--model", out / "merged", *ask).expect(0).json()["tokens"],
                         program.run("infer", "--model", folder, "--adapter", out / "final", *ask).expect(0).json()["tokens"])

    def test_codes_come_and_go_with_their_block(self):
        for name, options in TYPES.items():
            with self.subTest(name):
                folder = self.quantize(name, *options)
                kept, kept_out, _ = self.losses(f"{name}-kept", folder)
                streamed, out, _ = self.losses(f"{name}-streamed", folder, output={"merge_adapter": True}, **DISK)
                self.assertEqual(streamed, kept)
                kept_bytes, bytes_ = (json.loads((run / "memory.json").read_text())["by_category"]["weights"] for run in (kept_out, out))
                self.assertLess(bytes_, 0.95 * kept_bytes)
                ask = ["--prompt", "the thing", "--max-new-tokens", "4", "--json", *program.FULL_PRECISION]
                merged = program.run("infer", "--model", out / "merged", *ask).expect(0).json()["tokens"]
                self.assertEqual(program.run("infer", "--model", folder, "--adapter", out / "final", *ask).expect(0).json()["tokens"], merged)
                self.assertEqual(program.run("infer", "--model", folder, "--adapter", out / "final", "--set", "memory.offload.parameters=disk",
                                             *ask).expect(0).json()["tokens"], merged)

    def test_memory_is_foreseen_from_the_config_alone(self):
        for name, options in TYPES.items():
            with self.subTest(name):
                folder = self.quantize(name, *options)
                _, out, _ = self.losses(name, folder)
                measured = json.loads((out / "memory.json").read_text())
                bare = self.dir / f"bare-{name}"
                shutil.copytree(folder, bare)
                (bare / "model.safetensors").unlink()
                step = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
                for model in (folder, bare):
                    predicted = program.run("profile-memory", "--recipe", out / "recipe.json", "--command", "lora-finetune", "--json", "-",
                                            "--set", f"model.path={model}").expect(0).json()
                    self.assertAlmostEqual(predicted["by_category"]["weights"] / measured["by_category"]["weights"], 1, delta=0.02)
                program.run("profile-memory", "--recipe", out / "recipe.json", "--set", f"model.path={bare}", "--ablate").expect(0)

    def test_refusals(self):
        folder = self.quantize("nf4")
        conflict = program.run("infer", "--model", folder, "--prompt", "a", "--set", "quantization.bits=8").expect(2)
        self.assertIn("/quantization/type: found int8", conflict.err)
        self.assertIn(str(folder), conflict.err)
        taken = program.run("quantize", "--model", self.model, "--output", self.model).expect(2)
        self.assertIn("is there already", taken.err)
        self.assertIn("/quantization/bits", program.run("quantize", "--model", self.model, "--output", self.dir / "none", "--set",
                                                        "quantization.bits=16").expect(2).err)
        self.assertFalse((self.dir / "none").exists())
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "gptq"}
        tiny.write_json(folder / "config.json", config)
        self.assertIn("gptq", program.run("infer", "--model", folder, "--prompt", "a").expect(3).err)


if __name__ == "__main__":
    program.main()
