"""images/: PNG files, what each published image processor makes of them, and LLaVA-NeXT token counts of many sizes."""
import numpy as np
import torch
from PIL import Image
from transformers import (CLIPImageProcessor, CLIPImageProcessorPil, LlavaImageProcessor, LlavaImageProcessorPil,
                          LlavaNextImageProcessor, LlavaNextImageProcessorPil, LlavaNextProcessor, SiglipImageProcessor,
                          SiglipImageProcessorPil)
from transformers.image_processing_utils import select_best_resolution
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from tiny import ROOT, SEED, VERSIONS, case_folder, write_golden, write_json

SIZES = [(30, 50), (61, 25), (100, 37), (28, 28), (41, 40), (17, 90), (3, 5)]   # height, width
EXTREMES = [(1, 1), (1, 200)]
EDGE, PATCH = 28, 7
PINPOINTS = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]                   # height, width
REAL_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
SHORTEST = dict(size={"shortest_edge": EDGE}, crop_size={"height": EDGE, "width": EDGE})
PROCESSORS = {
    "clip": (CLIPImageProcessor, CLIPImageProcessorPil, SHORTEST),
    "llava-pad": (LlavaImageProcessor, LlavaImageProcessorPil, SHORTEST | dict(do_pad=True)),
    "siglip": (SiglipImageProcessor, SiglipImageProcessorPil, dict(size={"height": EDGE, "width": EDGE})),
    "llava-next": (LlavaNextImageProcessor, LlavaNextImageProcessorPil, SHORTEST | dict(image_grid_pinpoints=PINPOINTS)),
}


def picture(height, width):
    """Smooth colours, a sharp-edged disc and noise: resampling errors show."""
    rng = np.random.Generator(np.random.PCG64(SEED + 1000 * height + width))
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    base = np.stack([np.sin(x / 5 + c) + np.cos(y / 7 - 2 * c) for c in range(3)], -1) * 50 + 128
    base[(y - height / 3) ** 2 + (x - width / 2) ** 2 < (min(height, width) / 4) ** 2] = (250, 20, 60)
    return np.clip(base + rng.normal(0, 12, base.shape), 0, 255).astype(np.uint8)


def path(height, width):
    return ROOT / "images" / f"picture_{height}x{width}.png"


def tokens_of(height, width, edge, patch, pinpoints):
    """The published processor's count, CLS dropped."""
    processor = object.__new__(LlavaNextProcessor)
    processor.patch_size, processor.num_additional_image_tokens = patch, 1
    processor.image_processor = type("Pinpoints", (), {"image_grid_pinpoints": pinpoints})
    return processor._get_number_of_features(height, width, edge, edge) - 1


def anyres_table(edge, patch, pinpoints, count, largest, special=()):
    rng = np.random.Generator(np.random.PCG64(SEED))
    sizes = list(special) + [tuple(int(round(largest ** u)) for u in rng.uniform(0.35, 1, 2)) for _ in range(count)]
    rows = [[h, w, *select_best_resolution((h, w), pinpoints), tokens_of(h, w, edge, patch, pinpoints)] for h, w in sizes]
    return {"image_size": edge, "patch_size": patch, "grid_pinpoints": pinpoints, "rows": rows}


def smart_resize_table():
    """Rows [height, width, block, min_pixels, max_pixels, new height, new width] of Qwen-VL's resizing."""
    rng, rows = np.random.Generator(np.random.PCG64(SEED)), []
    for block, least, most in ((28, 56 * 56, 28 * 28 * 1280), (28, 3136, 12845056), (32, 65536, 16777216), (8, 256, 1536), (28, 784, 784)):
        sizes = [tuple(int(round(3000 ** u)) for u in rng.uniform(0.35, 1, 2)) for _ in range(60)]
        sizes += [(1, 1), (1, 200), (200, 1), (14, 42), (70, 98), (2800, 14), (block // 2, 3 * block // 2)]
        rows += [[h, w, block, least, most, *smart_resize(h, w, block, least, most)] for h, w in sizes if max(h, w) <= 200 * min(h, w)]
    return rows


def main():
    folder = case_folder("images")
    for size in SIZES + EXTREMES:
        Image.fromarray(picture(*size)).save(path(*size), optimize=True)
    images = [Image.open(path(*size)) for size in SIZES]
    tensors, facts = {}, {"files": [path(*s).name for s in SIZES], "sizes": SIZES, "torchvision_difference": {}}
    for name, (fast, pil, options) in PROCESSORS.items():
        processor = pil(**options)
        processor.save_pretrained(folder / name)
        out = processor(images, return_tensors="pt")
        other = fast(**options)(images, return_tensors="pt").pixel_values
        # in units of one 8-bit step, the two backends of transformers against each other
        steps = (out.pixel_values - other).abs() * torch.tensor(processor.image_std)[:, None, None] * 255
        facts["torchvision_difference"][name] = {"max": round(steps.max().item(), 3), "mean": round(steps.mean().item(), 5)}
        tensors[f"{name}.pixel_values"] = out.pixel_values
        if "image_sizes" in out:
            tensors[f"{name}.image_sizes"] = out.image_sizes
            facts["patches"] = [int((p != 0).flatten(1).any(1).sum()) for p in out.pixel_values]
            facts["tokens"] = [tokens_of(h, w, EDGE, PATCH, PINPOINTS) for h, w in SIZES]
    write_golden(folder, tensors, facts)
    special = [(480, 640), (1080, 1920), (100, 1000), (1000, 100), (336, 336), (337, 335), (672, 672), (1, 1), (1, 300), (300, 1)]
    write_json(folder / "anyres.json", {"seed": SEED, "versions": VERSIONS, "columns": ["height", "width", "best_height", "best_width", "tokens"],
               "tables": [anyres_table(336, 14, REAL_PINPOINTS, 400, 3000, special),
                          anyres_table(EDGE, PATCH, PINPOINTS, 100, 300)]})
    write_json(folder / "smart_resize.json", {"seed": SEED, "versions": VERSIONS, "rows": smart_resize_table()})


if __name__ == "__main__":
    main()
