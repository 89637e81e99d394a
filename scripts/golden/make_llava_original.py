"""models/llava-original-*, adapters/llava-original, pickles/: existing cases in the layouts that LLaVA's own repository reads and writes."""
import json
import shutil
from collections import OrderedDict

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

from make_images import SHORTEST
from make_vision import SMALL
from tiny import ROOT, SEED, VERSIONS, VISION, case_folder, generator, randomize, write_json

TOWER = "llava-original-tower"
TEXT_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act",
             "max_position_embeddings", "rms_norm_eps", "bos_token_id", "eos_token_id", "attention_bias", "mlp_bias", "sliding_window")
PREFIXES = {"language_model.": "", "vision_tower.": "model.vision_tower.vision_tower.vision_model.", "multi_modal_projector.linear_1.": "model.mm_projector.0.",
            "multi_modal_projector.linear_2.": "model.mm_projector.2.", "image_newline": "model.image_newline"}


def original(weights, prefixes=PREFIXES):
    """transformers' names in a file -> LLaVA's."""
    return {new + name.removeprefix(old): value for name, value in weights.items() for old, new in prefixes.items() if name.startswith(old)}


def config_of(folder, model_type, cls, **vision):
    """LLaVA's config.json: the language model's keys at the top as old transformers wrote them, what it added beside them."""
    text = json.loads((folder / "config.json").read_text())
    text = text.get("text_config", text)
    return {"architectures": [cls], "model_type": model_type, "torch_dtype": "float32", "transformers_version": "4.37.2"} | \
        {k: text[k] for k in TEXT_KEYS if k in text} | {
            "pad_token_id": 0, "rope_scaling": None, "tie_word_embeddings": False, "use_cache": True, "use_mm_proj": True,
            "freeze_mm_mlp_adapter": False, "image_aspect_ratio": "pad", "image_grid_pinpoints": None, "mm_hidden_size": VISION["hidden_size"],
            "mm_patch_merge_type": "flat", "mm_projector_lr": None, "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": None,
            "mm_use_im_patch_token": False, "mm_use_im_start_end": False, "mm_vision_select_feature": "patch", "mm_vision_select_layer": -2,
            "mm_vision_tower": f"../{TOWER}", "tokenizer_model_max_length": 2048, "tokenizer_padding_side": "right",
            "tune_mm_mlp_adapter": False, "tune_mm_vision_resampler": False, "unfreeze_mm_vision_tower": False} | vision


def new_case(topic, case, config, **golden):
    folder = case_folder(topic, case)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if golden:
        write_json(folder / "golden.json", golden)
    return folder


def save_bin(tensors, file):
    """As the trainers save: through a path the archive's folder has the file's name, through a stream it is called archive."""
    torch.save(tensors, file)
    assert all(torch.equal(v, tensors[k]) for k, v in torch.load(file, weights_only=True).items())


def buffers(weights):
    """What old versions saved beside the parameters."""
    return weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}


def make_tower(weights):
    """The tower alone, as a whole CLIP repository of the days before safetensors."""
    whole = randomize(CLIPModel(CLIPConfig(text_config=SMALL, vision_config=VISION, projection_dim=16)), TOWER).state_dict()
    whole |= {"vision_model." + k.removeprefix("vision_tower."): v for k, v in weights.items() if k.startswith("vision_tower.")}
    whole["vision_model.embeddings.position_ids"] = torch.arange(17)[None]
    folder = new_case("models", TOWER, {
        "architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": 16, "torch_dtype": "float32", "transformers_version": None,
        "text_config": SMALL | {"model_type": "clip_text_model"}, "vision_config": VISION | {"model_type": "clip_vision_model", "hidden_act": "quick_gelu"}})
    save_bin(OrderedDict(whole), folder / "pytorch_model.bin")
    CLIPImageProcessorPil(**SHORTEST).save_pretrained(folder)


def make_models(base, weights):
    source = ROOT / "models" / base
    whole = buffers(original(weights)) | {"model.vision_tower.vision_tower.vision_model.embeddings.position_ids": torch.arange(17)[None]}
    assert len(whole) == len(weights) + 2
    folder = new_case("models", "llava-original-clip-llama", config_of(source, "llava_llama", "LlavaLlamaForCausalLM", unfreeze_mm_vision_tower=True),
                      same_as=base)
    names = sorted(whole)
    places = {name: f"pytorch_model-{1 + (i * 2 >= len(names)):05d}-of-00002.bin" for i, name in enumerate(names)}
    for file in sorted(set(places.values())):
        save_bin({k: whole[k] for k in names if places[k] == file}, folder / file)
    write_json(folder / "pytorch_model.bin.index.json", {
        "metadata": {"total_size": sum(v.nbytes for v in whole.values())}, "weight_map": places})
    shutil.copy(source / "generation_config.json", folder)

    folder = new_case("models", "llava-original-clip-llama-no-tower", config_of(source, "llava", "LlavaLlamaForCausalLM"), same_as=base)
    save_file({k: v.clone() for k, v in original(weights).items() if "vision_tower" not in k}, folder / "model.safetensors", metadata={"format": "pt"})

    folder = new_case("models", "llava-original-language", {k: v for k, v in config_of(source, "llama", "LlamaForCausalLM").items() if "mm" not in k})
    with open(folder / "pytorch_model.bin", "wb") as stream:
        torch.save(buffers({k: v for k, v in original(weights, {"language_model.": ""}).items()}), stream)


