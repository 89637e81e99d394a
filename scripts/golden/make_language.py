"""models/<text model>: bare language models. Logits of a right-padded batch, gradients, greedy tokens."""
import copy
import json

from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

from tiny import TEXT, Rows, case_folder, forward_and_gradients, greedy, randomize, save_model, write_golden


def rope(**parameters):
    return dict(rope_theta=10000.0) | parameters


CASES = {
    # every bias, a head size that is not hidden / heads
    "llama": (LlamaForCausalLM, LlamaConfig(**TEXT, head_dim=12, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5)),
    "llama-llama3-rope": (LlamaForCausalLM, LlamaConfig(**TEXT, head_dim=16, rope_parameters=rope(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
    "llama-linear-rope": (LlamaForCausalLM, LlamaConfig(**TEXT, rope_parameters=rope(rope_type="linear", factor=2.5))),
    "llama-dynamic-rope": (LlamaForCausalLM, LlamaConfig(**TEXT | dict(max_position_embeddings=16),
                                                         rope_parameters=rope(rope_type="dynamic", factor=2.0))),
    "llama-yarn-rope": (LlamaForCausalLM, LlamaConfig(**TEXT | dict(max_position_embeddings=128), head_dim=16, rope_parameters=rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    # tied, one kv head, layer 1 of 3 and up slide over 6 tokens
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**TEXT | dict(num_hidden_layers=3, num_key_value_heads=1), tie_word_embeddings=True,
                                            use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    # norms of queries and keys over a head, whose size is not hidden / heads
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**TEXT, head_dim=12)),
    "mistral": (MistralForCausalLM, MistralConfig(**TEXT, sliding_window=8)),
}
GRADIENTS = ("llama", "qwen2", "qwen3", "mistral")


def old_style(folder):
    """Rewrites config.json as transformers before 5 spelt it."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    reread = LlamaConfig.from_pretrained(folder).rope_parameters
    assert reread["rope_type"] == "linear" and reread["factor"] == 2.5 and reread["rope_theta"] == 10000.0


def main():
    for case, (cls, config) in CASES.items():
        folder, model = case_folder("models", case), randomize(cls(config), case)
        keys = save_model(model, folder)
        batch = Rows(case).add(("t", 6), ("a", 7)).add(("t", 11), ("a", 4), ("t", 3), ("a", 5)).add(("t", 4), ("a", 2)).batch()
        dynamic = case == "llama-dynamic-rope"
        tensors, facts = forward_and_gradients(copy.deepcopy(model) if dynamic else model, batch, keys, case in GRADIENTS)
        prompts = Rows(case + "/prompts").add(("t", 9)).add(("t", 3)).add(("t", 15)).ids
        if case == "qwen2":  # generation must stop at the second entry of an eos list
            stop = next(t for row in greedy(model, prompts, 12) for i, t in enumerate(row["tokens"])
                        if i > 2 and t not in row["tokens"][:i])
            model.config.eos_token_id = [2, stop]
            save_model(model, folder)
        facts["generate"] = greedy(model, prompts, 12, fresh=dynamic)
        if case == "llama":
            facts["generate_penalty"] = greedy(model, prompts, 12, repetition_penalty=1.3)
        if dynamic:
            short = {k: v[:, :12] for k, v in batch.items() if k != "labels"}
            tensors["logits_short"] = model(**short).logits.detach() * short["attention_mask"][..., None]
        if case == "llama-linear-rope":
            old_style(folder)
        write_golden(folder, batch | tensors, facts)


main()
