"""models/llava-onevision-*: anyres_max_9, whose features of large pictures are scaled down, and pictures in company, which get one tile."""
import math

import numpy as np
import torch
from PIL import Image
from transformers import (LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration, LlavaOnevisionImageProcessorPil,
                          LlavaOnevisionProcessor, Qwen2Config, SiglipVisionConfig)
from transformers.image_processing_utils import select_best_resolution

from make_images import path, picture
from tiny import (IMAGE_TOKEN, ROOT, SEED, TEXT, VERSIONS, VISION, Rows, case_folder, forward_and_gradients, greedy, randomize, save_model,
                  write_golden, write_json)

CASE, EDGE, PATCH = "llava-onevision-siglip-qwen2", 14, 4      # 3 x 3 patches, the last two pixels of each side dropped
LARGE = (53, 45)                                                # height, width; 4 x 4 tiles
IMAGES = [(100, 37), (28, 28), LARGE, (61, 25)]
TOGETHER = [2, 1, 1]                                            # pictures of each row that has any
PINPOINTS = [[h, w] for h in range(EDGE, 5 * EDGE, EDGE) for w in range(EDGE, 5 * EDGE, EDGE)]
PUBLISHED = [[h, w] for h in range(384, 2305, 384) for w in range(384, 2305, 384)]


def config():
    return LlavaOnevisionConfig(
        text_config=Qwen2Config(**TEXT, tie_word_embeddings=True),
        vision_config=SiglipVisionConfig(**VISION | dict(image_size=EDGE, patch_size=PATCH), vision_use_head=False),
        image_token_index=IMAGE_TOKEN, video_token_index=IMAGE_TOKEN + 1, image_grid_pinpoints=PINPOINTS, tie_word_embeddings=True)


def file(folder, size):
    return folder / path(*size).name if size == LARGE else path(*size)


def tokens_of(height, width, edge, patch, pinpoints, most="anyres_max_9"):
    """The published processor's count for a picture alone in its row."""
    processor = object.__new__(LlavaOnevisionProcessor)
    processor.num_image_tokens, processor.vision_aspect_ratio = (edge // patch) ** 2, most
    processor.image_processor = type("Pinpoints", (), {"image_grid_pinpoints": pinpoints})
    return processor._get_number_of_features(height, width, edge, edge)


def token_table(edge, patch, pinpoints, count, largest, special=(), most="anyres_max_9"):
    rng = np.random.Generator(np.random.PCG64(SEED))
    sizes = list(special) + [tuple(int(round(largest ** u)) for u in rng.uniform(0.35, 1, 2)) for _ in range(count)]
    rows = [[h, w, *select_best_resolution((h, w), pinpoints), tokens_of(h, w, edge, patch, pinpoints, most)] for h, w in sizes]
    return {"image_size": edge, "patch_size": patch, "vision_aspect_ratio": most, "grid_pinpoints": pinpoints, "rows": rows}


def make():
    folder, model = case_folder("models", CASE), randomize(LlavaOnevisionForConditionalGeneration(config()), CASE)
    keys = save_model(model, folder)
    Image.fromarray(picture(*LARGE)).save(file(folder, LARGE), optimize=True)
    processor = LlavaOnevisionImageProcessorPil(size={"height": EDGE, "width": EDGE}, image_grid_pinpoints=PINPOINTS)
    processor.save_pretrained(folder)
    images = [Image.open(file(folder, size)) for size in IMAGES]
    packed = processor([images[:2], images[2:3], images[3:]], return_tensors="pt")
    assert packed.batch_num_images.tolist() == TOGETHER
    pictures = dict(pixel_values=packed.pixel_values, image_sizes=packed.image_sizes)
    n = [(EDGE // PATCH) ** 2 + 1] * 2 + [tokens_of(*size, EDGE, PATCH, PINPOINTS) for size in IMAGES[2:]]
    with torch.no_grad():
        features = model.model.get_image_features(**pictures, batch_num_images=packed.batch_num_images).pooler_output
    assert [len(f) for f in features] == n
    assert tokens_of(*LARGE, EDGE, PATCH, PINPOINTS, "anyres_max_99") > n[2], "the large picture is not scaled down"
    batch = Rows(CASE).add(("t", 2), ("i", n[0]), ("i", n[1]), ("t", 3), ("a", 6)) \
                      .add(("t", 6), ("a", 5)) \
                      .add(("i", n[2]), ("t", 4), ("a", 5)) \
                      .add(("t", 3), ("i", n[3]), ("a", 3), ("t", 1), ("a", 3)).batch() | pictures
    tensors, facts = forward_and_gradients(model, batch | dict(batch_num_images=packed.batch_num_images), keys)
    tensors["image_features"] = torch.cat(list(features))
    prompts = Rows(CASE + "/prompts").add(("t", 2), ("i", n[0]), ("i", n[1]), ("t", 3)).add(("t", 5)).add(("i", n[2]), ("t", 2)) \
                                     .add(("t", 4), ("i", n[3]), ("t", 1)).ids
    rows = [[0, 1], [], [2], [3]]
    found = greedy(model, prompts, 10, [
        {k: v[used] for k, v in pictures.items()} | dict(batch_num_images=torch.tensor([len(used)])) if used else {} for used in rows])
    facts |= {"image_tokens": n, "images": [path(*size).name for size in IMAGES], "batch_num_images": TOGETHER,
              "tiles": [int((p != 0).flatten(1).any(1).sum()) for p in packed.pixel_values],
              "generate": [entry | {"images": used} for entry, used in zip(found, rows)]}
    write_golden(folder, batch | tensors, facts)


def make_table():
    special = [(384, 384), (1, 1), (1, 5000), (5000, 1), (2304, 2304), (385, 383), (1152, 1152), (1153, 1152), (1300, 1200), (3000, 4000), (480, 640)]
    # every shape around the threshold: sqrt(1.21 * 9) tiles a side
    special += [(int(384 * math.sqrt(9 * 1.21 * a)), int(384 * math.sqrt(9 * 1.21 / a))) for a in (0.25, 0.4, 0.5, 0.75, 1, 4 / 3, 2, 3, 4)]
    write_json(ROOT / "models" / CASE / "anyres.json", {
        "seed": SEED, "versions": VERSIONS, "columns": ["height", "width", "best_height", "best_width", "tokens"],
        "tables": [token_table(384, 14, PUBLISHED, 400, 5000, special), token_table(EDGE, PATCH, PINPOINTS, 100, 200),
                   token_table(384, 14, PUBLISHED, 60, 5000, special, "anyres_max_4")]})


make()
make_table()
