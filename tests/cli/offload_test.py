"""memory.offload: what a run gives up in memory, and that nothing else changes."""
import json
import shutil

import program


class Offload(program.Case):
    def train(self, name, *sets, code=0, command="lora-finetune", **sections):
        run = self.dir / name
        recipe = program.training_recipe(self, output={"dir": str(run)}, train={"max_steps": 3, "per_device_batch_size": 2})
        for section, values in sections.items():
            recipe.setdefault(section, {}).update(values)
        arguments = [x for pair in sets for x in ("--set", pair)]
        return run, program.run(command, "--recipe", self.write_recipe(f"{name}.json", recipe), *arguments).expect(code)

    def lines(self, run):
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]

    def weights(self, run):
        return json.loads((run / "memory.json").read_text())["by_category"]["weights"]

    def test_parameters_streamed_from_disk(self):
        for checkpointing in ("full", "none", "selective"):
            with self.subTest(checkpointing):
                memory = {"checkpointing": checkpointing}
                whole, _ = self.train(f"whole-{checkpointing}", memory=memory)
                streamed, _ = self.train(f"streamed-{checkpointing}", memory={**memory, "offload": {"parameters": "disk"}})
                self.assertEqual(self.lines(whole), self.lines(streamed))
                self.assertEqual((whole / "final/adapter_model.safetensors").read_bytes(), (streamed / "final/adapter_model.safetensors").read_bytes())
                self.assertLess(self.weights(streamed), 0.8 * self.weights(whole))

    def test_a_budget_that_only_streaming_meets(self):
        memory = {"checkpointing": "full", "loss_chunk_tokens": 8}
        peaks = {}
        for place in ("none", "disk"):
            run, _ = self.train(f"peak-{place}", memory={**memory, "offload": {"parameters": place}})
            peaks[place] = json.loads((run / "memory.json").read_text())["peak_allocated_bytes"]
        self.assertLess(peaks["disk"], peaks["none"])
        between = f'memory.budget="{(peaks["disk"] + peaks["none"]) // 2}"'
        _, stopped = self.train("stopped", between, memory=memory, code=4)
        self.assertIn("/memory/budget", stopped.err)
        self.train("within", between, memory={**memory, "offload": {"parameters": "disk"}})

    def test_optimizer_in_backward(self):
        full = {"command": "pretrain", "freeze": {"language_model": False}, "optimizer": {"max_grad_norm": 0},
                "train": {"max_steps": 3, "per_device_batch_size": 2, "gradient_accumulation_steps": 1}}
        apart, _ = self.train("apart", **full)
        within, _ = self.train("within-backward", **full, memory={"optimizer_in_backward": True})
        self.assertEqual((apart / "final/model.safetensors").read_bytes(), (within / "final/model.safetensors").read_bytes())
        self.assertEqual([loss for loss, _ in self.lines(apart)], [loss for loss, _ in self.lines(within)])
        for (_, one), (_, other) in zip(self.lines(apart), self.lines(within)):
            self.assertAlmostEqual(one / other, 1, delta=1e-5)
        gradients = [json.loads((run / "memory.json").read_text())["phases"] for run in (apart, within)]
        self.assertLess(*[next(p["peak_bytes"] for p in phases if p["name"] == "step 2: optimizer") for phases in reversed(gradients)])
        for sets, key in ((["optimizer.max_grad_norm=1"], "max_grad_norm"), (["train.gradient_accumulation_steps=2"], "gradient_accumulation_steps"),
                          (["precision.compute=fp16"], "fp16")):
            _, refused = self.train("refused", *sets, code=2, **full, memory={"optimizer_in_backward": True})
            self.assertIn(key, refused.err)

    def test_bf16_weights_train(self):
        full = {"command": "pretrain", "freeze": {"language_model": False}, "optimizer": {"learning_rate": 1e-3}}
        wide, _ = self.train("wide", **full)
        narrow, _ = self.train("narrow", "precision.trained=bf16", **full)
        self.assertLess(self.weights(narrow), 0.7 * self.weights(wide))
        for (one, _), (other, _) in zip(self.lines(wide), self.lines(narrow)):
            self.assertAlmostEqual(one / other, 1, delta=1e-2)
        self.assertNotEqual(self.lines(wide)[2], self.lines(narrow)[2])

    def test_what_cannot_be(self):
        _, quantised = self.train("quantised", code=2, quantization={"bits": 4}, memory={"offload": {"parameters": "disk"}})
        self.assertIn("/memory/offload/parameters", quantised.err)
        _, idle = self.train("idle", memory={"offload": {"parameters": "cpu"}})
        self.assertIn("memory.offload.parameters: cpu has no effect", idle.err)

    def test_a_device_of_its_own_keeps_them_on_the_host(self):
        deep = self.dir / "deep"  # more layers than the two that are on their way from a file
        deep.mkdir()
        for file in self.model.iterdir():
            if file.suffix != ".safetensors":
                shutil.copy(file, deep)
        config = json.loads((deep / "config.json").read_text())
        config["text_config"]["num_hidden_layers"] = 8
        (deep / "config.json").write_text(json.dumps(config))
        recipe = self.write_recipe("device.json", program.training_recipe(self, model={"path": str(deep)}))
        reports = {place: program.run("profile-memory", "--recipe", recipe, "--command", "lora-finetune", "--hardware", "8gb-gpu", "--json", "-",
                                      "--set", f"memory.offload.parameters={place}").expect(0).json() for place in ("none", "cpu", "disk")}
        moved = program.run("profile-memory", "--recipe", recipe, "--command", "pretrain", "--hardware", "a100-40gb", "--json", "-", "--set", "freeze.language_model=false",
                            "--set", "memory.offload.optimizer=cpu", "--set", "memory.offload.gradients=cpu", "--set", "memory.checkpointing=full",
                            "--set", "memory.offload.activations=cpu").expect(0).json()
        self.assertEqual(moved["by_category"]["optimizer"], 0)
        self.assertGreater(moved["host"]["peak_bytes"], reports["none"]["host"]["peak_bytes"])
        for place in ("cpu", "disk"):
            self.assertLess(reports[place]["by_category"]["weights"], reports["none"]["by_category"]["weights"])
        on_host = [reports[place]["host"]["peak_bytes"] for place in ("none", "disk", "cpu")]
        self.assertEqual(on_host, sorted(set(on_host)))


if __name__ == "__main__":
    program.main()
