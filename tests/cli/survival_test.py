"""A run that is killed and started again ends like one that was left alone: same bytes, same metrics."""
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import program
import tiny

SEED = int(os.environ.get("VLMTUNE_TEST_SEED", random.randrange(10**6)))
MEASURED = {"step_seconds", "tokens_per_second", "peak_memory_bytes", "resident_bytes"}  # the only figures that may differ


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in MEASURED} for line in lines]


def num_metrics(run):
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def hashes(folder, leave_out=()):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in leave_out}


def checkpoints(run):
    folder = run / "checkpoints"
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def end_state(run):
    """What an interruption must not change. MANIFEST.json holds the mean loss since the checkpoint before it."""
    return {"metrics": metrics(run), "final": hashes(run / "final"),
            "last": hashes(run / "checkpoints" / checkpoints(run)[-1], leave_out=["MANIFEST.json"]),
            "names": sorted(entry.name for entry in run.iterdir()), "newest": checkpoints(run)[-1]}


# Moments at which a run is killed: each waits until its moment has come, or the run has ended.

def random_sleep(pick, run, process, reference_seconds):
    time.sleep(pick.uniform(0, 1.2 * reference_seconds))


def in_the_loop(pick, run, process, reference_seconds):
    wanted = pick.randrange(1, 12)
    while process.poll() is None and num_metrics(run) < wanted:
        time.sleep(0.001)
    time.sleep(pick.uniform(0, 0.03))


def in_a_checkpoint(pick, run, process, reference_seconds):
    """While a checkpoint stands under its temporary name."""
    skip = {name for name in checkpoints(run) if pick.random() < 0.5}
    while process.poll() is None:
        if any(name.startswith(".tmp") for name in checkpoints(run)) and skip.issubset(checkpoints(run)):
            time.sleep(pick.choice([0, pick.uniform(0, 0.01)]))
            return


def at_the_end(pick, run, process, reference_seconds):
    """Between the last checkpoint and the last file."""
    while process.poll() is None and num_metrics(run) < 12:
        time.sleep(0.0005)
    time.sleep(pick.uniform(0, 0.02))


