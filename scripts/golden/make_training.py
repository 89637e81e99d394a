"""training/*: ten optimizer steps of two micro-batches each, as transformers' Trainer takes them; schedules.json.
The loss of a step is the mean over the label tokens of both micro-batches together."""
import contextlib
import math
import re

import bitsandbytes.functional as bitsandbytes
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

from make_adapters import LANGUAGE, adapter_key, load_model, save_adapter, seeded_adapter
import make_first_qwen_vl
import make_qwen_vl
from make_llava import N, pixels
from tiny import (ROOT, SEED, VERSIONS, Rows, case_folder, file_key, from_8bit, mm_types, nearest_8bit, write_golden,
                  write_json)

STEPS, WARMUP, ACCUMULATION = 10, 2, 2
DEFAULTS = dict(base="llava-clip-llama", schedule="cosine", learning_rate=1e-3, weight_decay=0.01, max_grad_norm=1.0,
                betas=[0.9, 0.999], eps=1e-8, warmup_steps=WARMUP, steps=STEPS, accumulation=ACCUMULATION, compute="fp32")
TUNED = ["language_model", "lm_head", "multi_modal_projector"]
CASES = {
    "lora": dict(lora=True),
    "lora-bf16": dict(lora=True, compute="bf16"),
    "qlora": dict(lora=True, quantized="nf4"),
    "full": dict(trained=TUNED),
    "full-bf16": dict(trained=TUNED, compute="bf16"),
    "full-tied": dict(trained=TUNED, base="llava-siglip-qwen2", schedule="constant_with_warmup"),
    "projector": dict(trained=["multi_modal_projector"], weight_decay=0.0),
    "components": dict(trained=TUNED + ["vision_tower"], schedule="linear",
                       rates={"vision_tower": 2e-4, "multi_modal_projector": 2e-3}),
} | {f"{base}-{kind}": settings | dict(base=base, micro_batches=f"training/{base}")
     for base in ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen-vl") for kind, settings in (
    ("lora", dict(lora=True)), ("qlora", dict(lora=True, quantized="nf4")),
    ("components", dict(trained=TUNED + ["vision_tower"], schedule="linear",
                        rates={"vision_tower": 2e-4, "multi_modal_projector": 2e-3})))}
PROJECTOR = {"qwen2-vl": ["merger"], "qwen2.5-vl": ["merger"], "qwen-vl": ["attn_pool"],
             "qwen3-vl": ["merger", "deepstack_merger_list.0", "deepstack_merger_list.1"]}      # as PEFT names it; others: multi_modal_projector
TARGETS = {"qwen-vl": r".*\.h\..*\.(c_attn|c_proj|w1|w2)"}
# Trainer.get_decay_parameter_names, and the norms of the Qwen-VLs, which it does not know by their names
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)(?:norm[0-9]*|ln_[a-z0-9]+)(?:$|\.)", r"_norm(?:$|\.)"]


def plans(image_tokens):
    """Six micro-batches of two rows; number i of the run uses i % 6. The third holds no picture, the fifth few labels."""
    image = ("i", image_tokens)
    two = [image, image]
    return [[[("t", 3), image, ("t", 2), ("a", 4)], [("t", 6), ("a", 5)]],
            [[*two, ("t", 3), ("a", 6)], [("t", 4), ("a", 1)]],
            [[("t", 5), ("a", 7)], [("t", 2), ("a", 3), ("t", 2), ("a", 2)]],
            [[image, ("t", 2), ("a", 5)], [("t", 7), image, ("t", 1), ("a", 3)]],
            [[("t", 2), image, ("t", 4), ("a", 1)], [("t", 4), ("a", 3)]],
            [[("t", 3), ("a", 8)], [("t", 1), image, ("t", 1), image, ("a", 4)]]]


