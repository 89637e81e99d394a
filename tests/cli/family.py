"""Training of a family: recomputing, caching, streaming and packing do not change what it learns. `TARGETS` are LoRA's."""
import json

import program


class Family(program.Case):
    def train(self, name, command, **sections):
        """The run's folder and its lines of metrics."""
        recipe = program.training_recipe(self, train={"max_steps": 4}, output={"dir": str(self.dir / name)})
        for section, values in sections.items():
            recipe.setdefault(section, {}).update(values)
        program.run(command, "--recipe", self.write_recipe(f"{name}.json", recipe)).expect(0)
        lines = [json.loads(line) for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]
        return self.dir / name, [line for line in lines if "loss" in line]

    def test_other_ways_to_the_same_losses(self):
        lora = {"r": 4, "target_modules": self.TARGETS}
        _, plain = self.train("plain", "lora-finetune", lora=lora)
        for name, sections in (("recomputed", {"memory": {"checkpointing": "full"}}), ("cached", {"data": {"embedding_cache": str(self.dir / "cache")}}),
                               ("streamed", {"memory": {"offload": {"parameters": "disk"}}})):
            _, lines = self.train(name, "lora-finetune", lora=lora, **sections)
            self.assertEqual([line["loss"] for line in lines], [line["loss"] for line in plain], name)
        one = {"gradient_accumulation_steps": 1, "shuffle": False, "max_steps": 1}
        _, packed = self.train("packed", "lora-finetune", lora=lora, data={"packing": True, "max_length": 2048, "group_by_modality_length": False},
                               schedule={"warmup_steps": 0}, train={"per_device_batch_size": 1, **one})
        self.assertGreater(packed[0]["samples"], 3)
        _, apart = self.train("apart", "lora-finetune", lora=lora, data={"max_length": 2048}, schedule={"warmup_steps": 0},
                              train={"per_device_batch_size": packed[0]["samples"], **one})
        self.assertAlmostEqual(packed[0]["loss"], apart[0]["loss"], delta=1e-5)
        self.assertEqual(packed[0]["label_tokens"], apart[0]["label_tokens"])
