"""Do transformers and PEFT read what vlmtune writes? Run the tests with VLMTUNE_KEEP_WRITTEN naming a folder, then this on it:

    VLMTUNE_KEEP_WRITTEN=written build/tests/parity/parity_test --gtest_filter='*Written*'
    venv/bin/python scripts/golden/check_written.py written

adapters/CASE, merged/CASE, models/CASE and quantized/CASE must load without a missing or unexpected tensor and give the golden logits;
adapters-original/CASE, LLaVA's own LoRA folder, must hold what the golden one holds.
"""
import sys
import warnings
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import qwen_vl_reference
from tiny import ROOT, inputs_of, json, made_whole

TOLERANCE = 1e-4
UNUSED = "vision_tower.encoder.layers.2."      # vlmtune does not load layers behind the selected one, so it writes no adapters of them


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "qwen":
        return qwen_vl_reference.Module.load(folder)
    cls = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    model, info = cls.from_pretrained(folder, output_loading_info=True, dtype=torch.float32, device_map="cpu")
    problems = {k: sorted(v) for k, v in info.items() if v}
    assert not problems, problems
    return model.eval()


def difference(model, case, logits):
    golden = load_file(ROOT / "models" / case / "golden.safetensors")
    inputs, facts = inputs_of(golden), json.loads((ROOT / "models" / case / "golden.json").read_text())
    if "batch_num_images" in facts:
        inputs["batch_num_images"] = torch.tensor(facts["batch_num_images"])
    with torch.no_grad():
        found = model(**inputs).logits * golden["attention_mask"].unsqueeze(-1)
    return (found - logits).abs().max().item()


def golden_of(topic, case):
    folder = ROOT / topic / case
    golden = json.loads((folder / "golden.json").read_text())
    return golden_of(topic, golden["same_as"]) if "same_as" in golden else (golden, load_file(folder / "golden.safetensors")["logits"])


def check_adapter(folder):
    golden, logits = golden_of("adapters", folder.name)
    model = PeftModel.from_pretrained(load(ROOT / "models" / golden["base"]), folder).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))
    assert not result.unexpected_keys, result.unexpected_keys
    missing = [k for k in result.missing_keys if ("lora_" in k or "modules_to_save" in k) and UNUSED not in k]
    assert not missing, missing
    return difference(model, golden["base"], logits)


def check_merged(folder):
    golden, logits = golden_of("adapters", folder.name)
    return difference(load(folder), golden["base"], logits)


def check_model(folder):
    return difference(load(folder), folder.name, golden_of("models", folder.name)[1])


def check_quantized(folder):
    golden, logits = golden_of("models", folder.name)
    return difference(made_whole(load(folder), load(ROOT / "models" / golden["base"])), golden["base"], logits)


def check_original_adapter(folder):
    """LLaVA's builder puts the adapter on the bare language model, and loads the rest by name."""
    golden = ROOT / "adapters" / folder.name
    language_model = ROOT / "models" / json.loads((golden / "golden.json").read_text())["language_model"]
    found = [get_peft_model_state_dict(PeftModel.from_pretrained(load(language_model), place)) for place in (folder, golden)]
    found.append(torch.load(folder / "non_lora_trainables.bin", weights_only=True))
    found.append(torch.load(golden / "non_lora_trainables.bin", weights_only=True))
    assert found[0].keys() == found[1].keys() and found[2].keys() == found[3].keys()
    return max((ours[name] - theirs[name]).abs().max().item() for ours, theirs in (found[:2], found[2:]) for name in ours)


def main(root):
    bad = count = 0
    for topic, check in (("adapters", check_adapter), ("merged", check_merged), ("models", check_model), ("quantized", check_quantized),
                         ("adapters-original", check_original_adapter)):
        for folder in sorted(p for p in (root / topic).glob("*") if p.is_dir()):
            count += 1
            try:
                found = check(folder)
                verdict = "ok" if found <= TOLERANCE else "DIFFERENT"
                print(f"{verdict:10} {found:.1e}  {topic}/{folder.name}")
                bad += found > TOLERANCE
            except Exception as error:      # one bad folder must not hide the others
                print(f"FAILED     {topic}/{folder.name}: {type(error).__name__}: {error}")
                bad += 1
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