def micro_batches(base):
    if base == "qwen-vl":
        yield from make_first_qwen_vl.micro_batches(plans(make_first_qwen_vl.QUERIES))
        return
    if base in make_qwen_vl.CASES:
        yield from make_qwen_vl.micro_batches(base)
        return
    for index, plan in enumerate(plans(N)):
        rows = Rows(f"micro-batch {index}")
        for row in plan:
            rows.add(*row)
        batch = rows.batch()
        count = int((batch["input_ids"] == rows.image_token).sum()) // N
        yield batch | (dict(pixel_values=pixels(f"micro-batch {index}", count)) if count else {})


def component(name):
    """Of a parameter; Qwen-VL's merger or resampler is the projector, the rest of `visual` the tower."""
    name = re.sub(r"visual\.(merger|deepstack_merger_list|attn_pool)\.", "multi_modal_projector.", name).replace("visual.", "vision_tower.")
    name = re.sub(r"transformer\.(?=wte|h\.|ln_f)", "language_model.", name)
    return next(c for c in ("language_model", "lm_head", "multi_modal_projector", "vision_tower") if re.search(rf"(^|\.){c}\.", name))


def optimizer(model, settings):
    decayed = set(get_parameter_names(model, [nn.LayerNorm], NO_DECAY))
    groups = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            rate = settings.get("rates", {}).get(component(name), settings["learning_rate"])
            decay = settings["weight_decay"] if name in decayed else 0.0
            groups.setdefault((rate, decay), []).append(p)
    return torch.optim.AdamW([dict(params=p, lr=rate, weight_decay=decay) for (rate, decay), p in groups.items()],
                             betas=settings["betas"], eps=settings["eps"], foreach=False)


def train(model, settings, batches, on_gradients=lambda step: None):
    """The visible loop. Returns losses, gradient norms before clipping and the rates used, by step."""
    opt = optimizer(model, settings)
    schedule = get_scheduler(settings["schedule"], opt, settings["warmup_steps"], settings["steps"])
    parameters = [p for p in model.parameters() if p.requires_grad]
    autocast = torch.autocast("cpu", torch.bfloat16) if settings["compute"] == "bf16" else contextlib.nullcontext()
    model.train()
    curves = dict(losses=[], grad_norms=[], learning_rates=[], label_tokens=[])
    for step in range(settings["steps"]):
        group = [batches[(step * ACCUMULATION + i) % len(batches)] for i in range(ACCUMULATION)]
        tokens = sum(int((b["labels"][:, 1:] != -100).sum()) for b in group)
        loss = 0.0
        for batch in group:
            with autocast:
                derived = mm_types(batch["input_ids"]) if "image_grid_thw" in batch else {}
                part = model(**batch, **derived, num_items_in_batch=tokens).loss
            if part.requires_grad:
                part.backward()
            loss += part.item()
        on_gradients(step)
        norm = nn.utils.clip_grad_norm_(parameters, settings["max_grad_norm"], foreach=False)
        curves["losses"].append(loss)
        curves["grad_norms"].append(norm.item())
        curves["learning_rates"].append(max(schedule.get_last_lr()) if "rates" not in settings else
                                        settings["learning_rate"] * schedule.lr_lambdas[0](step))
        curves["label_tokens"].append(tokens)
        opt.step()
        schedule.step()
        opt.zero_grad()
    return curves


