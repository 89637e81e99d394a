"""Makes the models and the data of the demo under demo/. Folders that are up to date are left alone.

usage: demo.py [language_model | dinov2_as_clip | dinov2 | data ...]     default: all
"""
import hashlib
import shutil
import sys
from pathlib import Path

import dinov2
import dinov2_as_clip
import emoji
import language_model
import rows
import stamps

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "demo"


def data(out):
    images = out / "images"
    images.mkdir()
    photographs, drawings = stamps.records(images), emoji.records(images)
    print(f"  {len(photographs)} stamps, {len(drawings)} emoji", flush=True)
    training, held_out = rows.write(out, photographs, drawings)
    print(f"  {training} training rows, {held_out} held-out rows")


# name: (folder, what fills it, the sources whose change makes the folder out of date)
STEPS = {
    "language_model": ("models/SmolLM2-135M-Instruct", language_model.write, ["language_model.py"]),
    "dinov2_as_clip": ("models/dinov2-small-clip", dinov2_as_clip.write, ["dinov2.py", "dinov2_as_clip.py"]),
    "dinov2": ("models/dinov2", dinov2.write, ["dinov2.py"]),
    "data": ("data", data, ["stamps.py", "emoji.py", "rows.py", "pictures.py", "demo.py"]),
}


def prepare(name):
    folder, fill, sources = STEPS[name]
    target, part = DEMO / folder, DEMO / (folder + ".part")
    digest = hashlib.sha256(b"".join((HERE / source).read_bytes() for source in sources)).hexdigest()
    mark = target / "prepared.txt"
    if mark.exists() and mark.read_text() == digest:
        print(f"demo/{folder}: up to date", flush=True)
        return
    print(f"demo/{folder}: preparing", flush=True)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    fill(part)
    (part / "prepared.txt").write_text(digest)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


if __name__ == "__main__":
    for step in sys.argv[1:] or STEPS:
        if step not in STEPS:
            sys.exit(f"unknown step {step}; there are {', '.join(STEPS)}")
        prepare(step)
