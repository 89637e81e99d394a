#!/usr/bin/env python3
"""What each memory technique saves and costs, measured: the same run without it and with it, alternating, on the bench's small
random-weight checkpoint. Techniques that need a device with memory of its own are predicted for that device instead.

usage: techniques.py [--binary build/release/app/vlmtune] [--python .venv-golden/bin/python] [--rounds 3] [--only WORD] [--markdown]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FULL = {"freeze": {"language_model": False}}
EVERYTHING = {"freeze": {"language_model": False, "vision_tower": False}}
LORA = {"lora": {"r": 8, "alpha": 16, "dropout": 0.05, "target_modules": ["q_proj", "v_proj"]}}
WHOLE = {"memory": {"loss_chunk_tokens": 0}}
BF16 = {"precision": {"compute": "bf16", "parameters": "bf16"}}
FOUR = {"train": {"per_device_batch_size": 4}}

# (rows of the mission's table, what is turned on, claim, what the figure is of, command, both runs, without it, with it)
MEASURED = [
    ("A1", "memory.checkpointing: full, tower and language model", "-60 %, +15 % time", "activations", "pretrain", {**EVERYTHING},
     {"memory": {"checkpointing": "none", "vision_checkpointing": "none"}}, {"memory": {"checkpointing": "full", "vision_checkpointing": "full"}}),
    ("C2", "memory.checkpointing: selective (MLPs)", "-30 to -50 %", "activations", "pretrain", FULL, {}, {"memory": {"checkpointing": "selective"}}),
    ("C2", "memory.checkpointing: selective:attention", "-30 to -50 %", "activations", "pretrain", FULL, {}, {"memory": {"checkpointing": "selective:attention"}}),
    ("C2", "memory.checkpointing: every:2", "-30 to -50 %", "activations", "pretrain", FULL, {}, {"memory": {"checkpointing": "every:2"}}),
    ("A2", "precision.compute and parameters: bf16", "-40 %", "all", "lora-finetune", LORA, {"precision": {"compute": "fp32", "parameters": "fp32"}}, BF16),
    ("B4", "bf16 and checkpointing together", "18.2 to 10.5 GB (-42 %)", "all", "lora-finetune", LORA, {"precision": {"compute": "fp32", "parameters": "fp32"}},
     {**BF16, "memory": {"checkpointing": "full"}}),
    ("B14", "memory.loss_chunk_tokens: 128", "one pass instead of two", "logits", "lora-finetune", {**LORA, **FOUR}, WHOLE, {"memory": {"loss_chunk_tokens": 128}}),
    ("A5", "freeze.vision_tower", "-30 %", "all", "pretrain", {}, {"freeze": {"vision_tower": False}}, {}),
    ("A12, B5", "LoRA and projector instead of all weights", "0.17 % trained", "all", "lora-finetune", {}, {"command": "pretrain", **FULL}, LORA),
    ("A8", "quantization.bits: 4 (NF4)", "-50 to -75 %", "weights", "lora-finetune", {**LORA, **BF16}, {}, {"quantization": {"bits": 4}}),
    ("A8", "quantization.bits: 8 (int8)", "-50 to -75 %", "weights", "lora-finetune", {**LORA, **BF16}, {}, {"quantization": {"bits": 8}}),
    ("A9", "memory.offload.parameters: disk", "beyond device memory", "weights", "lora-finetune", {**LORA, **BF16, "memory": {"checkpointing": "full"}}, {},
     {"memory": {"offload": {"parameters": "disk"}}}),
    ("A13", "one row at a time, accumulated four times", "same global batch", "activations", "lora-finetune", LORA, FOUR,
     {"train": {"per_device_batch_size": 1, "gradient_accumulation_steps": 4}}),
    ("B9", "optimizer.name: lion", "7.8 to 6.3 GB (-19 %)", "optimizer", "pretrain", FULL, {}, {"optimizer": {"name": "lion"}}),
    ("B9", "optimizer.name: adamw8bit", "7.8 to 6.3 GB (-19 %)", "optimizer", "pretrain", FULL, {}, {"optimizer": {"name": "adamw8bit"}}),
    ("", "memory.optimizer_in_backward", "", "gradients", "pretrain", {**FULL, "memory": {"checkpointing": "full"}}, {}, {"memory": {"optimizer_in_backward": True}}),
    ("", "precision.trained: bf16 (stochastic rounding)", "", "weights", "pretrain", {**FULL, **BF16}, {}, {"precision": {"trained": "bf16"}}),
]
PREDICTED = [
    ("A9, B12", "memory.offload: optimizer and gradients", "-62 %", "optimizer", "pretrain", {**FULL, **BF16, "hardware": "a100-80gb"}, {},
     {"memory": {"offload": {"optimizer": "cpu", "gradients": "cpu"}}}),
    ("A9", "memory.offload.parameters: cpu", "beyond device memory", "weights", "lora-finetune", {**LORA, **BF16, "hardware": "8gb-gpu"}, {},
     {"memory": {"offload": {"parameters": "cpu"}}}),
    ("C8", "memory.offload.activations: cpu", "next generation", "activations", "lora-finetune",
     {**LORA, **BF16, "hardware": "8gb-gpu", "quantization": {"bits": 4}, "memory": {"checkpointing": "full"}}, {}, {"memory": {"offload": {"activations": "cpu"}}}),
]


def merge(into, sections):
    for key, value in sections.items():
        into[key] = merge(dict(into.get(key, {})), value) if isinstance(value, dict) else value
    return into


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode not in (0, 4):
        sys.exit(done.stderr)
    return done.stdout


def write_recipe(path, base, sections):
    content = merge(merge({"memory": {"checkpointing": "none"}, "optimizer": {"max_grad_norm": 0}}, base), sections)
    command = content.pop("command", None)
    path.write_text(json.dumps(content))
    return command


def bytes_of(report, category):
    if category == "all":
        return report["peak_allocated_bytes"]
    names = ["activations", "vision_activations"] if category == "activations" else [category]
    return sum(report["by_category"][name] for name in names)


def measured(args, scratch, row):
    """(report, seconds of a step) without and with the technique; medians of alternating rounds."""
    _, _, _, _, default_command, both, without, with_it = row
    rows = scratch / "rows.json"
    rows.write_text(json.dumps([{"id": str(i), "image": str((args.folder / "picture.png").resolve()), "conversations": [
        {"from": "human", "value": "<image>"}, {"from": "gpt", "value": chr(97 + i) * 500}]} for i in range(8)]))
    seconds, reports = ([], []), [None, None]
    for _ in range(args.rounds):
        for side, sections in enumerate((without, with_it)):
            out = scratch / f"run-{side}"
            base = merge({"model": {"path": str(args.folder.resolve() / "small-fp32")}, "data": {"train": [str(rows)]},
                          "precision": {"compute": "fp32", "parameters": "fp32"}, "train": {"max_steps": 3, "per_device_batch_size": 2, "save_steps": 0},
                          "output": {"dir": str(out)}}, both)
            if "bf16" in json.dumps([both, sections]):
                base["model"]["path"] = str(args.folder.resolve() / "small-bf16")
            command = write_recipe(scratch / "recipe.json", base, sections) or default_command
            run([args.binary, command, "--recipe", scratch / "recipe.json", "--resume", "none"])
            seconds[side].extend(json.loads(line)["step_seconds"] for line in (out / "metrics.jsonl").read_text().splitlines()[1:])
            reports[side] = json.loads((out / "memory.json").read_text())
    return [(report, statistics.median(times)) for report, times in zip(reports, seconds)]


def predicted(args, scratch, row):
    _, _, _, _, command, both, without, with_it = row
    results = []
    for sections in (without, with_it):
        write_recipe(scratch / "recipe.json", merge({"model": {"path": "models/llava-1.5-7b-hf"}, "train": {"per_device_batch_size": 1}}, both), sections)
        report = json.loads(run([args.binary, "profile-memory", "--recipe", scratch / "recipe.json", "--command", command, "--json", "-"]))
        results.append((report, report["step_time"]["seconds"]))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/app/vlmtune", type=Path)
    parser.add_argument("--python", default=ROOT / ".venv-golden/bin/python", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/bench", help="where checkpoints are kept")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="techniques whose name holds this")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/techniques.md")
    args = parser.parse_args()
    if not (args.folder / "small-fp32").exists():
        subprocess.run([args.python, Path(__file__).with_name("checkpoint.py"), "small", args.folder], check=True)
    separator = " | " if args.markdown else "  "
    for title, table, look in (("measured", MEASURED, measured), ("predicted", PREDICTED, predicted)):
        heading = ["id", f"technique ({title})", "claim", "of what", "without", "with", "change", "peak", "step time"]
        print(separator.join(heading).join(("| ", " |") if args.markdown else ("", "")))
        if args.markdown:
            print("|" + "---|" * len(heading))
        for row in table:
            if args.only not in row[1]:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                (before, slow), (after, fast) = look(args, Path(scratch), row)
            a, b = bytes_of(before, row[3]), bytes_of(after, row[3])
            peak = after["peak_allocated_bytes"] / before["peak_allocated_bytes"] - 1
            cells = [row[0], row[1], row[2], row[3], f"{a / 1e6:,.0f} MB", f"{b / 1e6:,.0f} MB", f"{100 * (b / a - 1):+.0f} %" if a else "", f"{100 * peak:+.0f} %",
                     f"{100 * (fast / slow - 1):+.0f} %"]
            print(separator.join(cells).join(("| ", " |") if args.markdown else ("", "")), flush=True)


if __name__ == "__main__":
    main()
