"""image/: Pillow's resize, transformers' PIL image processors, LLaVA-NeXT token counts, difficult files.

usage: make_image.py [FOLDER_WITH_DIFFICULT_FILES]

Made with Pillow 13.0.0, transformers 5.17.0, numpy 2.4.6, seed 7. The difficult files are Pillow's own test pictures
(Pillow sdist, Tests/images); without a folder of them those that are in the repository are measured again.
"""
import json
import os
import pathlib
import shutil
import sys

import numpy as np
import PIL
import transformers
from PIL import Image, ImageDraw, ImageOps
from transformers.image_processing_utils import select_best_resolution
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import unpad_image
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = pathlib.Path(os.environ.get("GOLDEN_ROOT") or GOLDEN) / "image"
DIFFICULT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN / "image" / "difficult"
SEED = 7
SIZES = [(64, 48), (53, 37), (37, 53), (120, 31), (31, 120), (90, 90), (1, 1), (1, 9), (9, 1)]  # width, height
LARGEST_DIFFICULT = 60_000
FILTERS = [Image.NEAREST, Image.LANCZOS, Image.BILINEAR, Image.BICUBIC, Image.BOX, Image.HAMMING]

PROCESSORS = {
    "clip": (CLIPImageProcessorPil, {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}),
    "clip_odd_crop": (CLIPImageProcessorPil, {"size": {"shortest_edge": 20}, "crop_size": {"height": 33, "width": 27}}),
    "clip_no_norm": (CLIPImageProcessorPil, {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16},
                                             "do_normalize": False, "resample": 2}),
    "siglip": (SiglipImageProcessorPil, {"size": {"height": 28, "width": 28}}),
    "llava": (LlavaImageProcessorPil, {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}),
    "llava_pad": (LlavaImageProcessorPil, {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28},
                                           "do_pad": True}),
    "llava_next": (LlavaNextImageProcessorPil, {
        "size": {"shortest_edge": 14}, "crop_size": {"height": 14, "width": 14},
        "image_grid_pinpoints": [[14, 28], [28, 14], [28, 28], [42, 14], [14, 42]]}),
}


def picture(rng, width, height):
    """Smooth colours, hard edges and a little noise: what shows a wrong filter."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [128 + 100 * np.sin(x / (5 + 3 * c) + y / (7 + c)) for c in range(3)]
    image = Image.fromarray(np.clip(np.stack(planes, -1) + rng.integers(-12, 13, (height, width, 3)), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.rectangle([width // 4, height // 4, width // 2, height // 2], fill=(255, 255, 255))
    draw.line([0, height, width, 0], fill=(0, 0, 0), width=2)
    return image


def resize_cases(out, inputs):
    """The expected bytes, one picture after the other."""
    cases, data = [], bytearray()
    for name, image in inputs.items():
        for target in [(28, 28), (41, 17), (image.width, 50), (150, image.height)]:
            filters = FILTERS if name in ("53x37", "1x9") and target == (41, 17) else [Image.BICUBIC]
            for resample in filters:
                resized = image.resize(target, resample=resample)
                cases.append({"image": f"{name}.png", "width": target[0], "height": target[1], "resample": int(resample),
                              "offset": len(data)})
                data += np.asarray(resized).tobytes()
    (out / "resized.bin").write_bytes(data)
    return cases


def processor_cases(out, inputs):
    """pixel_values in float32, one picture after the other."""
    cases, data = [], bytearray()
    for kind, (cls, settings) in PROCESSORS.items():
        processor = cls(**settings)
        config = {k: v for k, v in processor.to_dict().items() if isinstance(v, (bool, int, float, str, list, tuple, dict))}
        for name, image in inputs.items():
            pixels = np.asarray(processor(image, return_tensors="np")["pixel_values"][0], dtype=np.float32)
            pixels = pixels if pixels.ndim == 4 else pixels[None]
            cases.append({"kind": kind, "image": f"{name}.png", "config": config, "shape": list(pixels.shape),
                          "offset": len(data)})
            data += pixels.tobytes()
    (out / "pixels.bin").write_bytes(data)
    return cases


def token_cases(rng):
    """[width, height, tokens, kept rows, kept columns] for the published LLaVA-NeXT settings (336 px, 14 px patches)."""
    processor = LlavaNextProcessor.__new__(LlavaNextProcessor)
    processor.image_processor = LlavaNextImageProcessorPil()
    processor.patch_size, processor.num_additional_image_tokens = 14, 0
    pinpoints = processor.image_processor.image_grid_pinpoints
    sizes = [(480, 640), (1080, 1920), (100, 1000), (1000, 100), (336, 336), (1, 1), (1, 5000), (5000, 1), (337, 673)]
    sizes += [tuple(int(v) for v in rng.integers(1, 3000, 2)) for _ in range(200)]
    cases = []
    for height, width in sizes:
        tokens = processor._get_number_of_features(height, width, 336, 336)
        best = select_best_resolution([height, width], pinpoints)
        features = np.zeros((1, best[0] // 14, best[1] // 14), np.float32)
        kept = unpad_image(features, [height, width]).shape[1:]
        assert tokens == 24 * 24 + kept[0] * (kept[1] + 1), (height, width)
        cases.append([width, height, tokens, *kept])
    return {"pinpoints": pinpoints, "tile": 336, "patches": 24, "cases": cases}


def difficult_case(path):
    """What Pillow makes of a file, on white; or that it raises."""
    with Image.open(path) as image:
        image.load()
        case = {"file": path.name, "mode": image.mode, "format": image.format}
        upright = ImageOps.exif_transpose(image)
        alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
        if alpha:
            rgba = upright.convert("RGBA")
            rgb = Image.new("RGB", rgba.size, (255, 255, 255))
            rgb.paste(rgba, mask=rgba.getchannel("A"))
        else:
            rgb = upright.convert("RGB")
        case["size"] = list(rgb.size)
        case["mean_rgb"] = [round(float(v), 3) for v in np.asarray(rgb, np.float64).reshape(-1, 3).mean(0)]
        case["first_pixel"], case["last_pixel"] = list(rgb.getpixel((0, 0))), list(rgb.getpixel((rgb.width - 1, rgb.height - 1)))
    return case


def difficult_cases(out):
    if not out.exists() or not out.samefile(DIFFICULT):
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(DIFFICULT.iterdir()):
            if path.suffix != ".json" and path.stat().st_size < LARGEST_DIFFICULT:
                shutil.copyfile(path, out / path.name)
    cases = []
    for path in sorted(out.iterdir()):
        if path.suffix == ".json" or path.name == "LICENCE":
            continue
        try:
            cases.append(difficult_case(path))
        except Exception as error:  # whatever Pillow raises is the answer
            cases.append({"file": path.name, "error": type(error).__name__})
    lines = ",\n".join(json.dumps(case) for case in cases)
    (out / "manifest.json").write_text(f"[\n{lines}\n]\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    inputs = {f"{w}x{h}": picture(rng, w, h) for w, h in SIZES}
    for name, image in inputs.items():
        image.save(OUT / f"{name}.png", optimize=True)
    golden = {
        "made_with": {"pillow": PIL.__version__, "transformers": transformers.__version__, "numpy": np.__version__, "seed": SEED},
        "resize": resize_cases(OUT, inputs),
        "processors": processor_cases(OUT, inputs),
        "llava_next": token_cases(rng),
    }
    (OUT / "golden.json").write_text(json.dumps(golden) + "\n")
    difficult_cases(OUT / "difficult")


if __name__ == "__main__":
    main()