def make_next(base):
    source = ROOT / "models" / base
    config = json.loads((source / "config.json").read_text())
    folder = new_case("models", "llava-original-next-clip-mistral", config_of(
        source, "llava_mistral", "LlavaMistralForCausalLM", image_aspect_ratio="anyres", mm_patch_merge_type="spatial_unpad",
        image_grid_pinpoints=[[w, h] for h, w in config["image_grid_pinpoints"]], image_crop_resolution=224, image_split_resolution=224,
        unfreeze_mm_vision_tower=True, mm_vision_tower_lr=2e-6), same_as=base)
    weights = load_file(source / "model.safetensors")
    renamed = original(weights)
    assert len(renamed) == len(weights) and "model.image_newline" in renamed
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


def make_stage1():
    """What the first stage writes: a projector and LLaVA's config.json; the language model and the tower are elsewhere."""
    folder = new_case("models", "stage1-mlp2x-original", config_of(
        ROOT / "models" / "llama", "llava_llama", "LlavaLlamaForCausalLM", mm_vision_tower="../clip-vision", tune_mm_mlp_adapter=True),
        same_as="stage1-mlp2x")
    save_bin(load_file(ROOT / "models" / "stage1-mlp2x" / "mm_projector.safetensors"), folder / "mm_projector.bin")


def make_adapter(base):
    """A LoRA folder of finetune_lora.sh. The list of targets would meet the tower too, which the trainer adds after the adapter."""
    source = ROOT / "adapters" / "regex-projector"
    trained, options = load_file(source / "adapter_model.safetensors"), json.loads((source / "adapter_config.json").read_text())
    folder = new_case("adapters", "llava-original", config_of(ROOT / "models" / base, "llava_llama", "LlavaLlamaForCausalLM",
                                                              mm_vision_tower=f"../../models/{TOWER}"),
                      same_as="regex-projector", language_model="llava-original-language")
    root = "base_model.model."
    lora = {k.replace("model.language_model.", "model."): v for k, v in trained.items() if "lora_" in k}
    rest = {root + k: v for k, v in original({k.removeprefix(root + "model."): v for k, v in trained.items() if "lora_" not in k}).items()}
    assert len(lora) + len(rest) == len(trained) and root + "model.mm_projector.2.bias" in rest
    save_bin(lora, folder / "adapter_model.bin")
    save_bin(rest, folder / "non_lora_trainables.bin")
    (folder / "adapter_config.json").write_text(json.dumps({
        "auto_mapping": None, "base_model_name_or_path": "../../models/llava-original-language", "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "init_lora_weights": True, "layers_pattern": None, "layers_to_transform": None, "lora_alpha": options["lora_alpha"],
        "lora_dropout": 0.05, "modules_to_save": None, "peft_type": "LORA", "r": options["r"], "revision": None,
        "target_modules": ["v_proj", "q_proj"], "task_type": "CAUSAL_LM"}, indent=2) + "\n")


class Call:
    """Unpickling it calls a function of the file's choice."""

    def __reduce__(self):
        return print, ("a pickle that a reader must not run",)


def make_pickles():
    folder = case_folder("pickles")
    base = torch.randn(6, 8, generator=generator("pickles"))
    odd = OrderedDict({
        "whole": base, "transposed": base.T, "column": base[:, 3], "part": base[2:4, 1:7:2], "repeated": base[0, :1].expand(3, 4),
        "parameter": nn.Parameter(base[1].clone()), "scalar": torch.tensor(2.5), "none": torch.zeros(0, 3), "Zürich 🙂": base[5].clone(),
        "half": base.half(), "bfloat": base.bfloat16(), "double": base.double(), "long": torch.arange(-2, 3), "int": torch.arange(3, dtype=torch.int32),
        "byte": torch.arange(250, 256, dtype=torch.uint8), "bool": torch.tensor([True, False, True])})
    odd |= {f"layer.{i}": base[i % 6] for i in range(300)}      # more than 256 remembered objects
    odd._metadata = OrderedDict({"": {"version": 1}})            # state_dict() has it
    where, torch.serialization.location_tag = torch.serialization.location_tag, lambda storage: "cuda:0"
    torch.save(odd, folder / "odd.bin")
    torch.serialization.location_tag = where
    save_file({k: v.detach().contiguous().clone() for k, v in odd.items()}, folder / "odd.safetensors", metadata={"format": "pt"})
    torch.save({}, folder / "before_zip.bin", _use_new_zipfile_serialization=False)     # with tensors it would hold their addresses
    torch.save({"weight": base, "trap": Call()}, folder / "calls.bin")
    write_json(folder / "golden.json", {"seed": SEED, "versions": VERSIONS, "same": ["odd.bin", "odd.safetensors"], "refused": ["before_zip.bin", "calls.bin"]})


def main(base="llava-clip-llama"):
    weights = load_file(ROOT / "models" / base / "model.safetensors")
    make_tower(weights)
    make_models(base, weights)
    make_next("llava-next-clip-mistral")
    make_stage1()
    make_adapter(base)
    make_pickles()


main()
