"""A tiny folder of the first Qwen-VL with the published names, files and token order, made from nothing but the standard library."""
import base64
from pathlib import Path

import tiny
from tiny import HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, LAYERS, MERGES

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)),
            "<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>", "</img>", "<imgpad>"]
IDS = {token: 256 + len(MERGES) + i for i, token in enumerate(SPECIALS)}
VOCAB = 480     # padded, as the real one is
DEPTH, WIDTH, VISION_HEADS, VISION_INTERMEDIATE, SIDE, PATCH, QUERIES = 2, 24, 3, 40, 105, 7, 64


def write_model(folder, seed=1, seq_length=2048):
    folder = Path(folder)
    folder.mkdir(parents=True)
    tiny.write_json(folder / "config.json", {
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 2 * INTERMEDIATE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "kv_channels": HEAD_DIM, "layer_norm_epsilon": 1e-6, "no_bias": True,
        "rotary_emb_base": 10000, "rotary_pct": 1.0, "seq_length": seq_length, "max_position_embeddings": 8192, "tie_word_embeddings": False,
        "use_dynamic_ntk": True, "use_logn_attn": True, "torch_dtype": "float32", "visual": {
            "heads": VISION_HEADS, "image_size": SIDE, "image_start_id": IDS["<img>"], "layers": DEPTH, "mlp_ratio": VISION_INTERMEDIATE / WIDTH + 0.01,
            "output_dim": HIDDEN, "patch_size": PATCH, "width": WIDTH, "n_queries": QUERIES, "attn_pool_head_dim": 8}})
    tiny.write_json(folder / "generation_config.json", {"chat_format": "chatml", "eos_token_id": IDS["<|endoftext|>"], "pad_token_id": IDS["<|endoftext|>"]})
    tiny.write_json(folder / "tokenizer_config.json", {"model_max_length": 8192, "tokenizer_class": "QWenTokenizer"})
    (folder / "modeling_qwen.py").write_text("# the published code\n")
    tokens = [bytes([i]) for i in range(256)] + [merge.encode() for merge in MERGES]
    (folder / "qwen.tiktoken").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    tiny.write_safetensors(folder / "model.safetensors", random_weights(seed))
    return folder


def random_weights(seed):
    weights = tiny.Weights(seed)
    weights.normal("transformer.wte.weight", VOCAB, HIDDEN, std=0.5)
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}."
        weights.norm(at + "ln_1", HIDDEN, False)
        weights.norm(at + "ln_2", HIDDEN, False)
        weights.linear(at + "attn.c_attn", 3 * HEADS * HEAD_DIM, HIDDEN, True)
        weights.linear(at + "attn.c_proj", HIDDEN, HEADS * HEAD_DIM, False)
        weights.linear(at + "mlp.w1", INTERMEDIATE, HIDDEN, False)
        weights.linear(at + "mlp.w2", INTERMEDIATE, HIDDEN, False)
        weights.linear(at + "mlp.c_proj", HIDDEN, INTERMEDIATE, False)
    weights.norm("transformer.ln_f", HIDDEN, False)
    weights.head("lm_head.weight", VOCAB, 256 + len(MERGES))
    visual = "transformer.visual."
    weights.normal(visual + "positional_embedding", 256, WIDTH)
    weights.normal(visual + "conv1.weight", WIDTH, 3, PATCH, PATCH)
    weights.normal(visual + "proj", HIDDEN, HIDDEN)
    weights.norm(visual + "ln_pre", WIDTH, True)
    weights.norm(visual + "ln_post", HIDDEN, True)
    for layer in range(DEPTH):
        at = f"{visual}transformer.resblocks.{layer}."
        weights.norm(at + "ln_1", WIDTH, True)
        weights.norm(at + "ln_2", WIDTH, True)
        weights.linear(at + "attn.in_proj", 3 * WIDTH, WIDTH, True)
        weights.linear(at + "attn.out_proj", WIDTH, WIDTH, True)
        weights.linear(at + "mlp.c_fc", VISION_INTERMEDIATE, WIDTH, True)
        weights.linear(at + "mlp.c_proj", WIDTH, VISION_INTERMEDIATE, True)
    pool = visual + "attn_pool."
    for name in ("query", "pos_embed"):
        weights.normal(pool + name, QUERIES, HIDDEN)
    weights.normal(pool + "attn.in_proj_weight", 3 * HIDDEN, HIDDEN)
    weights.normal(pool + "attn.in_proj_bias", 3 * HIDDEN, std=0.05)
    weights.linear(pool + "attn.out_proj", HIDDEN, HIDDEN, True)
    weights.linear(pool + "kv_proj", HIDDEN, WIDTH, False)
    weights.norm(pool + "ln_q", HIDDEN, True)
    weights.norm(pool + "ln_kv", HIDDEN, True)
    return weights.tensors
