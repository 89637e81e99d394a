"""One table of the demo's runs: what each vision tower costs, and what the model makes of pictures it never saw with it.

usage: towers.py RUNS      the folder of scripts/demo's runs: demo*-lora and demo*-answers
"""
import json
import math
import statistics
import sys
from pathlib import Path

from held_out import answers, token_mean

DEMO = Path(__file__).resolve().parents[2]


def main(runs):
    rows = [facts(answered.parent) for answered in sorted(runs.glob("demo*-answers/kinds_scores.json"))]
    widths = [max(len(row[name]) for row in [{name: name}, *rows]) for name in rows[0]]
    for cells in (rows[0].keys(), *(row.values() for row in rows)):
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(cells, widths)))
    print("Step and memory are those of LoRA: the median step, and the most that was allocated. Metrics are of the captions but for the last.")


def facts(folder):
    """{column: cell} of the run whose answers lie in `folder`."""
    lora = folder.with_name(folder.name.removesuffix("answers") + "lora")
    tower = DEMO / read(lora / "recipe.json")["model"]["vision_tower"]
    steps = [line for line in map(json.loads, (lora / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
    captions, kinds = read(folder / "captions_scores.json"), read(folder / "kinds_scores.json")
    return {
        "tower": tower.name,
        "parameters": f"{parameters(tower / 'model.safetensors') / 1e6:.1f} M",
        "tokens a picture": f"{sum(s['image_tokens'] for s in steps) / sum(s['samples'] for s in steps):.0f}",
        "step": f"{statistics.median(s['step_seconds'] for s in steps):.2f} s",
        "memory": f"{max(s['peak_memory_bytes'] for s in steps) / 1e6:.0f} MB",
        "loss, own picture": f"{token_mean(answers(folder / 'own_answers.jsonl', 'loss')):.3f}",
        "another's": f"{token_mean(answers(folder / 'other_answers.jsonl', 'loss')):.3f}",
        "ROUGE-L": f"{captions['rouge_l']:.3f}",
        "CIDEr-D": f"{captions['cider']:.3f}",
        "exact": f"{captions['exact_match']:.1%}",
        "kind right": f"{kinds['exact_match']:.0%}",
    }


def parameters(path):
    """Elements of all tensors of a safetensors file, from its header."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
