"""models/llava-next-*: anyres tiles of PNG files of several shapes through the published image processor."""
import json

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (CLIPVisionConfig, LlamaConfig, LlavaNextConfig, LlavaNextForConditionalGeneration, LlavaNextImageProcessorPil,
                          MistralConfig, Qwen2Config, SiglipVisionConfig)

from make_images import EDGE, PATCH, PINPOINTS, SHORTEST, path, tokens_of
from tiny import (IMAGE_TOKEN, NUM_TOKENS, TEXT, VISION, Rows, case_folder, forward_and_gradients, greedy, randomize, save_model,
                  write_golden)

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


def old_name(name):
    return "language_model." + name if name.startswith("lm_head") else \
        name.removeprefix("model.").replace("language_model.", "language_model.model.").replace("vision_tower.", "vision_tower.vision_model.")


def make_llama3():
    """What the conversion of LLaVA-1.6 with Llama-3 (or Yi, which differs in numbers only) wrote: keys and names of transformers 4.39."""
    case = "llava-next-clip-llama3"
    text = TEXT | dict(rms_norm_eps=1e-5, eos_token_id=3, pad_token_id=NUM_TOKENS)
    model = randomize(LlavaNextForConditionalGeneration(LlavaNextConfig(
        text_config=LlamaConfig(**text, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}), vision_config=CLIPVisionConfig(**VISION),
        image_token_index=IMAGE_TOKEN, image_grid_pinpoints=PINPOINTS)), case)
    folder = case_folder("models", case)
    save_file({old_name(k): v.clone() for k, v in model.state_dict().items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlavaNextForConditionalGeneration"], "ignore_index": -100, "image_grid_pinpoints": PINPOINTS,
        "image_token_index": IMAGE_TOKEN, "model_type": "llava_next", "projector_hidden_act": "gelu",
        "text_config": text | {"_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct", "architectures": ["LlamaForCausalLM"],
                               "model_type": "llama", "rope_theta": 500000.0, "torch_dtype": "float32"},
        "torch_dtype": "float32", "transformers_version": "4.39.0.dev0", "use_image_newline_parameter": True,
        "vision_config": VISION | {"model_type": "clip_vision_model", "projection_dim": 16, "vocab_size": 20},
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 140}, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": NUM_TOKENS}) + "\n")
    size = IMAGES[3]
    packed = LlavaNextImageProcessorPil(**SHORTEST, image_grid_pinpoints=PINPOINTS)([Image.open(path(*size))], return_tensors="pt")
    pictures, n = dict(pixel_values=packed.pixel_values, image_sizes=packed.image_sizes), tokens_of(*size, EDGE, PATCH, PINPOINTS)
    batch = Rows(case).add(("t", 2), ("i", n), ("t", 3), ("a", 6)).add(("t", 6), ("a", 5)).batch() | pictures
    read = LlavaNextForConditionalGeneration.from_pretrained(folder).eval()
    tensors, facts = forward_and_gradients(read, batch, (), gradients=False)
    assert torch.equal(tensors["logits"], forward_and_gradients(model, batch, (), gradients=False)[0]["logits"])
    found = greedy(read, Rows(case + "/prompts").add(("t", 4), ("i", n), ("t", 2)).ids, 10, [pictures])
    write_golden(folder, batch | tensors, facts | {"image_tokens": [n], "images": [path(*size).name], "generate": [found[0] | {"images": [0]}]})


for name, settings in CASES.items():
    make(name, settings)
make_llama3()
