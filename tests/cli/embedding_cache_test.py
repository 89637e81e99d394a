"""data.embedding_cache: the vision tower runs once a picture, training does without it, and nothing else changes."""
import json
import os
import re
import shutil
import signal
import time

import program
import tiny

HITS = re.compile(r"embedding cache: (\d+) of (\d+) pictures found \((\d+) %\)")


class EmbeddingCache(program.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pictures = len(list((cls.dir / "data" / "images").iterdir()))

    def setUp(self):
        self.runs = 0
        self.cache = self.dir / self._testMethodName

    def recipe(self, cache=True, **sections):
        sections = {"lora": {"r": 4}, **sections}
        recipe = program.training_recipe(self, **sections)
        recipe["train"].update({"max_steps": 4, "save_steps": 0})
        recipe["data"]["validation"] = [str(self.rows)]
        if cache:
            recipe["data"]["embedding_cache"] = str(self.cache)
        return recipe

    def start(self, recipe, command="lora-finetune"):
        self.runs += 1
        run = self.dir / f"{self._testMethodName}-run-{self.runs}"
        return run, program.start(command, "--recipe", self.write_recipe(f"{run.name}.json", recipe), "--set", f"output.dir={run}")

    def train(self, recipe, command="lora-finetune"):
        """Losses and gradient norms of all steps, and the pictures found and looked for."""
        run, process = self.start(recipe, command)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.err, self.run_dir = err, run
        hits = HITS.search(err)
        return [[line.get(key) for key in ("loss", "grad_norm", "eval_loss")] for line in lines], hits and tuple(map(int, hits.groups()[:2]))

    def shards(self):
        return sorted(self.cache.glob("*/*.safetensors"))

    def test_same_losses_from_a_filled_cache(self):
        plain, _ = self.train(self.recipe(cache=False))
        first, hits = self.train(self.recipe())
        self.assertEqual(hits, (0, self.pictures))
        second, hits = self.train(self.recipe())
        self.assertEqual(hits, (self.pictures, self.pictures))
        self.assertIn("(100 %)", self.err)
        self.assertEqual(first, plain)
        self.assertEqual(second, plain)
        self.assertNotIn("vision tower", self.err)  # in the table of what is trained
        stored = [name for shard in self.shards() for name in tiny.read_safetensors(shard)]
        self.assertEqual(len(set(stored)), self.pictures)
        self.assertEqual(len(stored), self.pictures)

    def test_same_losses_in_other_set_ups(self):
        language, tower, projector = tiny.write_parts(self.dir / "parts", self.model)
        for name, command, sections in [("bf16", "lora-finetune", {"precision": {"compute": "bf16", "parameters": "bf16"}}),
                                        ("projector", "pretrain", {}),
                                        ("quantised tower", "lora-finetune", {"quantization": {"bits": 4, "skip_modules": []}}),
                                        ("parts", "lora-finetune", {"model": {"path": str(language), "vision_tower": str(tower), "projector": str(projector)}}),
                                        ("large batches", "lora-finetune", {"train": {"per_device_batch_size": 13, "gradient_accumulation_steps": 1}})]:
            with self.subTest(name):
                plain, _ = self.train(self.recipe(cache=False, **sections), command)
                for found in (0, self.pictures):
                    cached, hits = self.train(self.recipe(**sections), command)
                    self.assertEqual(cached, plain)
                    self.assertEqual(hits, (found, self.pictures))
                    if name == "large batches":
                        break  # the pictures of the first case
                shutil.rmtree(self.cache)

    def test_whole_model_has_its_tower(self):
        recipe = self.recipe(freeze={"language_model": False})
        del recipe["lora"]
        self.train(recipe, "pretrain")
        before, after = (tiny.read_safetensors(folder / "model.safetensors") for folder in (self.model, self.run_dir / "final"))
        self.assertEqual(len(after), len(before))
        tower = {re.sub(r"^vision_tower\.", "vision_tower.vision_model.", name): data for name, data in before.items() if name.startswith("vision_tower.")}
        self.assertEqual({name: after.get(name) for name in tower}, tower)

    def test_damaged_shards_are_computed_again(self):
        plain, _ = self.train(self.recipe())

        def truncate(shard):
            os.truncate(shard, shard.stat().st_size - 10)

        def flip(shard):
            data = bytearray(shard.read_bytes())
            data[-5] ^= 1
            shard.write_bytes(data)

        def rename(shard):
            shard.rename(shard.with_stem("0" * 64))

        for damage in (truncate, flip, rename):
            damage(self.shards()[0])
            losses, hits = self.train(self.recipe())
            self.assertEqual(losses, plain)
            self.assertEqual(hits, (0, self.pictures))
            self.assertEqual(self.err.count("its pictures are computed again"), 1)
            self.assertEqual(self.train(self.recipe())[1], (self.pictures, self.pictures))
            self.assertNotIn("computed again", self.err)

    def test_changed_picture(self):
        self.train(self.recipe())
        picture = self.dir / "data" / "images" / "0a.png"
        before = picture.read_bytes()
        try:
            tiny.write_png(picture, 20, 30, 4711)
            losses, hits = self.train(self.recipe())
            self.assertEqual(hits, (self.pictures - 1, self.pictures))
            self.assertEqual(losses, self.train(self.recipe(cache=False))[0])
        finally:
            picture.write_bytes(before)
        self.assertEqual(self.train(self.recipe())[1], (self.pictures, self.pictures))

    def test_another_tower_or_preprocessing(self):
        self.train(self.recipe())
        other = shutil.copytree(self.model, self.dir / "other-model")
        data = bytearray((other / "model.safetensors").read_bytes())
        at = data.find(tiny.read_safetensors(self.model / "model.safetensors")["vision_tower.encoder.layers.1.mlp.fc1.weight"])
        data[at + 402] ^= 0x10  # one weight in the middle of a matrix
        (other / "model.safetensors").write_bytes(data)
        changed = self.recipe(model={"path": str(other)})
        self.assertEqual(self.train(changed)[1], (0, self.pictures))
        self.assertEqual(self.train(changed)[1], (self.pictures, self.pictures))

        (other / "model.safetensors").write_bytes((self.model / "model.safetensors").read_bytes())
        self.assertEqual(self.train(changed)[1], (self.pictures, self.pictures))  # the tower's bytes count, not its place
        for sections in ({"image": {"aspect_ratio": "pad"}}, {"precision": {"compute": "bf16"}}, {"model": {"path": str(other), "vision_select_layer": -1}}):
            self.assertEqual(self.train(self.recipe(**sections))[1], (0, self.pictures), sections)
        self.assertEqual(self.train(self.recipe())[1], (self.pictures, self.pictures))

    def test_damaged_picture_is_skipped_as_without_a_cache(self):
        rows = json.loads(self.rows.read_text())
        (self.dir / "data" / "images" / "broken.png").write_bytes((self.dir / "data" / "images" / "0a.png").read_bytes()[:200])
        rows[1]["image"] = "broken.png"
        file = self.dir / "data" / "broken.json"
        tiny.write_json(file, rows)
        ends = []
        for cache in (False, True, True):
            recipe = self.recipe(cache=cache)
            recipe["data"].update({"train": [str(file)], "bad_sample_budget": 0.1})
            recipe["train"]["max_steps"] = 8
            ends.append(self.train(recipe)[0])
            self.assertRegex(self.err, r"skipped: .*broken\.png.*")
        self.assertEqual(ends[1], ends[0])
        self.assertEqual(ends[2], ends[0])
        (self.dir / "data" / "images" / "broken.png").unlink()

    def many_pictures(self, count):
        folder = self.dir / self._testMethodName / "many"
        folder.mkdir(parents=True)
        rows = []
        for i in range(count):
            tiny.write_png(folder / f"{i}.png", 120, 100, i)
            rows.append({"id": str(i), "image": f"{i}.png", "conversations": [tiny.turn("human", "<image>\nwhat"), tiny.turn("gpt", "a box")]})
        tiny.write_json(folder / "rows.json", rows)
        self.cache = folder / "cache"
        recipe = self.recipe()
        recipe["data"].update({"train": [str(folder / "rows.json")], "image_folder": str(folder), "validation": []})
        return recipe

    def test_interrupted_filling_goes_on(self):
        recipe = self.many_pictures(300)
        stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            _, process = self.start(recipe)
            err = ""
            while not HITS.search(err) and process.poll() is None:
                err += process.stderr.readline()
            process.send_signal(number)
            err += process.communicate()[1]
            if process.returncode != 0:
                self.assertEqual(process.returncode, 128 + number, err)
                self.assertIn("the same command goes on from here", err)
                stopped = True
        self.assertTrue(stopped, "the runs were quicker than the signals")
        kept = sum(len(tiny.read_safetensors(shard)) for shard in self.shards())
        self.assertEqual(self.train(recipe)[1], (kept, 300))

    def test_killed_and_concurrent_filling(self):
        recipe = self.many_pictures(200)
        _, process = self.start(recipe)
        while process.poll() is None and not list(self.cache.glob("*")):
            time.sleep(0.001)
        time.sleep(0.1)
        process.kill()
        process.communicate()
        processes = [self.start(recipe)[1] for _ in range(3)]
        errors = [process.communicate()[1] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0, 0], errors)
        found = sorted(int(HITS.search(err)[1]) for err in errors)
        self.assertEqual(found[1:], [200, 200])  # one has computed, the others waited
        names = [name for shard in self.shards() for name in tiny.read_safetensors(shard)]
        self.assertEqual((len(names), len(set(names))), (200, 200))
        self.assertEqual([entry.suffix for entry in self.cache.glob("*/*")], [".safetensors"] * len(self.shards()))

    def test_wrong_uses_are_named(self):
        for sections, command in [({"freeze": {"vision_tower": False}}, "pretrain"), ({"lora": {"vision_target_modules": ["q_proj"]}}, "lora-finetune")]:
            recipe = self.recipe(**sections)
            err = program.run(command, "--recipe", self.write_recipe("wrong.json", recipe), "--set", f"output.dir={self.dir}/wrong").expect(2).err
            self.assertIn("/data/embedding_cache", err)
            self.assertIn("vision_tower" if "freeze" in sections else "vision_target_modules", err)

    def test_profile(self):
        recipe = self.recipe()
        path = self.write_recipe("profile.json", recipe)
        cached = program.run("profile-memory", "--recipe", path, "--json", "-").expect(0).json()
        plain = program.run("profile-memory", "--recipe", path, "--set", "data.embedding_cache=null", "--json", "-").expect(0).json()
        tower = 4 * sum(len(data) // 4 for name, data in tiny.read_safetensors(self.model / "model.safetensors").items()
                        if name.startswith("vision_tower.") and "layers.2." not in name and "post_layernorm" not in name)
        self.assertEqual(plain["by_category"]["weights"] - cached["by_category"]["weights"], tower)
        self.assertLess(cached["by_category"]["vision_activations"], plain["by_category"]["vision_activations"])
        self.assertFalse(self.cache.exists())
        ablation = program.run("profile-memory", "--recipe", path, "--ablate", "--json", "-").expect(0).json()["ablation"]
        self.assertIn("the recipe without data.embedding_cache", [row["change"] for row in ablation])
        program.run("lora-finetune", "--recipe", path, "--set", f"output.dir={self.dir}/dry", "--dry-run").expect(0)
        self.assertFalse(self.cache.exists())


if __name__ == "__main__":
    program.main()
