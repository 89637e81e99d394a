"""models/*-nf4, *-int8: checkpoints in few bits as transformers and bitsandbytes write them, some layers' values, and the logits of the
dequantised model, on the base's batch."""
import warnings

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig

from tiny import ROOT, case_folder, inputs_of, made_whole, save_model, write_golden

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
CASES = {  # name: base, class, settings
    "llava-clip-llama-nf4": ("llava-clip-llama", AutoModelForImageTextToText, NF4 | {"bnb_4bit_use_double_quant": True}),
    "llama-nf4": ("llama", AutoModelForCausalLM, NF4 | {"llm_int8_skip_modules": ["down_proj"]}),
    "llava-clip-llama-int8": ("llava-clip-llama", AutoModelForImageTextToText, {"load_in_8bit": True}),
    "qwen2-vl-nf4": ("qwen2-vl", AutoModelForImageTextToText, NF4 | {"bnb_4bit_use_double_quant": True}),
}
SHOWN = ("layers.0.self_attn.q_proj", "layers.1.mlp.up_proj")


def main():
    warnings.simplefilter("ignore")
    for name, (base, cls, settings) in CASES.items():
        model = cls.from_pretrained(ROOT / "models" / base, dtype=torch.float32, device_map="cpu",
                                    quantization_config=BitsAndBytesConfig(**settings)).eval()
        folder = case_folder("models", name)
        save_model(model, folder)
        file = folder / "model.safetensors"
        save_file(dict(sorted(load_file(file).items())), file, metadata={"format": "pt"})
        whole = made_whole(cls.from_pretrained(folder, dtype=torch.float32, device_map="cpu"),
                           cls.from_pretrained(ROOT / "models" / base, dtype=torch.float32)).eval()
        inputs = inputs_of(load_file(ROOT / "models" / base / "golden.safetensors"))
        with torch.no_grad():
            logits = whole(**inputs).logits * inputs["attention_mask"][..., None]
        values = {f"values.{k}": v for k, v in whole.state_dict().items()
                  if k.removesuffix(".weight").endswith(SHOWN) and "vision" not in k}
        assert len(values) == 2 and all(v.is_floating_point() for v in values.values())
        write_golden(folder, {"logits": logits} | values, {"base": base})


if __name__ == "__main__":
    main()
