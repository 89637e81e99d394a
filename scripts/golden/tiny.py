"""Shared by the golden generators: tiny configurations, seeded weights, token rows, greedy decoding, writing a case."""
import copy
import json
import logging
import math
import os
import shutil
import zlib
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

FRESH = "GOLDEN_SEED" in os.environ  # checkpoints that nobody has looked at
SEED = int(os.environ.get("GOLDEN_SEED", 20250))
ROOT = Path(os.environ.get("GOLDEN_ROOT") or Path(__file__).resolve().parents[2] / "tests" / "golden")
VERSIONS = {name: version(name) for name in ("torch", "torchvision", "transformers", "peft", "safetensors", "pillow")}

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.utils.logging.disable_progress_bar()
logging.disable(logging.WARNING)

TEXT = dict(vocab_size=140, hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2)
VISION = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3, image_size=28, patch_size=7)
NUM_TOKENS = 133        # what a tokenizer would know: the configurations' vocabularies are padded beyond it
IMAGE_TOKEN = 132       # its last token


def generator(*key):
    """A generator whose stream depends on nothing but SEED and the key."""
    return torch.Generator().manual_seed(SEED + zlib.crc32("/".join(map(str, key)).encode()))


def nearest_8bit(values, numbers, block=256):
    """Codes of the nearest 8-bit numbers and a scale for each block. bitsandbytes 0.50.2 takes others at times on the CPU, not in its
    CUDA kernels."""
    blocks = nn.functional.pad(values.flatten(), (0, -values.numel() % block)).view(-1, block)
    scales = blocks.abs().amax(1, keepdim=True)
    codes = ((blocks / scales).unsqueeze(-1) - numbers).abs().argmin(-1)
    return codes.to(torch.uint8).flatten()[:values.numel()], scales.flatten()


def from_8bit(codes, scales, numbers, block=256):
    return numbers[codes.long()] * scales.repeat_interleave(block)[:codes.numel()]


def made_whole(quantized, plain):
    """`plain` with the weights of `quantized`. Not by bitsandbytes 0.50.2's AVX-512 code: rows shorter than a block get wrong scales."""
    import bitsandbytes
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
    modules = dict(plain.named_modules())
    for name, module in quantized.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            state = module.weight.quant_state
            scales = state.absmax
            if state.nested:
                scales = from_8bit(scales, state.state2.absmax, state.state2.code) + state.offset
            values = _dequantize_4bit_compute(module.weight.data.reshape(-1), scales, state.code, state.blocksize, state.shape, torch.float32)
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            values = bitsandbytes.functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB)
        else:
            continue
        modules[name].weight.data = values
    return plain


def randomize(model, case):
    """Fills every parameter from a stream named after it: outputs and gradients far from degenerate."""
    for name, p in model.named_parameters():
        values = torch.randn(p.shape, generator=generator(case, name))
        norm = "norm" in name or "layrnorm" in name or "ln_q" in name
        if norm and name.endswith("weight"):
            values = 1 + 0.2 * values
        elif name.endswith("bias") or p.dim() < 2:
            values = 0.2 * values
        elif "embed_tokens" in name:
            values = 0.25 * values
        elif "position_embedding" in name or "probe" in name:
            values = 0.5 * values
        else:
            values = values * 1.2 / math.sqrt(p[0].numel())
        if "embed_tokens" in name or "lm_head" in name:
            values[IMAGE_TOKEN:] *= 0.2     # greedy decoding must not pick what a tokenizer could not print
        p.data.copy_(values)
    return model.eval()


def file_key(name, keys):
    """A parameter's name in memory -> its name in the model.safetensors that save_pretrained wrote."""
    candidates = [name, name.removeprefix("model."), name.replace("model.language_model.", "language_model.model."),
                  "language_model." + name, name.replace("model.language_model.", "model.")]
    return next(c for c in candidates if c in keys)


class Rows:
    """Builds token rows from segments: ("t", n) text, ("i", n) n image placeholders, ("v", n) n of videos, ("a", n) text with labels."""

    def __init__(self, case, image_token=IMAGE_TOKEN, video_token=None):
        self.rng, self.placeholders, self.ids, self.labels = generator(case, "rows"), {"i": image_token, "v": video_token}, [], []

    def add(self, *segments):
        ids, labels = [1], [-100]
        for kind, n in segments:
            new = [self.placeholders[kind]] * n if kind in self.placeholders else \
                torch.randint(3, IMAGE_TOKEN, (n,), generator=self.rng).tolist()
            ids += new
            labels += new if kind == "a" else [-100] * n
        self.ids.append(ids)
        self.labels.append(labels)
        return self

    def batch(self):
        """Right-padded input_ids, attention_mask, labels [B, T]; padding id 0."""
        def pad(rows, value):
            return torch.tensor([r + [value] * (width - len(r)) for r in rows])
        width = max(map(len, self.ids))
        return {"input_ids": pad(self.ids, 0), "attention_mask": pad([[1] * len(r) for r in self.ids], 0),
                "labels": pad(self.labels, -100)}


