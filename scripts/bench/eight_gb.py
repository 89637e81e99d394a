#!/usr/bin/env python3
"""Fine-tunes a random model of LLaVA-1.5-7B's shape on the CPU held to 8 GB, with its language model in NF4 and with whole weights
streamed from disk: resident memory of the process, real optimizer steps, and the prediction beside what was allocated. Wants 14 GB
of disk.

usage: eight_gb.py [--binary build/release/app/vlmtune] [--python .venv-golden/bin/python] [--runs nf4 disk] [--steps 2] [--json]
"""
import argparse
import json
import os
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


RUNS = {  # name -> (title, sections)
    "nf4": ("language model in NF4", {"quantization": {"bits": 4}}),
    "disk": ("bf16 weights streamed from disk", {"memory": {"offload": {"parameters": "disk"}}}),
}


def measure(args, name, scratch):
    """Resident bytes of the whole process, steps, bytes measured and predicted."""
    _, sections = RUNS[name]
    rows = scratch / "rows.json"
    rows.write_text(json.dumps([{"id": str(i), "image": str((args.folder / "picture.png").resolve()), "conversations": [
        {"from": "human", "value": "<image>\nWhat is in this picture?"}, {"from": "gpt", "value": "A picture of " + chr(97 + i) * 80}]} for i in range(2)]))
    content = {
        "model": {"path": str(args.folder.resolve() / "7b-bf16")}, "data": {"train": [str(rows)]},
        "lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}, "precision": {"compute": "bf16", "parameters": "bf16"},
        "memory": {"checkpointing": "full", "budget": f"{BUDGET // 10**9}GB"}, "train": {"max_steps": args.steps, "save_steps": 0},
        "output": {"dir": str(scratch / name)}}
    for section, values in sections.items():
        content.setdefault(section, {}).update(values)
    recipe = scratch / f"{name}.json"
    recipe.write_text(json.dumps(content))
    process = subprocess.Popen([args.binary, "lora-finetune", "--recipe", recipe], stderr=subprocess.PIPE, text=True)
    err = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(err)
    steps = [json.loads(line) for line in (scratch / name / "metrics.jsonl").read_text().splitlines()]
    measured = json.loads((scratch / name / "memory.json").read_text())["peak_allocated_bytes"]
    predicted = json.loads(run([args.binary, "profile-memory", "--command", "lora-finetune", "--recipe", recipe, "--json", "-",
                                "--set", f"data.max_length={steps[0]['tokens']}"]))["peak_allocated_bytes"]
    return usage.ru_maxrss * 1024, steps, measured, predicted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/app/vlmtune", type=Path)
    parser.add_argument("--python", default=ROOT / ".venv-golden/bin/python", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/bench", help="where the checkpoint is kept")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
    args = parser.parse_args()
    if not (args.folder / "7b-bf16").exists():
        subprocess.run([args.python, Path(__file__).with_name("checkpoint.py"), "7b", args.folder], check=True)
    missed = False
    for name in args.runs:
        with tempfile.TemporaryDirectory() as scratch:
            resident, steps, measured, predicted = measure(args, name, Path(scratch))
        missed = missed or resident > BUDGET or abs(predicted / measured - 1) > 0.02
        if args.json:
            print(json.dumps({"name": f"rss_7b_{name}_of_8gb", "ratio": resident / BUDGET}))
            print(json.dumps({"name": f"memory_7b_{name}", "ratio": predicted / measured}), flush=True)
        else:
            print(f"{RUNS[name][0]}: {len(steps)} steps of {steps[0]['tokens']} tokens, losses {', '.join('%.4f' % step['loss'] for step in steps)}, "
                  f"{steps[-1]['step_seconds']:.0f} s each")
            print(f"  resident {resident / 1e9:.2f} GB of 8; predicted {predicted / 1e9:.3f} GB, allocated {measured / 1e9:.3f} GB "
                  f"({100 * (predicted / measured - 1):+.2f} %)", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
