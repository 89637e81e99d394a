"""adapters/*: adapters that PEFT wrote for the tiny models. Logits and gradients with the adapter, weights after merging."""
import copy
import json
import math
import shutil
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import qwen_vl_reference
from tiny import ROOT, case_folder, file_key, generator, inputs_of, write_golden

warnings.filterwarnings("ignore", message="Could not find a config file")      # base paths are relative to the adapter
NO_TOWER = ".*vision_tower.*"
LANGUAGE = r".*language_model.*\.(q_proj|v_proj)"
CASES = {   # case: (base model, LoraConfig fields)
    # a plain list meets the tower as well, whose projections have the same names
    "list": ("llava-clip-llama", dict(target_modules=["q_proj", "v_proj"])),
    "regex-projector": ("llava-clip-llama", dict(target_modules=LANGUAGE, modules_to_save=["multi_modal_projector"])),
    "patterns": ("llava-clip-llama", dict(target_modules=["q_proj", "v_proj", "down_proj"], exclude_modules=NO_TOWER,
                                          rank_pattern={"layers.0.self_attn.q_proj": 2, r".*\.layers\.1\..*down_proj": 6},
                                          alpha_pattern={"v_proj": 20, "layers.0.self_attn.q_proj": 3})),
    "rslora": ("llava-clip-llama", dict(target_modules=["k_proj", "o_proj", "gate_proj"], exclude_modules=NO_TOWER, use_rslora=True,
                                        rank_pattern={"o_proj": 9})),
    "head": ("llava-clip-llama", dict(target_modules=LANGUAGE, modules_to_save=["lm_head"])),
    "embeddings-and-head": ("llava-clip-llama", dict(target_modules=LANGUAGE, modules_to_save=["embed_tokens", "lm_head"])),
    "all-linear": ("llava-clip-llama", dict(target_modules="all-linear", task_type="CAUSAL_LM")),
    "vision": ("llava-clip-llama", dict(target_modules=r".*vision_tower.*\.(q_proj|out_proj|fc1)")),
    "layers": ("llava-clip-llama", dict(target_modules=["q_proj", "up_proj"], layers_to_transform=[1], layers_pattern="layers")),
    "dora": ("llava-clip-llama", dict(target_modules=LANGUAGE, use_dora=True)),
    "siglip-qwen2": ("llava-siglip-qwen2", dict(target_modules=r".*language_model.*\.(q_proj|k_proj|up_proj)",
                                                modules_to_save=["multi_modal_projector"])),
    "qwen2-vl": ("qwen2-vl", dict(target_modules=LANGUAGE, modules_to_save=["merger"])),
    "qwen2-vl-vision": ("qwen2-vl", dict(target_modules=r".*visual\.blocks.*\.(qkv|proj|fc1)")),
    "qwen2.5-vl": ("qwen2.5-vl", dict(target_modules=LANGUAGE, modules_to_save=["merger"])),
    "qwen3-vl": ("qwen3-vl", dict(target_modules=LANGUAGE, modules_to_save=["merger", "deepstack_merger_list.0", "deepstack_merger_list.1"])),
    "qwen-vl": ("qwen-vl", dict(target_modules=["c_attn", "attn.c_proj", "w1", "w2"], modules_to_save=["attn_pool"])),
    "qwen-vl-vision": ("qwen-vl", dict(target_modules=r".*visual\.transformer.*\.(in_proj|out_proj|c_fc)")),
    "text": ("llama", dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])),
}


def adapter_key(name):
    """Parameter name in a PeftModel -> name in adapter_model.safetensors."""
    if name.endswith("lora_magnitude_vector.default.weight"):
        return name.removesuffix(".default.weight")
    return name.replace("modules_to_save.default.", "").replace(".default.", ".")


def seeded_adapter(model, config, case):
    """A PeftModel whose adapter is not the identity: B is random and saved modules differ from the base's."""
    model = get_peft_model(model, config)
    for name, p in model.named_parameters():
        if p.requires_grad:
            noise = torch.randn(p.shape, generator=generator(case, name))
            if "lora_A" in name or "lora_B" in name:
                p.data.copy_(noise * (1 / math.sqrt(p.shape[1]) if "lora_A" in name else 0.15))
            else:
                p.data.add_(noise * 0.1)
    return model.eval()


def save_adapter(model, folder, base):
    """save_pretrained, made the same every time: base as a relative path, targets sorted, no model card."""
    model.peft_config["default"].base_model_name_or_path = f"../../models/{base}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load_model(folder):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "qwen":
        return qwen_vl_reference.Module.load(folder)
    return (AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM).from_pretrained(folder)


def load_base(base):
    folder = ROOT / "models" / base
    golden = load_file(folder / "golden.safetensors")
    return load_model(folder), inputs_of(golden) | {"labels": golden["labels"]}, load_file(folder / "model.safetensors")


def make(case, base, fields):
    folder = case_folder("adapters", case)
    model, batch, weights = load_base(base)
    save_adapter(seeded_adapter(model, LoraConfig(r=4, lora_alpha=8, **fields), case), folder, base)
    adapter = PeftModel.from_pretrained(load_base(base)[0], folder, is_trainable=True)
    out = adapter(**batch)
    out.loss.backward()
    mask = batch["attention_mask"][..., None]
    trained = {adapter_key(n): p.grad for n, p in adapter.named_parameters() if p.requires_grad}
    tensors = {"logits": out.logits.detach() * mask} | {f"grad.{n}": g for n, g in trained.items() if g is not None}
    facts = {"base": base, "loss": out.loss.item(), "no_grad": sorted(n for n, g in trained.items() if g is None)}
    merged = copy.deepcopy(adapter).merge_and_unload()
    with torch.no_grad():
        assert torch.allclose(merged(**batch).logits * mask, tensors["logits"], atol=2e-5, rtol=0)
    tensors |= {f"merged.{file_key(n, weights)}": p for n, p in merged.named_parameters()
                if f"base_model.model.{n.removesuffix('weight')}lora_A.weight" in trained}
    assert set(load_file(folder / "adapter_model.safetensors")) == set(trained)
    write_golden(folder, tensors, facts)


def make_old_spelling():
    """The adapter regex-projector as PEFT wrote it before transformers 4.52; its golden holds for this one."""
    source, folder = ROOT / "adapters" / "regex-projector", case_folder("adapters", "regex-projector-old")
    shutil.copy(source / "adapter_config.json", folder)
    old = {k.replace("base_model.model.model.language_model.", "base_model.model.language_model.model.")
            .replace("base_model.model.model.multi_modal", "base_model.model.multi_modal"): v
           for k, v in load_file(source / "adapter_model.safetensors").items()}
    save_file(old, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "golden.json").write_text('{\n "same_as": "regex-projector"\n}\n')


if __name__ == "__main__":
    for name, (base_model, settings) in CASES.items():
        make(name, base_model, settings)
    make_old_spelling()
