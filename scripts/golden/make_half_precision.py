"""models/*-bf16, *-fp16: the same weights in 16-bit types; the logits computed in fp32 and in that type."""
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tiny import ROOT, case_folder, inputs_of, write_golden

CASES = [("llava-clip-llama", "bf16", torch.bfloat16), ("llava-clip-llama", "fp16", torch.float16), ("qwen2-vl", "bf16", torch.bfloat16),
         ("qwen2.5-vl", "bf16", torch.bfloat16), ("qwen3-vl", "bf16", torch.bfloat16)]


def logits(folder, inputs, dtype):
    model, report = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    with torch.no_grad():
        return model(**inputs).logits.float() * inputs["attention_mask"][..., None]


for base, suffix, dtype in CASES:
    folder, source = case_folder("models", f"{base}-{suffix}"), ROOT / "models" / base
    AutoModelForImageTextToText.from_pretrained(source, dtype=dtype).save_pretrained(folder)
    inputs = inputs_of(load_file(source / "golden.safetensors"))
    write_golden(folder, {"logits": logits(folder, inputs, torch.float32), "logits_native": logits(folder, inputs, dtype)}, {"inputs": base})