def forward_and_gradients(model, batch, keys, gradients=True):
    """Tensors: logits (zero where the mask is zero), grad.<file key>. Facts: loss, label_tokens, no_grad, noise_grad."""
    model.zero_grad()
    out = model(**batch)
    logits = out.logits.detach() * batch["attention_mask"][..., None]
    tensors, facts = {"logits": logits}, {"loss": out.loss.item(), "label_tokens": int((batch["labels"][:, 1:] != -100).sum())}
    if gradients:
        out.loss.backward()
        grads = {file_key(n, keys): p.grad for n, p in model.named_parameters()}
        total = math.sqrt(sum(g.double().square().sum() for g in grads.values() if g is not None))
        facts["grad_norm"] = total
        facts["no_grad"] = sorted(n for n, g in grads.items() if g is None)
        facts["noise_grad"] = sorted(n for n, g in grads.items() if g is not None and g.norm() < 1e-6 * total)
        tensors |= {f"grad.{n}": g for n, g in grads.items() if g is not None}
    return tensors, facts


def greedy(model, prompts, max_new_tokens, images=None, fresh=False, derived=lambda ids: {}, **options):
    """Greedy tokens (stop token included) of every prompt: singly, then left-padded in one batch, which must agree.
    images: per prompt the keyword tensors of its pictures, rows in picture order. fresh: a new copy of the model each time.
    derived: keyword tensors that follow from the ids."""
    images = images or [{} for _ in prompts]

    def run(ids, mask, pictures):
        net = copy.deepcopy(model) if fresh else model
        out = net.generate(input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False,
                           pad_token_id=0, output_scores=True, return_dict_in_generate=True, **pictures, **derived(ids), **options)
        new, stops = out.sequences[:, ids.shape[1]:], net.generation_config.eos_token_id
        stops = stops if isinstance(stops, list) else [stops]
        rows = []
        for b, row in enumerate(new.tolist()):
            end = next((i + 1 for i, t in enumerate(row) if t in stops), len(row))
            rows.append(row[:end])
            for i in range(end):
                top = out.scores[i][b].topk(2).values
                assert top[0] - top[1] > 5e-4, f"near tie at step {i} of row {b}: {top}"
        return rows

    single = [run(torch.tensor([p]), torch.ones(1, len(p), dtype=torch.long), pic)[0] for p, pic in zip(prompts, images)]
    if not fresh:
        width = max(map(len, prompts))
        padded = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        together = {k: torch.cat([pic[k] for pic in images if k in pic]) for k in {k for pic in images for k in pic}}
        assert run(padded, mask, together) == single, "left-padded batch differs from single runs"
    assert FRESH or any(len(set(t)) > 3 for t in single), f"degenerate: {single}"
    assert max(map(max, single)) < IMAGE_TOKEN
    return [{"input_ids": p, "max_new_tokens": max_new_tokens, "tokens": t, **options} for p, t in zip(prompts, single)]


def mm_types(ids):
    """What Qwen-VL's classes are told of the ids beside them."""
    return dict(mm_token_type_ids=(ids == IMAGE_TOKEN).int())


def inputs_of(golden):
    """What a model is called with, out of the tensors of a golden.safetensors."""
    inputs = {k: golden[k] for k in ("input_ids", "attention_mask", "pixel_values", "image_grid_thw") if k in golden}
    if "image_grid_thw" in inputs:
        return inputs | mm_types(inputs["input_ids"])
    return inputs | {k: golden[k] for k in ("image_sizes",) if k in golden}


def case_folder(*parts):
    folder = ROOT.joinpath(*parts)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def save_model(model, folder, **options):
    """Writes the checkpoint with greedy defaults that are true of it; returns the tensor names in the file(s)."""
    if hasattr(model, "generation_config") and model.can_generate():
        text = model.config.get_text_config()
        model.generation_config = transformers.GenerationConfig(
            bos_token_id=1, eos_token_id=text.eos_token_id, pad_token_id=0, do_sample=False)
    model.save_pretrained(folder, **options)
    return {k for f in folder.glob("model*.safetensors") for k in load_file(f)}


def write_json(path, facts):
    """One line per top-level key, so that differences stay readable."""
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items())
    path.write_text("{\n" + lines + "\n}\n")


def write_golden(folder, tensors, facts):
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, folder / "golden.safetensors",
              metadata={"format": "pt"})
    write_json(folder / "golden.json", {"seed": SEED, "versions": VERSIONS, **facts})
