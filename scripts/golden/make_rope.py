"""rope/golden.json: inverse frequencies and the cos/sin factor of every RoPE kind, as transformers computes them."""
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tiny import SEED, VERSIONS, case_folder, write_json

LONG = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.0, 2.0, 5.0, 9.5],
            original_max_position_embeddings=16)
CASES = [  # (config fields, rope_parameters, sequence length or None)
    (dict(head_dim=8), dict(rope_type="default"), None),
    (dict(head_dim=10), dict(rope_type="default", rope_theta=1e6), None),
    (dict(head_dim=8), dict(rope_type="linear", factor=2.5), None),
    (dict(head_dim=8, max_position_embeddings=16), dict(rope_type="dynamic", factor=2.0), 16),
    (dict(head_dim=8, max_position_embeddings=16), dict(rope_type="dynamic", factor=2.0), 17),
    (dict(head_dim=8, max_position_embeddings=16), dict(rope_type="dynamic", factor=4.0), 41),
    (dict(head_dim=16, max_position_embeddings=256), dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
     high_freq_factor=4.0, original_max_position_embeddings=32), None),
    (dict(head_dim=128, max_position_embeddings=131072), dict(rope_type="llama3", rope_theta=5e5, factor=8.0,
     low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192), None),
    (dict(head_dim=16, max_position_embeddings=128), dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32), None),
    (dict(head_dim=64, max_position_embeddings=32768), dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
     original_max_position_embeddings=8192, beta_fast=16.0, beta_slow=2.0), None),
    (dict(head_dim=64, max_position_embeddings=32768), dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
     original_max_position_embeddings=8192, truncate=False), None),
    (dict(head_dim=64, max_position_embeddings=4096), dict(rope_type="yarn", factor=8.0, attention_factor=1.25), None),
    (dict(head_dim=64, max_position_embeddings=4096), dict(rope_type="yarn", factor=40.0, mscale=0.707, mscale_all_dim=1.0,
     original_max_position_embeddings=512), None),
    (dict(head_dim=8, max_position_embeddings=64), LONG, 16),
    (dict(head_dim=8, max_position_embeddings=64), LONG, 17),
    (dict(head_dim=8, max_position_embeddings=64), LONG | dict(factor=8.0), 17),
    (dict(head_dim=8, max_position_embeddings=64), LONG | dict(attention_factor=1.5), 3),
]


def main():
    cases = []
    for fields, rope, length in CASES:
        given = dict(rope_theta=10000.0) | rope
        config = LlamaConfig(hidden_size=256, num_attention_heads=2, **fields, rope_parameters=dict(given))
        compute = ROPE_INIT_FUNCTIONS.get(given["rope_type"], LlamaRotaryEmbedding.compute_default_rope_parameters)
        inverse, factor = compute(config, "cpu", seq_len=length)
        cases.append(dict(head_dim=fields["head_dim"], max_position_embeddings=config.max_position_embeddings,
                          rope_parameters=given, sequence_length=length, inv_freq=inverse.tolist(), attention_factor=factor))
    write_json(case_folder("rope") / "golden.json", {"seed": SEED, "versions": VERSIONS, "cases": cases})


main()