def quantize_language_model(model, kind):
    """Its linear layers hold what bitsandbytes keeps of them; the head stays whole, as BitsAndBytesConfig leaves it."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and re.search(r"language_model\.|transformer\.h\.", name):
            codes, state = bitsandbytes.quantize_4bit(module.weight.data, blocksize=64, compress_statistics=False, quant_type=kind)
            # By hand: bitsandbytes 0.50.2 mixes up the blocks on the CPU when a row is shorter than one.
            numbers, offset = bitsandbytes.create_dynamic_map(), state.absmax.mean()
            absmax = from_8bit(*nearest_8bit(state.absmax - offset, numbers), numbers) + offset
            values = state.code[torch.stack([codes >> 4, codes & 15], -1).flatten().long()]
            module.weight.data = (values.view(-1, 64) * absmax.view(-1, 1)).view_as(module.weight)


def named_gradients(tensors):
    return ((name.removeprefix("step0.grad."), values) for name, values in tensors.items() if name.startswith("step0.grad."))


def make(case, settings, batches):
    folder = case_folder("training", case)
    base = ROOT / "models" / settings["base"]
    keys = load_file(base / "model.safetensors")
    model = load_model(base)
    if settings.get("lora"):
        lora = LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS.get(settings["base"], LANGUAGE),
                          modules_to_save=PROJECTOR.get(settings["base"], ["multi_modal_projector"]))
        save_adapter(seeded_adapter(model, lora, "lora"), folder / "init", settings["base"])
        model = load_model(base)
        if settings.get("quantized"):
            quantize_language_model(model, settings["quantized"])
        model = PeftModel.from_pretrained(model, folder / "init", is_trainable=True)
        key = adapter_key
        if settings["compute"] == "bf16":  # frozen weights in bf16, trained ones in fp32
            for p in model.parameters():
                p.data = p.data if p.requires_grad else p.data.to(torch.bfloat16)
    else:
        for name, p in model.named_parameters():
            p.requires_grad_(component(name) in settings["trained"])
        key = lambda name: file_key(name, keys)     # noqa: E731
    trained = {key(n): p for n, p in model.named_parameters() if p.requires_grad}
    tensors = {}

    def first_gradients(step):
        if step == 0:
            tensors.update({f"step0.grad.{n}": p.grad.clone() for n, p in trained.items() if p.grad is not None})
    curves = train(model, settings, batches, first_gradients)
    facts = settings | curves
    if settings["compute"] == "bf16":
        write_json(folder / "golden.json", {"seed": SEED, "versions": VERSIONS, **facts})
        return
    norm = math.sqrt(sum(g.square().sum().item() for g in tensors.values()))
    facts["no_grad"] = sorted(n for n in trained if f"step0.grad.{n}" not in tensors)
    facts["noise_grad"] = sorted(n for n in trained if n not in facts["no_grad"] and tensors[f"step0.grad.{n}"].norm() < 1e-6 * norm)
    if rows := {n: (g.abs() < 1e-6 * norm).nonzero().flatten().tolist() for n, g in named_gradients(tensors) if re.search(r"in_proj[._]bias$", n)}:
        facts["noise_rows"] = rows      # of keys, whose bias cancels in a softmax
    if not settings.get("lora"):
        tensors |= {f"final.{n}": p for n, p in trained.items()}
    write_golden(folder, tensors, facts)
    if settings.get("lora"):
        save_adapter(model, folder / "final", settings["base"])


def make_schedules():
    table = []
    for name, steps, warmup in [("cosine", 10, 2), ("cosine", 13, 0), ("cosine", 7, 7), ("linear", 10, 3), ("linear", 5, 0),
                                ("constant_with_warmup", 6, 2), ("constant", 4, 0), ("cosine_with_min_lr", 10, 2)]:
        opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        extra = {"min_lr_rate": 0.1} if name.endswith("min_lr") else None
        schedule, factors = get_scheduler(name, opt, warmup, steps, scheduler_specific_kwargs=extra), []
        for _ in range(steps):
            factors.append(schedule.get_last_lr()[0])
            opt.step()
            schedule.step()
        table.append(dict(type=name, steps=steps, warmup_steps=warmup, **(extra or {}), factors=factors))
    write_json(ROOT / "training" / "schedules.json", {"seed": SEED, "versions": VERSIONS, "schedules": table})


def main():
    case_folder("training")
    made = {}
    for case, settings in CASES.items():
        settings = DEFAULTS | settings
        place = settings.get("micro_batches", "training")
        if place not in made:
            made[place] = list(micro_batches(settings["base"]))
            (ROOT / place).mkdir(exist_ok=True)
            save_file({f"{i}.{k}": v for i, b in enumerate(made[place]) for k, v in b.items()}, ROOT / place / "micro_batches.safetensors",
                      metadata={"format": "pt"})
        make(case, settings, made[place])
    make_schedules()


if __name__ == "__main__":
    main()
