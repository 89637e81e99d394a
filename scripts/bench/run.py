#!/usr/bin/env python3
"""Side by side with transformers + PEFT in one run, alternating, medians. Every figure is ours divided by the peer's: below 1 is
better for times and memory, above 1 for rates. Wants a quiet machine; needs scripts/setup --golden.

usage: run.py [--binary build/release/app/vlmtune] [--python .venv-golden/bin/python] [--sizes small medium] [--rounds 3] [--checkpointing] [--only-steps] [--json]

"products" is the time of the matrix products alone that a step cannot do without, in LibTorch, divided by the peer's step: no step is
faster than that with LibTorch's products. --checkpointing turns it on on both sides.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
STEPS, TOKENS = 8, 48


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/app/vlmtune", type=Path)
    parser.add_argument("--python", default=ROOT / ".venv-golden/bin/python", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["small"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--only-steps", action="store_true", help="training alone, no inference")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/bench", help="where checkpoints are kept")
    parser.add_argument("--json", action="store_true", help="one JSON line per figure")
    return parser.parse_args()


def run(command):
    """(stdout, seconds, peak resident bytes) of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return out, time.perf_counter() - begin, usage.ru_maxrss * 1024


class Bench:
    def __init__(self, args, size, precision, scratch):
        self.args, self.precision, self.scratch = args, precision, scratch
        self.checkpoint = args.folder / f"{size}-{precision}"
        rows = [{"id": str(i), "image": str(args.folder / "picture.png"), "conversations": [
            {"from": "human", "value": "<image>"}, {"from": "gpt", "value": chr(97 + i) * 127}]} for i in range(2)]
        (scratch / "rows.json").write_text(json.dumps(rows))
        (scratch / "recipe.json").write_text(json.dumps({
            "model": {"path": str(self.checkpoint)}, "data": {"train": [str(scratch / "rows.json")]},
            "lora": {"r": 8, "alpha": 16, "dropout": 0, "target_modules": ["q_proj", "v_proj"]},
            "precision": {"compute": precision, "parameters": precision}, "memory": {"checkpointing": "full" if args.checkpointing else "none"},
            "optimizer": {"learning_rate": 1e-4, "max_grad_norm": 0}, "schedule": {"type": "constant", "warmup_ratio": 0},
            "train": {"max_steps": STEPS + 2, "per_device_batch_size": 2, "save_steps": 0}, "output": {"dir": str(scratch / "run")}}))

    def ours_step(self):
        _, _, rss = run([self.args.binary, "lora-finetune", "--recipe", self.scratch / "recipe.json", "--resume", "none"])
        lines = [json.loads(line) for line in (self.scratch / "run/metrics.jsonl").read_text().splitlines()]
        return statistics.median(line["step_seconds"] for line in lines[2:]), rss

    def peer_step(self):
        switch = ["checkpointing"] if self.args.checkpointing else []
        out, _, rss = run([self.args.python, HERE / "peer.py", "step", self.checkpoint, self.precision, str(STEPS), *switch])
        return json.loads(out)["seconds"], rss

    def products(self):
        return json.loads(run([self.args.python, HERE / "peer.py", "products", self.checkpoint, self.precision])[0])["seconds"]

    def infer(self, tokens):
        return run([self.args.binary, "infer", "--model", self.checkpoint, "--image", self.args.folder / "picture.png",
                    "--prompt", "<image>" + "What is in this picture? " * 5, "--max-new-tokens", str(tokens), "--json",
                    "--set", f"precision.compute={self.precision}", "--set", f"precision.parameters={self.precision}"])

    def ours_first(self):
        return self.infer(1)[1]

    def peer_first(self):
        return run([self.args.python, HERE / "peer.py", "first", self.checkpoint, self.precision])[1]

    def ours_decode(self):
        return json.loads(self.infer(TOKENS)[0])["timing"]["decode_tokens_per_s"]

    def peer_decode(self):
        return json.loads(run([self.args.python, HERE / "peer.py", "decode", self.checkpoint, self.precision, str(TOKENS)])[0])["tokens_per_s"]


def main():
    args = arguments()

    def report(name, ours, peer, unit):
        ratio = statistics.median(ours) / statistics.median(peer)
        if args.json:
            print(json.dumps({"name": name, "ratio": round(ratio, 4)}), flush=True)
        else:
            print(f"{name:<32} {ratio:6.3f}   ours {statistics.median(ours):.4g} {unit}, peer {statistics.median(peer):.4g} {unit}", flush=True)

    for size in args.sizes:
        args.folder.mkdir(parents=True, exist_ok=True)
        if not (args.folder / f"{size}-bf16/config.json").exists():
            run([args.python, HERE / "checkpoint.py", size, args.folder])
        for precision in ("fp32", "bf16"):
            with tempfile.TemporaryDirectory() as scratch:
                bench = Bench(args, size, precision, Path(scratch))
                label = f"{size}_{precision}" + ("_checkpointing" if args.checkpointing else "")
                steps = [(bench.ours_step(), bench.peer_step(), bench.products()) for _ in range(args.rounds)]
                peer_seconds = [peer[0] for _, peer, _ in steps]
                report(f"lora_step_{label}", [ours[0] for ours, _, _ in steps], peer_seconds, "s")
                report(f"products_{label}", [products for _, _, products in steps], peer_seconds, "s")
                report(f"rss_{label}", [ours[1] / 1e6 for ours, _, _ in steps], [peer[1] / 1e6 for _, peer, _ in steps], "MB")
                if args.only_steps:
                    continue
                for name, ours, peer, unit in (("first_token", bench.ours_first, bench.peer_first, "s"),
                                               ("decode", bench.ours_decode, bench.peer_decode, "tokens/s")):
                    pairs = [(ours(), peer()) for _ in range(args.rounds)]
                    report(f"{name}_{label}", [o for o, _ in pairs], [p for _, p in pairs], unit)


if __name__ == "__main__":
    main()
