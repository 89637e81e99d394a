"""Captioned photographs and drawings of single things: the stamps of Tux Paint (Debian package, GPL-2).

Each <name>.txt holds the English caption in its first line; beside it lies <name>.png or <name>.svg.
"""
import io
import re

import resvg_py
from PIL import Image

import fetch
from pictures import on_white_square

PACKAGE = "tuxpaint-stamps-default"
FOLDER = "usr/share/tuxpaint/stamps"

# What kind of thing a stamp shows: the first prefix of its path that fits. None: leave the stamp out
# (letters and coins, jokes, and what has its place by the calendar, not by its looks).
KINDS = [
    ("symbols/", None), ("seasonal/", None), ("town/roadsigns/", None), ("medical/", None), ("naturalforces/", None),
    ("household/", "a household item"),
    ("animals/", "an animal"), ("plants/", "a plant"), ("food/", "food"), ("clothes/", "a piece of clothing"),
    ("town/flags/", "a flag"), ("town/", "a building"),
    ("military/vehicles/", "a vehicle"), ("military/", None), ("vehicles/", "a vehicle"),
    ("people/body_parts/", None), ("people/", "a person"), ("hobbies/music/", "a musical instrument"), ("hobbies/", None),
    ("sports/", "sports equipment"), ("space/", "something in space"),
]
LONGEST_CAPTION = 8  # words


def records(images):
    """Writes the pictures to the folder `images`; returns [{"image", "caption", "kind"}] in a fixed order."""
    root = fetch.debian(PACKAGE) / FOLDER
    found = []
    for text in sorted(root.rglob("*.txt")):
        path = text.relative_to(root).with_suffix("").as_posix()
        kind = next((kind for prefix, kind in KINDS if path.startswith(prefix)), None)
        caption = clean_caption(text.read_text(encoding="utf-8", errors="replace"))
        picture = read_picture(text) if kind and caption else None
        if picture is None:
            continue
        name = "stamp_" + re.sub(r"[^a-z0-9]+", "_", path.lower()) + ".jpg"
        picture.save(images / name, quality=92)
        found.append({"image": name, "caption": caption, "kind": kind})
    return found


def clean_caption(text):
    """The first sentence of the English line, if it is short and describes something; else None."""
    caption = re.sub(r"\([^)]*\)", "", text.partition("\n")[0]).replace("’", "'")
    caption = re.split(r"(?<=[.!?])\s|[–—]", caption.strip())[0]
    caption = re.sub(r"\s+", " ", re.sub(r"[“”\"]", "", caption)).strip(" .") + "."
    if caption.endswith(("!.", "?.")) or not 1 <= len(caption.split()) <= LONGEST_CAPTION:
        return None
    if re.search(r"\b(tux|eddie|edward)\b", caption, re.IGNORECASE) or not caption[0].isalpha():
        return None
    return caption.replace("An hippopotamus", "A hippopotamus")


def read_picture(text):
    png, svg = text.with_suffix(".png"), text.with_suffix(".svg")
    try:
        if png.exists():
            return on_white_square(Image.open(png))
        if svg.exists():
            return on_white_square(Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_path=str(svg), width=512)))))
    except (OSError, ValueError):  # two of the SVG files are empty
        pass
    return None
