"""models/llava-clip-llama-*: the same model under other tensor names and in three shards."""
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import LlavaForConditionalGeneration

from tiny import ROOT, case_folder, inputs_of, write_json

BASE = "llava-clip-llama"


def llava_hf(name):
    """What llava-hf repositories hold: a nested vision_model, the language model under language_model.model."""
    return name.replace("vision_tower.", "vision_tower.vision_model.")


def in_memory(name):
    """Module names since transformers 5, e.g. of a state_dict saved by other trainers."""
    if name.startswith("language_model.lm_head"):
        return name.removeprefix("language_model.")
    return "model." + name.replace("language_model.model.", "language_model.")


def in_memory_nested(name):
    """Module names of transformers 4.52 to 4.57."""
    return in_memory(llava_hf(name))


def main():
    base = ROOT / "models" / BASE
    golden, weights = load_file(base / "golden.safetensors"), load_file(base / "model.safetensors")

    def copy(suffix):
        folder = case_folder("models", f"{BASE}-{suffix}")
        for file in ("config.json", "generation_config.json"):
            shutil.copy(base / file, folder)
        return folder

    def same(folder):
        """No tensors of its own: everything in the base's golden.safetensors holds for this copy."""
        model, report = LlavaForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
        assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
        with torch.no_grad():
            assert torch.equal(model(**inputs_of(golden)).logits * golden["attention_mask"][..., None], golden["logits"])
        write_json(folder / "golden.json", {"same_as": BASE})

    for suffix, rename in (("llava-hf", llava_hf), ("in-memory", in_memory), ("in-memory-nested", in_memory_nested)):
        folder = copy(suffix)
        renamed = {rename(k): v for k, v in weights.items()}
        if suffix == "llava-hf":    # buffers that old versions saved and every reader must pass over
            renamed["vision_tower.vision_model.embeddings.position_ids"] = torch.arange(17)[None]
            renamed["language_model.model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
        save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
        same(folder)

    folder = copy("sharded")
    LlavaForConditionalGeneration.from_pretrained(base).save_pretrained(folder, max_shard_size="75KB")
    assert len(list(folder.glob("model-*.safetensors"))) == 3
    same(folder)


main()
