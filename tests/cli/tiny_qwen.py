"""Tiny Qwen-VL model folders with the published template and names, made from nothing but the standard library."""
from pathlib import Path

import tiny
from tiny import FIRST_SPECIAL, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, LAYERS, VOCAB

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
            "<|video_pad|>"]
ENDOFTEXT, IM_START, IM_END, VISION_START, VISION_END, _, IMAGE_PAD, VIDEO_PAD = range(FIRST_SPECIAL, FIRST_SPECIAL + len(SPECIALS))
# As Qwen/Qwen2-VL-2B-Instruct has it.
TEMPLATE = (Path(__file__).resolve().parents[1] / "golden" / "text" / "chat" / "qwen2-vl.jinja").read_text().replace(
    "<image>", "<|vision_start|><|image_pad|><|vision_end|>")
DEPTH, WIDTH, VISION_HEADS, VISION_INTERMEDIATE, PATCH, MERGE = 2, 24, 3, 48, 4, 2
BLOCK = PATCH * MERGE
TABLE_SIDE = 4

TEXT = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048, "rope_theta": 10000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}}
VISION = {"depth": DEPTH, "num_heads": VISION_HEADS, "in_channels": 3, "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2}
# The folders' config.json as each family was published: the first two are flat.
KINDS = {
    "qwen2_vl": {**TEXT, "vision_config": {**VISION, "embed_dim": WIDTH, "mlp_ratio": VISION_INTERMEDIATE // WIDTH, "hidden_size": HIDDEN}},
    "qwen2_5_vl": {**TEXT, "vision_config": {**VISION, "hidden_size": WIDTH, "intermediate_size": VISION_INTERMEDIATE, "out_hidden_size": HIDDEN,
                                             "window_size": 3 * BLOCK, "fullatt_block_indexes": [1], "hidden_act": "silu"}},
    "qwen3_vl": {"text_config": {**TEXT, "model_type": "qwen3_vl_text", "head_dim": HEAD_DIM,
                                 "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]}},
                 "vision_config": {**VISION, "hidden_size": WIDTH, "intermediate_size": VISION_INTERMEDIATE, "out_hidden_size": HIDDEN,
                                   "num_position_embeddings": TABLE_SIDE ** 2, "deepstack_visual_indexes": [0], "hidden_act": "gelu_pytorch_tanh"}},
}


def write_model(folder, kind="qwen2_vl", seed=1, most_tokens=64):
    folder = Path(folder)
    folder.mkdir(parents=True)
    tiny.write_json(folder / "config.json", {
        **KINDS[kind], "model_type": kind, "tie_word_embeddings": False, "bos_token_id": ENDOFTEXT, "eos_token_id": IM_END,
        "image_token_id": IMAGE_PAD, "video_token_id": VIDEO_PAD, "vision_start_token_id": VISION_START, "vision_end_token_id": VISION_END,
        "torch_dtype": "float32"})
    tiny.write_json(folder / "generation_config.json", {"bos_token_id": ENDOFTEXT, "eos_token_id": [IM_END, ENDOFTEXT], "pad_token_id": ENDOFTEXT})
    tiny.write_json(folder / "preprocessor_config.json", {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 4 * BLOCK ** 2, "max_pixels": most_tokens * BLOCK ** 2,
        "patch_size": PATCH, "merge_size": MERGE, "temporal_patch_size": 2, "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]})
    tiny.write_tokenizer(folder, SPECIALS)
    tiny.write_json(folder / "tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                                                       "bos_token": None, "chat_template": TEMPLATE})
    tiny.write_safetensors(folder / "model.safetensors", random_weights(kind, seed))
    return folder


def random_weights(kind, seed):
    weights, third, gated = tiny.Weights(seed), kind == "qwen3_vl", kind == "qwen2_5_vl"
    weights.language_model("model.language_model." if third else "model.", "lm_head.weight", bias=not third)
    if third:
        for layer in range(LAYERS):
            for name in ("q_norm", "k_norm"):
                weights.norm(f"model.language_model.layers.{layer}.self_attn.{name}", HEAD_DIM, False)
    visual = "model.visual." if third else "visual."
    weights.normal(visual + "patch_embed.proj.weight", WIDTH, 3, 2, PATCH, PATCH)
    if third:
        weights.normal(visual + "patch_embed.proj.bias", WIDTH)
        weights.normal(visual + "pos_embed.weight", TABLE_SIDE ** 2, WIDTH)
    for layer in range(DEPTH):
        at = f"{visual}blocks.{layer}."
        weights.norm(at + "norm1", WIDTH, not gated)
        weights.norm(at + "norm2", WIDTH, not gated)
        weights.linear(at + "attn.qkv", 3 * WIDTH, WIDTH, True)
        weights.linear(at + "attn.proj", WIDTH, WIDTH, True)
        ways = ("gate_proj", "up_proj", "down_proj") if gated else ("linear_fc1", "linear_fc2") if third else ("fc1", "fc2")
        for name in ways[:-1]:
            weights.linear(at + "mlp." + name, VISION_INTERMEDIATE, WIDTH, True)
        weights.linear(at + "mlp." + ways[-1], WIDTH, VISION_INTERMEDIATE, True)
    merged = MERGE ** 2 * WIDTH
    mergers = ("merger", "deepstack_merger_list.0") if third else ("merger",)
    for index, name in enumerate(mergers):
        at = visual + name
        weights.norm(at + (".norm" if third else ".ln_q"), merged if index else WIDTH, not gated)
        weights.linear(at + (".linear_fc1" if third else ".mlp.0"), merged, merged, True)
        weights.linear(at + (".linear_fc2" if third else ".mlp.2"), HIDDEN, merged, True)
    return weights.tensors
