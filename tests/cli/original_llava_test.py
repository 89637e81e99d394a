"""LLaVA's own files: what is written in its layout is read back, and is what the usual layout holds."""
import json
import zipfile

import program
import tiny

LORA = {"r": 4, "target_modules": "all-linear", "dropout": 0}


class OriginalLlava(program.Case):
    ROWS = 8

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.language, cls.tower, cls.projector = tiny.write_parts(cls.dir / "parts", cls.model)

    def train(self, command, name, output=(), **sections):
        out = self.dir / f"{self._testMethodName}-{name}"
        recipe = program.training_recipe(self, output={"dir": str(out), **dict(output)}, **sections)
        recipe["train"]["max_steps"] = 3
        recipe["train"]["save_steps"] = 0
        program.run(command, "--recipe", self.write_recipe(f"{out.name}.json", recipe)).expect(0)
        return out / "final"

    def parts(self, **more):
        return {"path": str(self.language), "vision_tower": str(self.tower), **more}

    def answer(self, *options):
        return program.run("infer", *options, "--json", "--image", self.dir / "data/images/0a.png", "--prompt", "the thing",
                           "--max-new-tokens", "12", *program.FULL_PRECISION).expect(0).json()["tokens"]

    def test_a_projector(self):
        usual = self.train("pretrain", "usual", model=self.parts())
        own = self.train("pretrain", "own", model=self.parts(), output={"layout": "llava"})
        self.assertEqual(sorted(file.name for file in own.iterdir()), ["config.json", "mm_projector.bin"])
        self.assertTrue(zipfile.is_zipfile(own / "mm_projector.bin"))
        config = json.loads((own / "config.json").read_text())
        self.assertEqual((config["model_type"], config["mm_projector_type"], config["hidden_size"]), ("llava_llama", "mlp2x_gelu", tiny.HIDDEN))
        read = ["--model", self.language, "--set", f"model.vision_tower={self.tower}", "--set"]
        self.assertEqual(self.answer(*read, f"model.projector={own / 'mm_projector.bin'}"),
                         self.answer(*read, f"model.projector={usual / 'projector.safetensors'}"))

    def test_an_adapter(self):
        parts = self.parts(projector=str(self.projector))
        usual = self.train("lora-finetune", "usual", model=parts, lora=LORA, output={"merge_adapter": True})
        own = self.train("lora-finetune", "own", model=parts, lora=LORA, output={"layout": "llava", "merge_adapter": True})
        self.assertEqual(sorted(file.name for file in own.iterdir()),
                         ["adapter_config.json", "adapter_model.safetensors", "config.json", "non_lora_trainables.bin"])
        names = tiny.read_safetensors(own / "adapter_model.safetensors")
        self.assertIn("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", names)
        self.assertEqual(list(names.values()), list(tiny.read_safetensors(usual / "adapter_model.safetensors").values())[:len(names)])
        expected = self.answer("--model", self.language, "--set", f"model.vision_tower={self.tower}", "--adapter", usual)
        # The adapter's folder says what stands around the language model.
        self.assertEqual(self.answer("--model", self.language, "--adapter", own), expected)
        self.assertEqual(self.answer("--model", own.parent / "merged"), expected)
        self.assertIn("model.mm_projector.0.weight", tiny.read_safetensors(own.parent / "merged/model.safetensors"))

    def test_training_goes_on_from_an_adapter(self):
        first = self.train("lora-finetune", "first", model=self.parts(projector=str(self.projector)), lora=LORA, output={"layout": "llava"})
        rows = self.train("lora-finetune", "second", model={"path": str(self.language)}, lora={**LORA, "init_from": str(first)})
        self.assertTrue((rows / "non_lora_trainables.bin").exists(), "it stays in its layout")
        self.assertNotEqual((rows / "non_lora_trainables.bin").read_bytes(), (first / "non_lora_trainables.bin").read_bytes())
        self.answer("--model", self.language, "--adapter", rows)

    def test_is_refused_for_a_model_in_the_usual_layout(self):
        recipe = program.training_recipe(self, output={"dir": str(self.dir / "refused"), "layout": "llava"})
        result = program.run("pretrain", "--recipe", self.write_recipe("refused.json", recipe)).expect(2)
        self.assertIn("/output/layout", result.err)
        self.assertFalse((self.dir / "refused").exists())


class WhatTrainsIsSaved(program.Case):
    """An adapter holds all that a LoRA run has trained."""
    ROWS = 8

    def test_the_tower(self):
        out = self.dir / "tower"
        recipe = program.training_recipe(self, lora=LORA, freeze={"vision_tower": False}, output={"dir": str(out)})
        recipe["train"]["max_steps"] = 2
        program.run("lora-finetune", "--recipe", self.write_recipe("tower.json", recipe)).expect(0)
        before = tiny.read_safetensors(self.model / "model.safetensors")
        after = tiny.read_safetensors(out / "final/adapter_model.safetensors")
        name = "encoder.layers.0.mlp.fc1.weight"
        self.assertNotEqual(after[f"base_model.model.model.vision_tower.{name}"], before[f"vision_tower.{name}"])


if __name__ == "__main__":
    program.main()
