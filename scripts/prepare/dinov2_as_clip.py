"""DINOv2 ViT-S/14 re-packed: a Hugging Face CLIPVisionModel folder that computes what dinov2.py's computes.

CLIP's vision tower has a LayerNorm before the blocks that DINOv2 lacks. Everything that is written to the residual stream
is centred (each read goes through a LayerNorm, which centres anyway), and one extra head's width of channels carries +-C
in the embeddings only, so that the extra LayerNorm divides by a known constant, which its gain undoes; the gain of the
extra channels is 0. Gains and epsilon of the other LayerNorms make up for the wider vector; LayerScale is folded in.
"""
import numpy as np

import dinov2
from dinov2 import EPS, GAIN, HEADS, HIDDEN, IMAGE_SIZE, LAYERS, MLP, PATCH

HEAD = HIDDEN // HEADS
WIDE = HIDDEN + HEAD  # with the channels that carry the constant
CONSTANT = 256.0


def write(out):
    dinov2.save(out, clip_tensors(dinov2.tensors(), IMAGE_SIZE // PATCH), {
        "architectures": ["CLIPVisionModel"], "model_type": "clip_vision_model", "torch_dtype": "float32",
        "hidden_size": WIDE, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": WIDE // HEAD,
        "num_channels": 3, "image_size": IMAGE_SIZE, "patch_size": PATCH, "hidden_act": "gelu",
        "layer_norm_eps": EPS * HIDDEN / WIDE * GAIN**2, "attention_dropout": 0.0, "projection_dim": WIDE,
        "initializer_range": 0.02, "initializer_factor": 1.0,
    }, "CLIPImageProcessor")


def clip_tensors(dino, grid):
    """The same network under the names and shapes of CLIPVisionModel with `grid` x `grid` patches."""
    shrink = (HIDDEN / WIDE) ** 0.5  # a LayerNorm over WIDE channels, HEAD of them zero, divides by that much less
    out = {}
    embed_embeddings(dino, grid, out)
    for layer in range(LAYERS):
        old, new = f"encoder.layer.{layer}", f"vision_model.encoder.layers.{layer}"
        for source, target in (("norm1", "layer_norm1"), ("norm2", "layer_norm2")):
            out[f"{new}.{target}.weight"] = widen(dino[f"{old}.{source}.weight"] * shrink, WIDE)
            out[f"{new}.{target}.bias"] = widen(dino[f"{old}.{source}.bias"], WIDE)

        def linear(target, source, scale=None, rows=WIDE, columns=WIDE):
            weight, bias = dino[f"{old}.{source}.weight"], dino[f"{old}.{source}.bias"]
            if scale is not None:  # writes to the residual stream
                weight, bias = GAIN * centre(scale[:, None] * weight), GAIN * centre(scale * bias)
            out[f"{new}.{target}.weight"], out[f"{new}.{target}.bias"] = widen(weight, rows, columns), widen(bias, rows)

        for name in ("query", "key", "value"):
            linear(f"self_attn.{name[0]}_proj", f"attention.attention.{name}")
        linear("self_attn.out_proj", "attention.output.dense", dino[f"{old}.layer_scale1.lambda1"])
        linear("mlp.fc1", "mlp.fc1", rows=MLP)
        linear("mlp.fc2", "mlp.fc2", dino[f"{old}.layer_scale2.lambda1"], columns=MLP)
    out["vision_model.post_layernorm.weight"] = widen(dino["layernorm.weight"] * shrink, WIDE)
    out["vision_model.post_layernorm.bias"] = widen(dino["layernorm.bias"], WIDE)
    return out


def embed_embeddings(dino, grid, out):
    root = "vision_model."
    extra = np.repeat([CONSTANT, -CONSTANT], HEAD // 2)
    out[root + "embeddings.class_embedding"] = widen(centre(dino["embeddings.cls_token"][0, 0]), WIDE)
    out[root + "embeddings.patch_embedding.weight"] = widen(centre(dino["embeddings.patch_embeddings.projection.weight"]), WIDE)
    bias = dino["embeddings.patch_embeddings.projection.bias"]  # CLIP's has none: it goes into the positions
    positions = resize_positions(dino["patch_positions"], grid) + bias
    positions = np.stack([centre(row) for row in (dino["cls_position"], *positions)])
    extra = np.tile(extra, (len(positions), 1))
    out[root + "embeddings.position_embedding.weight"] = np.concatenate([positions, extra], axis=1)
    deviation = CONSTANT * (HEAD / WIDE) ** 0.5
    out[root + "pre_layrnorm.weight"] = widen(np.full(HIDDEN, GAIN * deviation), WIDE)
    out[root + "pre_layrnorm.bias"] = np.zeros(WIDE)


def centre(value):
    """Without its mean over the output channels (axis 0)."""
    return value - value.mean(axis=0, keepdims=True)


def widen(value, *sizes):
    """Padded with zeros at the end of the first axes."""
    return np.pad(value, [(0, size - have) for size, have in zip(sizes, value.shape)] + [(0, 0)] * (value.ndim - len(sizes)))


def resize_positions(positions, grid):
    """[side * side, C] -> [grid * grid, C] as torch's bicubic interpolation (align_corners=False, no antialias) does."""
    side = int(len(positions) ** 0.5)
    if side == grid:
        return positions
    matrix = bicubic_matrix(side, grid)
    square = positions.reshape(side, side, -1)
    return np.einsum("ai,bj,ijc->abc", matrix, matrix, square).reshape(grid * grid, -1)


def bicubic_matrix(inputs, outputs, a=-0.75):
    """[outputs, inputs] weights of cubic convolution (Keys 1981) with borders repeated."""
    def kernel(x):
        x = abs(x)
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0

    matrix = np.zeros((outputs, inputs))
    for row in range(outputs):
        position = (row + 0.5) * inputs / outputs - 0.5
        first = int(np.floor(position)) - 1
        for column in range(first, first + 4):
            matrix[row, min(max(column, 0), inputs - 1)] += kernel(position - column)
    return matrix
