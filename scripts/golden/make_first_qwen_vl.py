"""models/qwen-vl: the first Qwen-VL by qwen_vl_reference.py; micro-batches for its training."""
import json

import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import transforms
from transformers import CLIPImageProcessorPil

import qwen_vl_reference as reference
from make_images import path
from tiny import IMAGE_TOKEN, Rows, case_folder, forward_and_gradients, generator, greedy, math, write_golden

CASE, START, QUERIES = "qwen-vl", 133, 9
IMAGES = [(30, 50), (61, 25), (100, 37)]
SIZE = 42
CONFIG = {
    "architectures": ["QWenLMHeadModel"], "attn_dropout_prob": 0.0, "auto_map": {
        "AutoConfig": "configuration_qwen.QWenConfig", "AutoModelForCausalLM": "modeling_qwen.QWenLMHeadModel"},
    "bf16": False, "emb_dropout_prob": 0.0, "fp16": False, "fp32": True, "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 104,
    "kv_channels": 8, "layer_norm_epsilon": 1e-6, "max_position_embeddings": 8192, "model_type": "qwen", "no_bias": True, "num_attention_heads": 4,
    "num_hidden_layers": 2, "onnx_safe": None, "rotary_emb_base": 10000, "rotary_pct": 1.0, "scale_attn_weights": True, "seq_length": 40,
    "tie_word_embeddings": False, "tokenizer_type": "QWenTokenizer", "torch_dtype": "float32", "transformers_version": "4.31.0", "use_cache": True,
    "use_dynamic_ntk": True, "use_flash_attn": False, "use_logn_attn": True, "visual": {
        "heads": 3, "image_size": SIZE, "image_start_id": START, "layers": 2, "mlp_ratio": 1.7, "output_dim": 32, "patch_size": 7, "width": 24,
        "n_queries": QUERIES, "attn_pool_head_dim": 8},
    "vocab_size": 140}


def weights():
    made = {}
    for name, shape in reference.shapes(CONFIG):
        values = torch.randn(shape, generator=generator(CASE, name))
        if ".ln_" in name and name.endswith("weight"):
            values = 1 + 0.2 * values
        elif name.endswith("bias"):
            values = 0.2 * values
        elif "wte" in name:
            values = 0.25 * values
        elif name.endswith(("query", "positional_embedding")):
            values = 0.5 * values
        elif name.endswith("pos_embed"):
            values = reference.sincos_positions(shape[1], math.isqrt(shape[0]))
        else:
            values = values * 1.2 / math.sqrt(values[0].numel())
        if "wte" in name or "lm_head" in name:
            values[IMAGE_TOKEN:] *= 0.2
        made[name] = torch.nn.Parameter(values)
    return made


def with_paths(rows):
    """Each run of QUERIES + 2 placeholders becomes <img>, the bytes of a path as ids, padding, </img>."""
    for ids in rows:
        while IMAGE_TOKEN in ids:
            at, text = ids.index(IMAGE_TOKEN), list(b"cat.png")
            assert ids[at:at + QUERIES + 2] == [IMAGE_TOKEN] * (QUERIES + 2)
            ids[at:at + QUERIES + 2] = [START, *text, *[START + 2] * (QUERIES - len(text)), START + 1]
    return rows


def rows(key, *segments):
    made = Rows(key)
    for row in segments:
        made.add(*((kind, n + 2 if kind == "i" else n) for kind, n in row))
    with_paths(made.ids)
    return made


def micro_batches(plans):
    for index, plan in enumerate(plans):
        made = rows(f"{CASE}/micro-batch {index}", *plan)
        batch = made.batch()
        count = sum(kind == "i" for row in plan for kind, _ in row)
        noise = torch.randn((count, 3, SIZE, SIZE), generator=generator(CASE, "pixels", index))
        yield batch | (dict(pixel_values=noise) if count else {})


def pixels():
    """torchvision's transforms, which the published code uses."""
    clip = CLIPImageProcessorPil(size={"height": SIZE, "width": SIZE}, do_center_crop=False)
    images = [Image.open(path(*size)).convert("RGB") for size in IMAGES]
    change = transforms.Compose([transforms.Resize((SIZE, SIZE), interpolation=transforms.InterpolationMode.BICUBIC), transforms.ToTensor(),
                                 transforms.Normalize(clip.image_mean, clip.image_std)])
    made = torch.stack([change(image) for image in images])
    assert torch.allclose(made, clip(images, return_tensors="pt").pixel_values, atol=1e-6)
    return made


def main():
    folder, model = case_folder("models", CASE), reference.QwenVL(CONFIG, weights())
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"chat_format": "chatml", "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}) + "\n")
    save_file({k: v.detach() for k, v in model.weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})

    n = QUERIES
    batch = rows(CASE, [("t", 2), ("i", n), ("i", n), ("t", 3), ("a", 6)], [("t", 4), ("i", n), ("t", 4), ("a", 3), ("t", 2), ("a", 2)],
                 [("t", 8), ("a", 5)]).batch() | dict(pixel_values=pixels())
    long = rows(CASE + "/long", [("t", 4), ("i", n), ("t", 2 * CONFIG["seq_length"] - n - 6)]).ids[0]
    text = rows(CASE + "/text", [("t", 2 * CONFIG["seq_length"])]).ids
    reference.check(model, batch["pixel_values"], batch["input_ids"][2:], batch["attention_mask"][2:], torch.tensor(text))
    assert batch["input_ids"].shape[1] <= CONFIG["seq_length"] < len(long)

    tensors, facts = forward_and_gradients(model, batch, set(model.weights))
    alphas = {}
    with torch.no_grad():
        tensors["image_features"] = model.image_features(batch["pixel_values"]).flatten(0, 1)
        ids = tensors["long.input_ids"] = torch.tensor([long])
        for name, width, model.training in (("training", len(long), True), ("inference", len(long), False), ("inference_short", len(long) - 21, False)):
            cut = dict(input_ids=ids[:, :width], attention_mask=torch.ones_like(ids[:, :width]), pixel_values=batch["pixel_values"][:1])
            tensors[f"long.{name}"], _, alphas[name] = model.run(**cut)
    assert not model.training

    prompts = rows(CASE + "/prompts", [("t", 2), ("i", n), ("i", n), ("t", 3)], [("t", 6)], [("i", n), ("t", 1)]).ids
    used = [[0, 1], [], [2]]
    pictures = [dict(pixel_values=batch["pixel_values"][u]) if u else {} for u in used]
    found = greedy(model, prompts, 10, pictures)
    beyond = greedy(model, [long[:CONFIG["seq_length"] + 2]], 44, [dict(pixel_values=batch["pixel_values"][:1])], fresh=True)
    write_golden(folder, batch | tensors, facts | {
        "image_tokens": n, "images": [path(*size).name for size in IMAGES], "long_alphas": alphas,
        "generate": [entry | {"images": u} for entry, u in zip(found, used)], "generate_beyond": [beyond[0] | {"images": [0]}]})


if __name__ == "__main__":
    main()
