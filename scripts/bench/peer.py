"""The same work in transformers + PEFT; each prints one JSON line.

usage: peer.py step CHECKPOINT fp32|bf16 STEPS [checkpointing]    LoRA steps: 2 rows of 196 image and 128 text tokens
       peer.py products CHECKPOINT fp32|bf16       the matrix products that such a step cannot do without, nothing else
       peer.py first CHECKPOINT fp32|bf16          process start to first token is timed from outside
       peer.py decode CHECKPOINT fp32|bf16 TOKENS  tokens per second of greedy decoding after a picture and a prompt
"""
import json
import resource
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(2)


def load(checkpoint, precision):
    return LlavaForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)


def products(checkpoint, precision):
    """Seconds of the products with frozen weights: forward, and backward to the inputs behind the tower; logits of supervised tokens."""
    config = json.loads((Path(checkpoint) / "config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    hidden, inner = text["hidden_size"], text["intermediate_size"]
    keys = hidden // text["num_attention_heads"] * text["num_key_value_heads"]
    layers, blocks = text["num_hidden_layers"], vision["num_hidden_layers"]
    wide, tower = vision["hidden_size"], vision["intermediate_size"]
    shapes = [(648, hidden, hidden, 4 * layers), (648, keys, hidden, 4 * layers), (648, inner, hidden, 4 * layers), (648, hidden, inner, 2 * layers),
              (254, text["vocab_size"], hidden, 2),
              (394, wide, wide, 4 * blocks), (394, tower, wide, blocks), (394, wide, tower, blocks)]
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    total = 0
    for rows, out, width, times in shapes:
        x, w = torch.randn(rows, width).to(kind), torch.randn(out, width).to(kind)
        seconds = []
        for _ in range(13):
            begin = time.perf_counter()
            torch.nn.functional.linear(x, w)
            seconds.append(time.perf_counter() - begin)
        total += times * statistics.median(seconds[3:])
    return {"seconds": total}


def step(checkpoint, precision, steps, checkpointing):
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(load(checkpoint, precision), LoraConfig(
        r=8, lora_alpha=16, target_modules=r".*language_model.*\.(q_proj|v_proj)", modules_to_save=["multi_modal_projector"]))
    model.train()
    if checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0)
    vocab = model.config.text_config.vocab_size
    torch.manual_seed(0)
    text = torch.randint(0, 200, (2, 127))
    ids = torch.cat([torch.full((2, 1), vocab - 4), torch.full((2, 196), vocab - 1), text], 1)
    labels = ids.clone()
    labels[:, :197] = -100
    pixels = torch.randn(2, 3, 224, 224, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    seconds = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=ids, labels=labels, pixel_values=pixels, attention_mask=torch.ones_like(ids)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds[2:])}


def prompt(checkpoint, precision):
    from PIL import Image
    processor = AutoProcessor.from_pretrained(checkpoint)
    picture = Image.open(Path(checkpoint).parent / "picture.png").convert("RGB")
    inputs = processor(text="<image>" + "What is in this picture? " * 5, images=picture, return_tensors="pt")
    return {k: v.to(torch.bfloat16) if precision == "bf16" and v.is_floating_point() else v for k, v in inputs.items()}


def generate(checkpoint, precision, tokens):
    model, inputs = load(checkpoint, precision).eval(), prompt(checkpoint, precision)
    with torch.inference_mode():
        def run(n):
            begin = time.perf_counter()
            model.generate(**inputs, max_new_tokens=n, min_new_tokens=n, do_sample=False)
            return time.perf_counter() - begin
        if tokens == 1:
            run(1)
            return {}
        run(2)
        first = statistics.median(run(1) for _ in range(3))
        whole = statistics.median(run(tokens) for _ in range(3))
    return {"tokens_per_s": (tokens - 1) / (whole - first)}


if __name__ == "__main__":
    kind, checkpoint, precision = sys.argv[1:4]
    if kind == "step":
        result = step(checkpoint, precision, int(sys.argv[4]), "checkpointing" in sys.argv[5:])
    elif kind == "products":
        result = products(checkpoint, precision)
    else:
        result = generate(checkpoint, precision, int(sys.argv[4]) if kind == "decode" else 1)
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))
