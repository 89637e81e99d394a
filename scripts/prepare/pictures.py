"""Pictures for the demo: cut-outs on a white square of one size, so that no later step has to crop or pad them."""
from PIL import Image

SIDE = 224
MARGIN = 0.06
SMALLEST = 32


def on_white_square(picture, side=SIDE):
    """`picture` without its transparent border, centred on white; None if nothing worth seeing is left."""
    picture = picture.convert("RGBA")
    box = picture.getchannel("A").point(lambda alpha: 255 * (alpha > 8)).getbbox()
    if box is None:
        return None
    picture = picture.crop(box)
    if max(picture.size) < SMALLEST:
        return None
    room = side * (1 - 2 * MARGIN)
    scale = room / max(picture.size)
    size = [max(1, round(length * scale)) for length in picture.size]
    picture = picture.resize(size, Image.Resampling.LANCZOS)
    square = Image.new("RGBA", (side, side), "white")
    square.alpha_composite(picture, ((side - size[0]) // 2, (side - size[1]) // 2))
    return square.convert("RGB")
