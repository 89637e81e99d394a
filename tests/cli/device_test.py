"""A device with memory of its own: the test device of tests/device, whose operators are the CPU's, stands for CUDA and Ascend."""
import json
import os
import sys

import program

LIBRARY = sys.argv.pop(2)
EVERYTHING_AWAY = {"optimizer": "cpu", "gradients": "cpu", "activations": "cpu", "parameters": "cpu"}


class Device(program.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["VLMTUNE_NPU_LIBRARY"] = LIBRARY

    def train(self, name, hardware="ascend-910b", command="lora-finetune", code=0, sets=(), **sections):
        run = self.dir / name
        recipe = program.training_recipe(self, output={"dir": str(run)}, train={"max_steps": 4, "save_steps": 2}, lora={"r": 4, "dropout": 0.1})
        if command == "pretrain":
            del recipe["lora"]
        for section, values in sections.items():
            recipe.setdefault(section, {}).update(values)
        recipe["hardware"] = hardware
        self.recipe = self.write_recipe(f"{name}.json", recipe)
        return run, program.run(command, "--recipe", self.recipe, *[x for pair in sets for x in ("--set", pair)]).expect(code)

    def lines(self, run):
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]

    def memory(self, run):
        return json.loads((run / "memory.json").read_text())

    def expect_close(self, one, other):
        for first, second in zip(self.lines(one), self.lines(other), strict=True):
            for a, b in zip(first, second):
                self.assertAlmostEqual(a / b, 1, delta=2e-5)

    def test_training_is_the_cpus(self):
        for name, command, sections in (("lora", "lora-finetune", {}), ("qlora", "lora-finetune", {"quantization": {"bits": 4}}),
                                        ("full", "pretrain", {"freeze": {"language_model": False, "vision_tower": False}, "memory": {"checkpointing": "full"}})):
            with self.subTest(name):
                here, _ = self.train(f"{name}-cpu", "cpu", command, **sections)
                there, _ = self.train(f"{name}-device", command=command, **sections)
                self.expect_close(here, there)

    def test_what_is_offloaded_computes_the_same(self):
        for name, command, sections in (("lora", "lora-finetune", {"output": {"merge_adapter": True}}),
                                              ("full", "pretrain", {"freeze": {"language_model": False}})):
            with self.subTest(name):
                kept, _ = self.train(f"{name}-kept", command=command, memory={"checkpointing": "full"}, **sections)
                away, _ = self.train(f"{name}-away", command=command, memory={"checkpointing": "full", "offload": EVERYTHING_AWAY}, **sections)
                self.assertEqual(self.lines(kept), self.lines(away))
                folder = "merged" if name == "lora" else "final"
                self.assertEqual(*[(run / folder / "model.safetensors").read_bytes() for run in (kept, away)])
                at_rest = [next(phase["peak_bytes"] for phase in self.memory(run)["phases"] if phase["name"] == "save") for run in (kept, away)]
                self.assertLess(at_rest[1], 0.7 * at_rest[0])
                self.assertLess(*[self.memory(run)["peak_allocated_bytes"] for run in (away, kept)])

    def test_weights_come_block_by_block(self):
        for policy in ("none", "selective", "full"):
            kept, _ = self.train(f"kept-{policy}", memory={"checkpointing": policy})
            for place in ("cpu", "disk"):
                with self.subTest(f"{policy}, {place}"):
                    streamed, _ = self.train(f"{place}-{policy}", memory={"checkpointing": policy, "offload": {"parameters": place}})
                    self.assertEqual(self.lines(kept), self.lines(streamed))
                    weights = [self.memory(run)["by_category"]["weights"] for run in (streamed, kept)]
                    self.assertLess(*weights)

    def test_the_devices_own_allocator_is_asked(self):
        run, _ = self.train("statistics", memory={"checkpointing": "full"})
        memory = self.memory(run)
        ours, its = memory["peak_allocated_bytes"], memory["allocator"]["peak_allocated_bytes"]
        self.assertGreaterEqual(its, ours)
        self.assertLess(its, 1.2 * ours)
        self.assertEqual(memory["peak_reserved_bytes"], its)
        self.assertEqual(memory["overhead_bytes"], 100 << 20)

    def test_goes_on_with_everything_offloaded(self):
        sections = {"command": "pretrain", "freeze": {"language_model": False}, "memory": {"checkpointing": "full", "offload": EVERYTHING_AWAY}}
        sections["schedule"] = {"type": "constant"}
        straight, _ = self.train("straight", **sections)
        self.train("resumed", sets=["train.max_steps=2"], **sections)
        resumed, result = self.train("resumed", **sections)
        self.assertIn("resumed from step 2", result.err)
        self.assertEqual((resumed / "final/model.safetensors").read_bytes(), (straight / "final/model.safetensors").read_bytes())

    def test_answers_are_the_cpus(self):
        answers = [program.run("infer", "--model", self.model, *program.FULL_PRECISION, "--json", "--prompt", "What is it?", "--max-new-tokens", "8", *hardware).expect(0).json()["tokens"]
                   for hardware in ((), ("--set", "hardware=ascend-910b"))]
        self.assertEqual(*answers)

    def test_a_missing_device_is_named(self):
        os.environ["VLMTUNE_NPU_LIBRARY"] = "libnowhere.so"
        try:
            _, missing = self.train("missing", code=2)
            self.assertIn("libnowhere.so", missing.err)
        finally:
            os.environ["VLMTUNE_NPU_LIBRARY"] = LIBRARY


if __name__ == "__main__":
    program.main()
