#!/usr/bin/env python3
"""Who may include whom. Reads every #include "..." under app, lib and kernels and fails on anything not allowed."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {  # room -> rooms it may include besides itself and base
    "base": set(),
    "checkpoint": set(), "text": set(), "image": set(), "recipe": set(), "runs": set(), "kernels": set(), "memory": {"kernels"},
    "optim": {"kernels", "memory"},
    "data": {"text", "image"},
    "evaluate": {"text"},
    "nn": {"kernels", "memory"},
    "models": {"nn", "checkpoint", "image", "kernels", "memory"},  # image: the anyres geometry that data and model share
    "generate": {"models", "nn", "memory"},
    "train": {"data", "models", "nn", "memory", "optim", "checkpoint"},
    "pipeline": {"recipe", "text", "image", "data", "checkpoint", "nn", "models", "optim", "memory", "train", "generate", "evaluate"},
}
ALLOWED["profile"] = set(ALLOWED) - {"runs"}
ALLOWED["app"] = set(ALLOWED) | {"runs"}
NO_JSON_IN_HEADERS = re.compile(r'#include\s+[<"]nlohmann/')


def room_of(path):
    parts = Path(path).parts
    return parts[1] if parts[0] == "lib" else parts[0]


def main():
    problems = []
    files = [f for top in ("app", "lib", "kernels") for f in (ROOT / top).rglob("*") if f.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    for file in files:
        name = file.relative_to(ROOT)
        room = room_of(name)
        text = file.read_text(encoding="utf-8")
        if file.suffix in {".h", ".cuh"} and NO_JSON_IN_HEADERS.search(text):
            problems.append(f"{name}: nlohmann/json in a header")
        if "cuda" in text.lower() and re.search(r"#include\s+<(cuda|cublas|nccl)", text) and name.parts[:2] != ("kernels", "cuda"):
            problems.append(f"{name}: CUDA headers outside kernels/cuda")
        for include in re.findall(r'#include\s+"([^"]+)"', text):
            if not (ROOT / include).exists():
                problems.append(f"{name}: includes {include}, which does not exist (paths start at the project's root)")
                continue
            other = room_of(include)
            if other not in ALLOWED[room] | {room, "base"}:
                problems.append(f"{name}: {room} may not include {other} ({include})")
    print("\n".join(problems) or f"{len(files)} files keep to the layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
