#!/usr/bin/env python3
"""Predicted memory beside what a run measures, on the bench's random-weight checkpoints (scripts/bench/checkpoint.py). On a device with
memory of its own (--hardware) also what its allocator reserves and the whole device's; a figure beyond its tolerance fails the run.

usage: memory.py [--binary build/release/app/vlmtune] [--python .venv-golden/bin/python] [--sizes small medium]
                 [--hardware cpu] [--json]
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LORA = {"r": 8, "alpha": 16, "dropout": 0.05, "target_modules": "all-linear"}
RECIPES = {  # name -> (command, sections)
    "lora": ("lora-finetune", {"lora": LORA, "memory": {"checkpointing": "none"}}),
    "lora_checkpointing": ("lora-finetune", {"lora": LORA, "memory": {"checkpointing": "full"}}),
    "projector": ("pretrain", {"memory": {"checkpointing": "none"}}),
    "full_checkpointing": ("pretrain", {"freeze": {"language_model": False}, "memory": {"checkpointing": "full"}}),
}


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


TOLERANCES = {"peak_allocated_bytes": (0.02, 0), "peak_reserved_bytes": (0.05, 0), "total_bytes": (0.03, 300 << 20)}  # relative, or bytes


def compare(binary, checkpoint, picture, precision, name, hardware, scratch):
    """Predicted and measured memory.json."""
    command, sections = RECIPES[name]
    rows = scratch / "rows.json"
    rows.write_text(json.dumps([{"id": str(i), "image": str(picture), "conversations": [
        {"from": "human", "value": "<image>"}, {"from": "gpt", "value": chr(97 + i) * 1000}]} for i in range(2)]))
    recipe = scratch / "recipe.json"
    out = scratch / f"{name}-{precision}"
    recipe.write_text(json.dumps({
        "model": {"path": str(checkpoint)}, "data": {"train": [str(rows)]}, "precision": {"compute": precision, "parameters": precision},
        "train": {"max_steps": 2, "per_device_batch_size": 2, "save_steps": 0}, "hardware": hardware, "output": {"dir": str(out)}, **sections}))
    run([binary, command, "--recipe", recipe, "--resume", "none"])
    step = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    measured = json.loads((out / "memory.json").read_text())
    measured["peak_allocated_bytes"] = measured.get("allocator", measured)["peak_allocated_bytes"]
    predicted = json.loads(run([binary, "profile-memory", "--command", command, "--recipe", recipe, "--json", "-",
                                "--set", f"data.max_length={step['tokens'] // step['samples']}"]))
    return predicted, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/app/vlmtune", type=Path)
    parser.add_argument("--python", default=ROOT / ".venv-golden/bin/python", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/bench", help="where checkpoints are kept")
    parser.add_argument("--sizes", nargs="+", default=["small"])
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
    parser.add_argument("--hardware", default="cpu", help="a name of recipes/hardware")
    args = parser.parse_args()
    figures = list(TOLERANCES)[:1 if args.hardware == "cpu" else None]
    missed = 0
    for size in args.sizes:
        if not (args.folder / f"{size}-fp32").exists():
            subprocess.run([args.python, Path(__file__).with_name("checkpoint.py"), size, args.folder], check=True)
        for precision in ("fp32", "bf16"):
            for name in RECIPES:
                with tempfile.TemporaryDirectory() as scratch:
                    predicted, measured = compare(args.binary.resolve(), args.folder / f"{size}-{precision}", args.folder / "picture.png",
                                                  precision, name, args.hardware, Path(scratch))
                for figure in figures:
                    ours, real = predicted[figure], measured[figure]
                    relative, slack = TOLERANCES[figure]
                    missed += abs(ours - real) > max(relative * real, slack)
                    title = f"memory_{name}_{size}_{precision}" + (f"_{figure.removesuffix('_bytes')}" if len(figures) > 1 else "")
                    if args.json:
                        print(json.dumps({"name": title, "ratio": ours / real}), flush=True)
                    else:
                        print(f"{title:<56}{ours / 1e6:10.1f} MB predicted {real / 1e6:10.1f} measured {100 * (ours / real - 1):+6.2f} %", flush=True)
    if missed:
        sys.exit(f"{missed} figures are beyond their tolerance")


if __name__ == "__main__":
    main()
