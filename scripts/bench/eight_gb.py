#!/usr/bin/env python3
"""Fine-tunes a random model of LLaVA-1.5-7B's shape on the CPU with its language model in NF4, held to 8 GB: resident memory of the
whole process, real optimizer steps, and the prediction beside what was allocated. Wants 14 GB of disk.

usage: eight_gb.py [--binary build/release/app/vlmtune] [--python .venv-golden/bin/python] [--steps 2] [--json]
"""
import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 8_000_000_000


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/app/vlmtune", type=Path)
    parser.add_argument("--python", default=ROOT / ".venv-golden/bin/python", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/bench", help="where the checkpoint is kept")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
    args = parser.parse_args()
    if not (args.folder / "7b-bf16").exists():
        subprocess.run([args.python, Path(__file__).with_name("checkpoint.py"), "7b", args.folder], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        rows = scratch / "rows.json"
        rows.write_text(json.dumps([{"id": str(i), "image": str((args.folder / "picture.png").resolve()), "conversations": [
            {"from": "human", "value": "<image>\nWhat is in this picture?"}, {"from": "gpt", "value": "A picture of " + chr(97 + i) * 80}]} for i in range(2)]))
        recipe = scratch / "recipe.json"
        recipe.write_text(json.dumps({
            "model": {"path": str(args.folder / "7b-bf16")}, "data": {"train": [str(rows)]}, "quantization": {"bits": 4},
            "lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}, "precision": {"compute": "bf16", "parameters": "bf16"},
            "memory": {"checkpointing": "full", "budget": f"{BUDGET // 10**9}GB"}, "train": {"max_steps": args.steps, "save_steps": 0},
            "output": {"dir": str(scratch / "run")}}))
        run([args.binary, "lora-finetune", "--recipe", recipe])
        resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        steps = [json.loads(line) for line in (scratch / "run/metrics.jsonl").read_text().splitlines()]
        measured = json.loads((scratch / "run/memory.json").read_text())["peak_allocated_bytes"]
        predicted = json.loads(run([args.binary, "profile-memory", "--command", "lora-finetune", "--recipe", recipe, "--json", "-",
                                    "--set", f"data.max_length={steps[0]['tokens']}"]))["peak_allocated_bytes"]
    figures = {"rss_7b_nf4_of_8gb": resident / BUDGET, "memory_7b_nf4": predicted / measured}
    if args.json:
        for name, ratio in figures.items():
            print(json.dumps({"name": name, "ratio": ratio}))
    else:
        print(f"{len(steps)} steps of {steps[0]['tokens']} tokens, losses {', '.join('%.4f' % step['loss'] for step in steps)}, {steps[-1]['step_seconds']:.0f} s each")
        print(f"resident {resident / 1e9:.2f} GB of 8; predicted {predicted / 1e9:.3f} GB, allocated {measured / 1e9:.3f} GB ({100 * (predicted / measured - 1):+.2f} %)")
    return 0 if resident <= BUDGET and abs(predicted / measured - 1) <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
