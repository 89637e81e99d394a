"""The binary under test: its path is the first argument of each test file."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny

ROOT = Path(__file__).resolve().parents[2]
FULL_PRECISION = ["--set", "precision.compute=fp32", "--set", "precision.parameters=fp32"]
_binary = ""


def main():
    global _binary
    _binary = os.path.abspath(sys.argv.pop(1))
    unittest.main()


def binary():
    return _binary


def environment():
    # One thread unless told otherwise, since the models are tiny; never another number half-way: sums of floats depend on it.
    return {"OMP_NUM_THREADS": "1", "VLMTUNE_DATA": str(ROOT), **os.environ}


def start(*arguments):
    """A running process; its output is read with communicate()."""
    return subprocess.Popen([_binary, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment())


class Result:
    def __init__(self, arguments, code, out, err):
        self.code, self.out, self.err = code, out, err
        self._what = f"vlmtune {' '.join(map(str, arguments))}"

    def expect(self, code):
        if self.code != code:
            raise AssertionError(f"{self._what}\nexit status {self.code}, expected {code}\nstdout: {self.out}\nstderr: {self.err}")
        return self

    def json(self):
        return json.loads(self.out)


def run(*arguments, stdin="", **options):
    done = subprocess.run([_binary, *map(str, arguments)], input=stdin, capture_output=True, text=True, env=environment(), timeout=300, **options)
    return Result(arguments, done.returncode, done.stdout, done.stderr)


class Case(unittest.TestCase):
    """Tests that share one tiny model and one set of rows in a temporary folder."""

    ROWS = 26

    @classmethod
    def setUpClass(cls):
        cls._temporary = tempfile.TemporaryDirectory(prefix="vlmtune-cli-")
        cls.dir = Path(cls._temporary.name)
        cls.model = tiny.write_model(cls.dir / "model")
        cls.rows = tiny.write_rows(cls.dir / "data", cls.ROWS)

    @classmethod
    def tearDownClass(cls):
        cls._temporary.cleanup()

    def write_recipe(self, name, recipe):
        path = self.dir / name
        tiny.write_json(path, recipe)
        return path


def training_recipe(case, **sections):
    """Twelve steps of two micro-batches, a checkpoint every third step. `sections` are merged in."""
    recipe = {
        "model": {"path": str(case.model)},
        "data": {"train": [str(case.rows)], "image_folder": str(case.dir / "data" / "images"), "max_length": 512, "num_workers": 3},
        "precision": {"compute": "fp32", "parameters": "fp32"},
        "memory": {"checkpointing": "none"},
        "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.01},
        "schedule": {"type": "cosine", "warmup_steps": 2},
        "train": {"max_steps": 12, "per_device_batch_size": 2, "gradient_accumulation_steps": 2, "save_steps": 3, "seed": 7},
        "output": {"save_total_limit": 2},
    }
    for section, values in sections.items():
        recipe.setdefault(section, {}).update(values)
    return recipe
