"""prune-ckpt on the folder of a real run."""
import json
import shutil

import program

ALL = [f"step-{step:06}" for step in (2, 4, 6, 8, 10, 12)]


class Prune(program.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.dir / "run"
        cls.recipe = cls.dir / "recipe.json"
        cls.recipe.write_text(json.dumps(program.training_recipe(cls, lora={"r": 2}, train={"save_steps": 2}, output={"save_total_limit": 0})))
        program.run("lora-finetune", "--recipe", cls.recipe, "--set", f"output.dir={cls.run_folder}").expect(0)

    def setUp(self):
        self.run_copy = shutil.copytree(self.run_folder, self.dir / self._testMethodName)
        self.checkpoints = self.run_copy / "checkpoints"
        losses = {name: json.loads((self.checkpoints / name / "MANIFEST.json").read_text())["train_loss"] for name in ALL}
        self.best = min(ALL, key=losses.get)

    def names(self):
        return sorted(entry.name for entry in self.checkpoints.iterdir())

    def prune(self, *arguments):
        return program.run("prune-ckpt", *arguments)

    def test_shows_the_plan_and_deletes_nothing(self):
        result = self.prune(self.run_copy, "--keep-last", 2).expect(0)
        self.assertEqual(self.names(), ALL)
        self.assertEqual(result.err, "")
        for name in ALL:
            self.assertIn(name, result.out)
        self.assertIn("--apply", result.out)

    def test_json_plan(self):
        plan = self.prune(self.run_copy, "--keep-last", 2, "--json").expect(0).json()
        keep = sorted({*ALL[-2:], self.best})
        self.assertEqual(plan["keep"], keep)
        self.assertEqual(plan["delete"], [name for name in ALL if name not in keep])
        self.assertEqual(plan["skip"], [])
        self.assertEqual(plan["freed_bytes"], sum(file.stat().st_size for name in plan["delete"] for file in (self.checkpoints / name).iterdir()))
        self.assertEqual(self.names(), ALL)

    def test_apply(self):
        plan = self.prune(self.run_copy, "--keep-last", 1, "--keep-best", 0, "--json").expect(0).json()
        self.assertEqual(plan["keep"], ALL[-1:])
        done = self.prune(self.checkpoints, "--keep-last", 1, "--keep-best", 0, "--apply", "--json").expect(0).json()
        self.assertEqual([done[key] for key in ("keep", "delete", "freed_bytes")], [plan[key] for key in ("keep", "delete", "freed_bytes")])
        self.assertEqual(self.names(), ALL[-1:])
        again = program.run("lora-finetune", "--recipe", self.recipe, "--set", f"output.dir={self.run_copy}").expect(0)
        self.assertIn("resumed from step 12 ", again.err)

    def test_only_whole_checkpoints_count(self):
        elsewhere = shutil.copytree(self.checkpoints / ALL[0], self.dir / "elsewhere")
        (self.checkpoints / "step-000099").symlink_to(elsewhere)
        (self.checkpoints / "latest").symlink_to(self.dir / "nowhere")
        shutil.copytree(self.checkpoints / ALL[0], self.checkpoints / "step-000100-merged")
        (self.checkpoints / "step-000050").mkdir()
        (self.checkpoints / ALL[-1] / "optimizer.safetensors").write_bytes(b"cut")
        done = self.prune(self.run_copy, "--keep-last", 1, "--keep-best", 0, "--apply", "--json").expect(0).json()
        skipped = ["latest", ALL[-1], "step-000050", "step-000099", "step-000100-merged"]
        self.assertEqual([entry["name"] for entry in done["skip"]], skipped)
        self.assertTrue(all(entry["reason"] for entry in done["skip"]))
        self.assertEqual(done["keep"], [ALL[-2]])
        self.assertEqual(self.names(), sorted([*skipped, ALL[-2]]))
        self.assertTrue((elsewhere / "MANIFEST.json").exists())

    def test_errors(self):
        self.assertIn("nowhere", self.prune(self.dir / "nowhere").expect(3).err)
        self.prune(self.run_copy, "--keep-last", -1).expect(2)
        self.prune().expect(2)


if __name__ == "__main__":
    program.main()