class Survival(program.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shorter = {"train": {"max_steps": 6, "save_steps": 2}}
        cls.kinds = {
            "lora": ("lora-finetune", program.training_recipe(cls, lora={"r": 4, "dropout": 0.1}, data={"validation": [str(cls.rows)]},
                                                             train={"eval_steps": 6})),
            # Grouped, so that there are steps without any picture, which leave the projector without a gradient.
            "projector": ("pretrain", program.training_recipe(cls, data={"group_by_modality_length": True}, **shorter)),
            "full": ("pretrain", program.training_recipe(cls, freeze={"language_model": False}, **shorter)),
            "lean": ("lora-finetune", program.training_recipe(cls, lora={"r": 128, "dropout": 0.1}, quantization={"bits": 4},
                                                             optimizer={"name": "adamw8bit"}, **shorter)),
            "lion": ("pretrain", program.training_recipe(cls, freeze={"language_model": False}, optimizer={"name": "lion"},
                                                         memory={"checkpointing": "every:2"}, **shorter)),
        }
        # Everything that trains whole weights in little memory.
        thin = {"precision": {"trained": "bf16"}, "optimizer": {"max_grad_norm": 0}, "freeze": {"language_model": False},
                "memory": {"checkpointing": "full", "optimizer_in_backward": True}, "train": {**shorter["train"], "gradient_accumulation_steps": 1}}
        cls.kinds["thin"] = "pretrain", program.training_recipe(cls, **thin)
        streamed = {"memory": {"checkpointing": "full", "offload": {"parameters": "disk"}}}
        cls.kinds["streamed"] = "lora-finetune", program.training_recipe(cls, lora={"r": 4, "dropout": 0.1}, **streamed, **shorter)
        stages = program.training_recipe(cls, lora={"r": 4, "dropout": 0.1}, train={"max_steps": 9, "save_steps": 2},
                                         schedule={"accumulation_stages": [{"until_step": 3, "steps": 4}, {"until_step": 6, "steps": 1}, {"steps": 2}]})
        del stages["train"]["gradient_accumulation_steps"]
        cls.kinds["stages"] = "lora-finetune", stages
        cls.kinds["packed"] = "lora-finetune", program.training_recipe(
            cls, lora={"r": 4, "dropout": 0.1}, data={"packing": True, "max_length": 400}, train={"max_steps": 6, "save_steps": 2, "per_device_batch_size": 1})
        cls.references = {}

    def setUp(self):
        self.pick = random.Random(f"{SEED} {self.id()}")
        self.runs = 0

    def start(self, kind, run, *more):
        command, recipe = self.kinds[kind]
        path = self.write_recipe(f"{kind}.json", recipe)
        return program.start(command, "--recipe", path, "--set", f"output.dir={run}", *more)

    def finish(self, kind, run, *more):
        """Runs to the end; returns what stood on stderr."""
        _, err = (process := self.start(kind, run, *more)).communicate()
        self.assertEqual(process.returncode, 0, err)
        return err

    def reference(self, kind):
        """The folder, end state and duration of a run that nobody disturbed."""
        if kind not in self.references:
            run = self.dir / f"{kind}-reference"
            begin = time.monotonic()
            self.finish(kind, run)
            self.references[kind] = run, end_state(run), time.monotonic() - begin
        return self.references[kind]

    def new_run(self):
        self.runs += 1
        return self.dir / f"{self._testMethodName}-{self.runs}"

    def copy_of_reference(self, kind):
        return shutil.copytree(self.reference(kind)[0], self.new_run())

    def expect_same_end(self, kind, run, what):
        self.maxDiff = None
        self.assertEqual(end_state(run), self.reference(kind)[1], f"{what} (VLMTUNE_TEST_SEED={SEED})")

    def kill(self, kind, run, moment):
        process = self.start(kind, run)
        moment(self.pick, run, process, self.reference(kind)[2])
        process.kill()
        process.communicate()

    def check_killed(self, kind, moments):
        run = self.new_run()
        for moment in moments:
            self.kill(kind, run, moment)
        self.finish(kind, run)
        self.expect_same_end(kind, run, f"killed {[moment.__name__ for moment in moments]}")
        # Without a stop in between, what the checkpoints say of themselves is the same too.
        self.assertEqual(checkpoints(run), checkpoints(self.reference(kind)[0]))

    def test_killed_anywhere(self):
        for moments in ([random_sleep], [random_sleep, random_sleep], [in_the_loop], [in_the_loop, random_sleep], [in_the_loop, in_a_checkpoint],
                        [in_a_checkpoint], [in_a_checkpoint, in_a_checkpoint], [in_a_checkpoint, in_the_loop], [at_the_end], [at_the_end, at_the_end]):
            self.check_killed("lora", moments)

    def test_killed_projector(self):
        self.check_killed("projector", [in_a_checkpoint, random_sleep])

    def test_killed_full_fine_tuning(self):
        self.check_killed("full", [random_sleep, in_a_checkpoint])

    def test_killed_with_few_bits(self):
        self.check_killed("lean", [in_a_checkpoint, random_sleep])

    def test_killed_lion(self):
        self.check_killed("lion", [random_sleep, in_a_checkpoint])

    def test_killed_in_little_memory(self):
        for kind in ("thin", "streamed"):
            self.check_killed(kind, [in_a_checkpoint, random_sleep])

    def test_killed_across_stages_of_accumulation(self):
        self.assertEqual([line["samples"] for line in self.reference("stages")[1]["metrics"]], [8, 8, 8, 2, 2, 2, 4, 4, 4])
        self.check_killed("stages", [in_a_checkpoint, random_sleep])
        for step in (2, 3, 6):
            self.check_stopped("stages", signal.SIGTERM, step)

    def test_killed_with_packed_rows(self):
        metrics = self.reference("packed")[1]["metrics"]
        self.assertGreater(max(line["samples"] for line in metrics), 4)
        self.assertGreater(metrics[-1]["epoch"], 1)
        self.check_killed("packed", [in_a_checkpoint, random_sleep])
        self.check_stopped("packed", signal.SIGTERM, 3)

    def stop(self, kind, number, after):
        """Sends a signal after so many steps to a run that then leaves a checkpoint; returns run and step."""
        for _ in range(5):  # the run may be quicker than we are
            run = self.new_run()
            process = self.start(kind, run)
            while process.poll() is None and num_metrics(run) < after:
                time.sleep(0.001)
            process.send_signal(number)
            _, err = process.communicate()
            if process.returncode != 0:
                self.assertEqual(process.returncode, 128 + number, err)
                return run, num_metrics(run), err
        self.fail("the run ended five times before the signal")

    def test_no_thread_that_computes_is_interrupted(self):
        """A signal that is handled in the middle of a product of oneDNN's destroys memory."""
        run = self.new_run()
        process = self.start("full", run)
        while process.poll() is None and num_metrics(run) < 1:
            time.sleep(0.001)
        threads = [status.read_text() for status in Path(f"/proc/{process.pid}/task").glob("*/status")]
        process.communicate()
        self.assertGreater(len(threads), 1)
        for number in (signal.SIGINT, signal.SIGTERM):
            bits = {key: [int(re.search(rf"^{key}:\s*(\w+)", status, re.M)[1], 16) >> (number - 1) & 1 for status in threads]
                    for key in ("SigBlk", "SigCgt")}
            self.assertEqual(sum(bits["SigBlk"]), len(threads) - 1, "all but the one that waits for signals")
            self.assertEqual(sum(bits["SigCgt"]), 0)

    def check_stopped(self, kind, number, after):
        run, step, err = self.stop(kind, number, after)
        self.assertFalse((run / "final").exists())
        self.assertIn(f"step-{step:06}", checkpoints(run), err)
        manifest = json.loads((run / "checkpoints" / f"step-{step:06}" / "MANIFEST.json").read_text())
        self.assertEqual(manifest["step"], step)
        self.assertIn(f"resumed from step {step}", self.finish(kind, run))
        self.expect_same_end(kind, run, f"stopped by signal {number} after step {step}")

    def test_stopped_by_sigterm(self):
        self.check_stopped("lora", signal.SIGTERM, 4)

    def test_stopped_by_sigint(self):
        self.check_stopped("full", signal.SIGINT, 1)

    def test_stopped_projector(self):
        self.check_stopped("projector", signal.SIGTERM, 1)

    def test_damaged_checkpoints_are_passed_over(self):
        def truncate(folder):
            os.truncate(folder / "optimizer.safetensors", 100)

        def flip(folder):
            data = bytearray((folder / "trained.safetensors").read_bytes())
            data[-1] ^= 1
            (folder / "trained.safetensors").write_bytes(data)

        def unseal(folder):
            (folder / "MANIFEST.json").unlink()

        for damage in (truncate, flip, unseal):
            run = self.copy_of_reference("lora")
            newest, before = checkpoints(run)[-1], checkpoints(run)[-2]
            damage(run / "checkpoints" / newest)
            err = self.finish("lora", run)
            self.assertRegex(err, rf"warning: .*{newest}")
            self.assertIn(f"resumed from step {int(before[5:])} ", err)
            self.expect_same_end("lora", run, damage.__name__)

    def test_remains_of_a_killed_writer(self):
        run = self.copy_of_reference("lora")
        shutil.rmtree(run / "checkpoints" / checkpoints(run)[-1])
        half = run / "checkpoints" / ".tmp-step-000012"
        half.mkdir()
        (half / "trained.safetensors").write_bytes(b"half")
        (half / "optimizer.safetensors.tmp.1234").write_bytes(b"")
        (run / "final.tmp").mkdir()
        for name in ("recipe.json", "metrics.jsonl", "memory.json", "report.html"):
            (run / f"{name}.tmp.1234").write_text("half")
        before = shutil.copytree(run / "checkpoints" / checkpoints(run)[-1], run / "checkpoints" / ".tmp-step-000006-old")  # on its way out
        (before / "MANIFEST.json").unlink()
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step":13,"loss":1.')
        self.finish("lora", run)
        self.expect_same_end("lora", run, "remains")
        self.assertEqual(checkpoints(run), checkpoints(self.reference("lora")[0]))

    def test_killed_between_the_last_save_and_its_clearing_up(self):
        run = self.copy_of_reference("lora")
        old = shutil.copytree(run / "checkpoints" / checkpoints(run)[0], run / "checkpoints" / "step-000006")
        manifest = json.loads((old / "MANIFEST.json").read_text())
        tiny.write_json(old / "MANIFEST.json", {**manifest, "step": 6, "train_loss": 99, "eval_loss": 99})
        self.finish("lora", run)
        self.assertEqual(checkpoints(run), checkpoints(self.reference("lora")[0]))

    def test_one_run_at_a_time(self):
        run = self.new_run()
        first = self.start("lora", run)
        while first.poll() is None and num_metrics(run) == 0:
            time.sleep(0.001)
        second = self.start("lora", run)
        _, err = second.communicate()
        _, first_err = first.communicate()
        self.assertEqual(first.returncode, 0, first_err)
        if "resumed from step 12" not in err:  # else the first was done before the second came so far
            self.assertEqual(second.returncode, 5, err)
            self.assertIn("another process", err)
        self.expect_same_end("lora", run, "started twice")

    def test_resume_none_starts_anew(self):
        run = self.copy_of_reference("projector")
        self.assertNotIn("resumed", self.finish("projector", run, "--resume", "none"))
        self.expect_same_end("projector", run, "--resume none")

    def test_resume_from_a_named_checkpoint(self):
        run = self.copy_of_reference("projector")
        first = run / "checkpoints" / checkpoints(run)[0]
        self.assertIn(f"resumed from step {int(first.name[5:])} ", self.finish("projector", run, "--resume", first))
        self.expect_same_end("projector", run, "--resume DIR")

    def test_named_checkpoint_ends_what_came_after_it(self):
        """Checkpoints of the past that is not continued must not pass for the newest."""
        run = self.copy_of_reference("projector")
        first = checkpoints(run)[0]
        kept = shutil.copytree(run / "checkpoints" / first, self.dir / "kept" / first)
        process = self.start("projector", run, "--resume", kept, "--set", "train.save_steps=1", "--set", "output.save_total_limit=1",
                             "--set", "output.keep_best=0")
        while process.poll() is None and num_metrics(run) == 6:
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        step = num_metrics(run)
        self.assertIn(f"resumed from step {step} ", self.finish("projector", run))

    def test_finished_run_stays_as_it_is(self):
        run = self.copy_of_reference("lora")
        (run / "memory.json").unlink()
        self.finish("lora", run)
        self.expect_same_end("lora", run, "started once more")
        measured = (run / "memory.json").read_bytes()
        self.finish("lora", run)
        self.assertEqual((run / "memory.json").read_bytes(), measured)

    def test_other_trained_tensors_are_refused(self):
        run = self.copy_of_reference("lora")
        process = self.start("lora", run, "--set", "lora.r=2")
        _, err = process.communicate()
        self.assertEqual(process.returncode, 3, err)
        self.assertRegex(err, r"trained\.safetensors: tensor \".*lora_A.*\" has another shape")
        self.expect_same_end("lora", run, "refused")


if __name__ == "__main__":
    program.main()
