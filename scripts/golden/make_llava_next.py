"""models/llava-next-*: anyres tiles of PNG files of several shapes through the published image processor."""
import torch
from PIL import Image
from transformers import (CLIPVisionConfig, LlavaNextConfig, LlavaNextForConditionalGeneration, LlavaNextImageProcessorPil,
                          MistralConfig, Qwen2Config, SiglipVisionConfig)

from make_images import EDGE, PATCH, PINPOINTS, SHORTEST, path, tokens_of
from tiny import IMAGE_TOKEN, TEXT, VISION, Rows, case_folder, forward_and_gradients, greedy, randomize, save_model, write_golden

IMAGES = [(30, 50), (61, 25), (100, 37), (28, 28)]      # height, width
CASES = {
    "llava-next-clip-mistral": LlavaNextConfig(
        text_config=MistralConfig(**TEXT, sliding_window=None), vision_config=CLIPVisionConfig(**VISION),
        image_token_index=IMAGE_TOKEN, image_grid_pinpoints=PINPOINTS),
    "llava-next-siglip-qwen2": LlavaNextConfig(
        text_config=Qwen2Config(**TEXT, tie_word_embeddings=True), vision_config=SiglipVisionConfig(**VISION), image_token_index=IMAGE_TOKEN,
        image_grid_pinpoints=PINPOINTS, vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=True),
}


def make(case, config):
    folder, model = case_folder("models", case), randomize(LlavaNextForConditionalGeneration(config), case)
    keys = save_model(model, folder)
    processor = LlavaNextImageProcessorPil(**SHORTEST, image_grid_pinpoints=PINPOINTS)
    processor.save_pretrained(folder)
    packed = processor([Image.open(path(*size)) for size in IMAGES], return_tensors="pt")
    n = [tokens_of(*size, EDGE, PATCH, PINPOINTS) for size in IMAGES]
    pictures = dict(pixel_values=packed.pixel_values, image_sizes=packed.image_sizes)
    with torch.no_grad():
        features = model.model.get_image_features(**pictures).pooler_output
    assert [len(f) for f in features] == n
    batch = Rows(case).add(("t", 2), ("i", n[0]), ("i", n[1]), ("t", 3), ("a", 6)) \
                      .add(("t", 6), ("a", 5)) \
                      .add(("t", 3), ("i", n[2]), ("t", 4), ("a", 3), ("i", n[3]), ("t", 1), ("a", 3)).batch() | pictures
    tensors, facts = forward_and_gradients(model, batch, keys)
    tensors["image_features"] = torch.cat(list(features))
    prompts = Rows(case + "/prompts").add(("t", 2), ("i", n[0]), ("i", n[1]), ("t", 3)).add(("t", 5)).add(("i", n[2]), ("t", 2)).ids
    images = [{k: v[:2] for k, v in pictures.items()}, {}, {k: v[2:3] for k, v in pictures.items()}]
    found = greedy(model, prompts, 10, images)
    facts |= {"image_tokens": n, "images": [path(*size).name for size in IMAGES],
              "generate": [entry | {"images": used} for entry, used in zip(found, ([0, 1], [], [2]))]}
    write_golden(folder, batch | tensors, facts)


for name, settings in CASES.items():
    make(name, settings)
