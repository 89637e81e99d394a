"""Captioned drawings: Noto's colour emoji with their CLDR names (Debian packages; OFL-1.1, Unicode licence)."""
import html
import re

from PIL import Image, ImageDraw, ImageFont

import fetch
from pictures import on_white_square

FONT = ("fonts-noto-color-emoji", "usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
NAMES = ("unicode-cldr-core", "usr/share/unicode/cldr/common/annotations/en.xml")
GROUPS = ("unicode-data", "usr/share/unicode/emoji/emoji-test.txt")
SKIN_TONES = "[\U0001F3FB-\U0001F3FF]"
FONT_SIZE = 109  # the one size of the font's bitmaps

# Unicode's subgroup (its beginning) -> the kinds of the stamps; "" has no kind, other subgroups are left out.
KINDS = {
    "animal-": "an animal", "plant-": "a plant", "food-": "food", "drink": "food", "dishware": "a household item",
    "transport-ground": "a vehicle", "transport-water": "a vehicle", "transport-air": "a vehicle",
    "place-building": "a building", "place-religious": "a building", "clothing": "a piece of clothing",
    "household": "a household item", "tool": "a household item", "computer": "a household item", "phone": "a household item",
    "light & video": "a household item", "writing": "a household item", "office": "a household item",
    "musical-instrument": "a musical instrument", "sport": "sports equipment",
    "person-role": "a person", "person-activity": "a person", "person-sport": "a person", "person-fantasy": "a person",
    "place-geographic": "", "place-other": "", "sky & weather": "", "event": "", "game": "", "arts & crafts": "", "science": "",
    "medical": "", "book-paper": "", "money": "", "mail": "", "lock": "", "other-object": "", "cat-face": "", "monkey-face": "",
}
# Men and women at work look alike and would fill a fifth of the set; some means of transport are none.
LEFT_OUT = re.compile(r"^(wo)?m[ae]n |^people |^person |breast-feeding|bus stop|motorway|railway track|oil drum|fuel pump|"
                      r"^station|traffic light|stop sign|^construction$|anchor|buoy|^seat|^ice$|car light")
MASS_OR_PLURAL = re.compile(r"(rice|spaghetti|bread|bacon|sushi|cream|butter|salt|broccoli|garlic|popcorn|sake|ice|shrimp|food|corn|"
                            r"soap|camping|cooking|[^suo]s)$")


def records(images):
    """Writes the pictures to the folder `images`; returns [{"image", "caption", "kind"}] in Unicode's order."""
    font = ImageFont.truetype(str(fetch.debian(FONT[0]) / FONT[1]), FONT_SIZE)
    names = (fetch.debian(NAMES[0]) / NAMES[1]).read_text(encoding="utf-8")
    names = {html.unescape(char): html.unescape(name)
             for char, name in re.findall(r'<annotation cp="([^"]+)" type="tts">([^<]+)<', names)}
    found = []
    for char, subgroup in fully_qualified():
        kind = next((kind for start, kind in KINDS.items() if subgroup.startswith(start)), None)
        name = names.get(char) or names.get(char.replace("\ufe0f", ""))
        if kind is None or name is None or LEFT_OUT.search(name) or re.search(SKIN_TONES, char):
            continue
        picture = draw(font, char)
        if picture is None:
            continue
        file = "emoji_" + "_".join(f"{ord(c):x}" for c in char if c != "\ufe0f") + ".png"
        picture.save(images / file)
        found.append({"image": file, "caption": caption(name), "kind": kind})
    return found


def fully_qualified():
    subgroup = ""
    for line in (fetch.debian(GROUPS[0]) / GROUPS[1]).read_text(encoding="utf-8").splitlines():
        if line.startswith("# subgroup: "):
            subgroup = line.removeprefix("# subgroup: ")
        elif "; fully-qualified" in line:
            yield "".join(chr(int(code, 16)) for code in line.partition(";")[0].split()), subgroup


def draw(font, char):
    """The glyph, or None where the font lacks it or draws several (an unknown sequence falls apart)."""
    if font.getlength(char) > 1.5 * FONT_SIZE:
        return None
    canvas = Image.new("RGBA", (160, 160), (255, 255, 255, 0))
    ImageDraw.Draw(canvas).text((8, 8), char, font=font, embedded_color=True)
    return on_white_square(canvas)


def caption(name):
    """CLDR's bare name as the stamps would say it: "water buffalo" -> "A water buffalo."."""
    if MASS_OR_PLURAL.search(name):
        return name[0].upper() + name[1:] + "."
    return ("An " if name[0].lower() in "aeiou" else "A ") + name + "."
