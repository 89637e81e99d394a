"""Training in 16 bits, with loss scaling, and what happens to numbers that leave their range."""
import json

import program
import tiny


class Precision(program.Case):
    def train(self, name, code=0, **sections):
        run = self.dir / name
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0}
        recipe = program.training_recipe(self, lora=lora, output={"dir": str(run)}, **sections)
        result = program.run("lora-finetune", "--recipe", self.write_recipe(f"{name}.json", recipe)).expect(code)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()], result, run

    def test_half_precisions_follow_fp32(self):
        wide, _, _ = self.train("fp32")
        for precision, tolerance in (("fp16", 5e-3), ("bf16", 4e-2)):
            rows, _, _ = self.train(precision, precision={"compute": precision, "parameters": precision, "loss_scale": 256})
            self.assertEqual(len(rows), len(wide))
            for row, expected in zip(rows, wide):
                self.assertAlmostEqual(row["loss"] / expected["loss"], 1, delta=tolerance)
                self.assertAlmostEqual(row["grad_norm"] / expected["grad_norm"], 1, delta=10 * tolerance)
                self.assertEqual(row["loss_scale"], 256 if precision == "fp16" else 1)

    def test_overflow_halves_the_scale_and_skips_the_step(self):
        large = tiny.write_model(self.dir / "large", head_scale=100)
        rows, _, run = self.train("overflow", model={"path": str(large)}, precision={"compute": "fp16"}, optimizer={"learning_rate": 1e-3})
        scales = [row["loss_scale"] for row in rows]
        self.assertEqual(scales[0], 65536)
        for scale, after, row in zip(scales, scales[1:], rows):
            self.assertEqual(after, scale / 2 if row["grad_norm"] is None else scale)
        skipped = sum(row["grad_norm"] is None for row in rows)
        self.assertTrue(0 < skipped < len(rows), scales)
        newest = json.loads((run / "checkpoints" / "step-000012" / "MANIFEST.json").read_text())
        self.assertEqual(newest["step"], 12)

    def test_diverging_run_stops_and_keeps_its_checkpoints(self):
        rows, result, run = self.train("diverging", code=1, optimizer={"learning_rate": 1e30, "max_grad_norm": 0},
                                       schedule={"type": "constant", "warmup_steps": 0}, train={"save_steps": 1})
        self.assertEqual(len(rows), 1)
        self.assertIn("step 2: the loss is", result.err)
        self.assertIn("learning rate", result.err)
        self.assertTrue((run / "checkpoints" / "step-000001" / "MANIFEST.json").exists())
        self.assertFalse((run / "final").exists())


if __name__ == "__main__":
    program.main()
