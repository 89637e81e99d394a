"""A tiny LLaVA model folder, pictures and rows, made from nothing but the standard library.

Byte-level tokenizer (256 bytes, three merges, four special tokens), a Llama of two layers and a CLIP tower of 28 pixels.
The head only knows printable ASCII, so that what the model says is text.
"""
import json
import random
import struct
import zlib
from pathlib import Path

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 32, 52, 4, 2, 8, 2
VISION_HIDDEN, VISION_INTERMEDIATE, VISION_LAYERS, SIDE, PATCH = 24, 40, 3, 28, 7
IMAGE_TOKENS = (SIDE // PATCH) ** 2
MERGES = ["th", "he", "in"]
SPECIALS = ["<s>", "</s>", "<pad>", "<image>"]
FIRST_SPECIAL = 256 + len(MERGES)
BOS, EOS, PAD, IMAGE = range(FIRST_SPECIAL, FIRST_SPECIAL + len(SPECIALS))
VOCAB = 288  # padded, as real ones are

# Parts in the order in which they were written; an answer ends with </s>.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT: ' }}{% endif %}"
)


def write_json(path, value):
    Path(path).write_text(json.dumps(value))


def write_safetensors(path, tensors):
    """tensors: name -> (shape, list of floats), stored as F32."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(struct.pack(f"<{len(values)}f", *values))


def read_safetensors(path):
    """name -> bytes."""
    data = Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def write_png(path, width, height, seed):
    """An RGB picture of a gradient with some noise."""
    noise = random.Random(seed)
    tint = [noise.randrange(256) for _ in range(3)]
    rows = b"".join(b"\0" + bytes((tint[c] + 5 * x * (c + 1) + 3 * y + noise.randrange(40)) % 256 for x in range(width) for c in range(3))
                    for y in range(height))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_model(folder, seed=1, head_scale=1):
    """The whole folder: config, weights, tokenizer, template, image processor."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": IMAGE,
        "image_seq_length": IMAGE_TOKENS, "projector_hidden_act": "gelu", "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default", "tie_word_embeddings": False,
        "text_config": {"model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
                        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
                        "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 1024,
                        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
                        "bos_token_id": BOS, "eos_token_id": EOS, "tie_word_embeddings": False},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": VISION_HIDDEN, "intermediate_size": VISION_INTERMEDIATE,
                          "num_hidden_layers": VISION_LAYERS, "num_attention_heads": 3, "image_size": SIDE, "patch_size": PATCH,
                          "num_channels": 3, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}})
    write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_json(folder / "preprocessor_config.json", {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": SIDE}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE}, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "do_convert_rgb": True, "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]})
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    tensors = random_weights(seed)
    shape, head = tensors["language_model.lm_head.weight"]
    tensors["language_model.lm_head.weight"] = shape, [head_scale * x for x in head]
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def write_parts(folder, model):
    """The model's language model and vision tower as checkpoints of their own, and its projector as a file."""
    config = json.loads((model / "config.json").read_text())
    parts = {"language": {}, "tower": {}, "projector": {}}
    for name, tensor in random_weights(1).items():
        part = "language" if name.startswith("language_model.") else "tower" if name.startswith("vision_tower.") else "projector"
        parts[part][name.removeprefix("language_model.").replace("vision_tower.", "vision_model.")] = tensor
    for part, section in (("language", "text_config"), ("tower", "vision_config")):
        (folder / part).mkdir(parents=True)
        write_json(folder / part / "config.json", config[section])
        write_safetensors(folder / part / "model.safetensors", parts[part])
    write_tokenizer(folder / "language")
    (folder / "language" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "tower" / "preprocessor_config.json").write_bytes((model / "preprocessor_config.json").read_bytes())
    write_safetensors(folder / "projector.safetensors", parts["projector"])
    return folder / "language", folder / "tower", folder / "projector.safetensors"


CONVNEXT_SIZES, CONVNEXT_DEPTHS, CONVNEXT_SIDE = [8, 12, 16, 24], [1, 1, 2, 1], 96


def write_convnext(folder, seed=3):
    """A ConvNeXt-V2 as its classifiers are published: 3 x 3 features of 24 channels."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {"model_type": "convnextv2", "hidden_sizes": CONVNEXT_SIZES, "depths": CONVNEXT_DEPTHS, "image_size": 224,
                                        "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "drop_path_rate": 0.0})
    write_json(folder / "preprocessor_config.json", {
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": CONVNEXT_SIDE}, "crop_pct": 0.875, "resample": 3,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})
    weights = Weights(seed)
    at = "convnextv2.embeddings."
    weights.normal(at + "patch_embeddings.weight", CONVNEXT_SIZES[0], 3, 4, 4)
    weights.normal(at + "patch_embeddings.bias", CONVNEXT_SIZES[0])
    weights.norm(at + "layernorm", CONVNEXT_SIZES[0], True)
    for stage, (size, depth) in enumerate(zip(CONVNEXT_SIZES, CONVNEXT_DEPTHS)):
        at = f"convnextv2.encoder.stages.{stage}."
        if stage:
            weights.norm(at + "downsampling_layer.0", CONVNEXT_SIZES[stage - 1], True)
            weights.normal(at + "downsampling_layer.1.weight", size, CONVNEXT_SIZES[stage - 1], 2, 2)
            weights.normal(at + "downsampling_layer.1.bias", size)
        for layer in range(depth):
            at = f"convnextv2.encoder.stages.{stage}.layers.{layer}."
            weights.normal(at + "dwconv.weight", size, 1, 7, 7)
            weights.normal(at + "dwconv.bias", size)
            weights.norm(at + "layernorm", size, True)
            weights.linear(at + "pwconv1", 4 * size, size, True)
            weights.linear(at + "pwconv2", size, 4 * size, True)
            weights.normal(at + "grn.weight", 1, 1, 1, 4 * size)
            weights.normal(at + "grn.bias", 1, 1, 1, 4 * size)
    weights.norm("convnextv2.layernorm", CONVNEXT_SIZES[-1], True)
    weights.linear("classifier", 3, CONVNEXT_SIZES[-1], True)
    write_safetensors(folder / "model.safetensors", weights.tensors)
    return folder


def write_tokenizer(folder, specials=SPECIALS):
    # GPT-2's alphabet: printable bytes stand for themselves, the others for characters from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {byte: chr(byte) for byte in printable}
    shown.update({byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in shown)})
    vocab = {shown[byte]: byte for byte in range(256)}
    vocab.update({merge: 256 + i for i, merge in enumerate(MERGES)})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "added_tokens": [{"id": FIRST_SPECIAL + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(specials)],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                  "merges": [" ".join(merge) for merge in MERGES]}})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                                                  "pad_token": "<pad>"})


class Weights:
    """Random tensors under their names, drawn one after the other."""

    def __init__(self, seed):
        self.noise, self.tensors = random.Random(seed), {}

    def normal(self, name, *shape, std=0.2, mean=0.0):
        size = 1
        for n in shape:
            size *= n
        self.tensors[name] = (list(shape), [self.noise.gauss(mean, std) for _ in range(size)])

    def linear(self, name, rows, columns, bias):
        self.normal(name + ".weight", rows, columns)
        if bias:
            self.normal(name + ".bias", rows, std=0.05)

    def norm(self, name, size, bias):
        self.normal(name + ".weight", size, mean=1.0, std=0.05)
        if bias:
            self.normal(name + ".bias", size, std=0.05)

    def language_model(self, prefix, head, first_special=FIRST_SPECIAL, bias=False):
        self.normal(prefix + "embed_tokens.weight", VOCAB, HIDDEN, std=0.5)
        for layer in range(LAYERS):
            at = f"{prefix}layers.{layer}."
            self.norm(at + "input_layernorm", HIDDEN, False)
            self.norm(at + "post_attention_layernorm", HIDDEN, False)
            self.linear(at + "self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN, bias)
            self.linear(at + "self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN, bias)
            self.linear(at + "self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN, bias)
            self.linear(at + "self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM, False)
            self.linear(at + "mlp.gate_proj", INTERMEDIATE, HIDDEN, False)
            self.linear(at + "mlp.up_proj", INTERMEDIATE, HIDDEN, False)
            self.linear(at + "mlp.down_proj", HIDDEN, INTERMEDIATE, False)
        self.norm(prefix + "norm", HIDDEN, False)
        self.head(head, VOCAB, first_special)

    def head(self, name, vocab, first_special):
        """Which only knows printable ASCII and merges."""
        self.normal(name, vocab, HIDDEN, std=0.5)
        rows = self.tensors[name][1]
        for token in range(vocab):
            if not (32 <= token < 127 or 256 <= token < first_special):
                rows[token * HIDDEN:(token + 1) * HIDDEN] = [0.0] * HIDDEN


def random_weights(seed):
    weights = Weights(seed)
    weights.language_model("language_model.model.", "language_model.lm_head.weight")
    weights.linear("multi_modal_projector.linear_1", HIDDEN, VISION_HIDDEN, True)
    weights.linear("multi_modal_projector.linear_2", HIDDEN, HIDDEN, True)
    weights.normal("vision_tower.embeddings.class_embedding", VISION_HIDDEN)
    weights.normal("vision_tower.embeddings.patch_embedding.weight", VISION_HIDDEN, 3, PATCH, PATCH)
    weights.normal("vision_tower.embeddings.position_embedding.weight", IMAGE_TOKENS + 1, VISION_HIDDEN)
    weights.norm("vision_tower.pre_layrnorm", VISION_HIDDEN, True)
    weights.norm("vision_tower.post_layernorm", VISION_HIDDEN, True)
    for layer in range(VISION_LAYERS):
        at = f"vision_tower.encoder.layers.{layer}."
        weights.norm(at + "layer_norm1", VISION_HIDDEN, True)
        weights.norm(at + "layer_norm2", VISION_HIDDEN, True)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            weights.linear(at + "self_attn." + name, VISION_HIDDEN, VISION_HIDDEN, True)
        weights.linear(at + "mlp.fc1", VISION_INTERMEDIATE, VISION_HIDDEN, True)
        weights.linear(at + "mlp.fc2", VISION_HIDDEN, VISION_INTERMEDIATE, True)
    return weights.tensors


def turn(speaker, text):
    return {"from": speaker, "value": text}


def write_rows(folder, count, seed=2, words=(3, 12)):
    """count LLaVA rows and their pictures; every fourth row has none, every fifth has two. Returns the JSON file."""
    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    pick = random.Random(seed)
    say = lambda: " ".join(pick.choice(["the", "thing", "in", "a", "hen", "pin", "red", "box"]) for _ in range(pick.randint(*words)))
    rows = []
    for i in range(count):
        names = [] if i % 4 == 3 else [f"{i}a.png", f"{i}b.png"] if i % 5 == 4 else [f"{i}a.png"]
        for k, name in enumerate(names):
            write_png(folder / "images" / name, 20 + 7 * (i % 5), 30 - 3 * k, 10 * i + k)
        row = {"id": f"row-{i}", "conversations": [turn("human", "<image>\n" * len(names) + say()), turn("gpt", say())]}
        if i % 3 == 0:
            row["conversations"] += [turn("human", say()), turn("gpt", say())]
        if names:
            row["image"] = names[0] if len(names) == 1 else names
        rows.append(row)
    write_json(folder / "rows.json", rows)
    return folder / "rows.json"
