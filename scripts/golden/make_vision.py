"""models/<tower>: bare vision towers. Every hidden state of two images."""
import torch
from transformers import CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModel, SiglipVisionConfig, SiglipVisionModel

from tiny import VISION, case_folder, generator, randomize, save_model, write_golden

SMALL = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)


def towers():
    yield "clip-vision", randomize(CLIPVisionModel(CLIPVisionConfig(**VISION)), "clip-vision"), None
    # 30 is not a multiple of 7: the last two pixels of each side are dropped
    siglip = SiglipVisionModel(SiglipVisionConfig(**VISION | dict(image_size=30)))
    yield "siglip-vision", randomize(siglip, "siglip-vision"), None
    # a whole CLIP repository: the tower's weights sit under vision_model., its config under vision_config
    whole = randomize(CLIPModel(CLIPConfig(text_config=SMALL, vision_config=VISION, projection_dim=16)), "clip-full")
    yield "clip-full", whole.vision_model, whole


def main():
    for case, tower, whole in towers():
        folder = case_folder("models", case)
        save_model(whole or tower, folder)
        size = tower.config.image_size
        pixels = torch.randn(2, 3, size, size, generator=generator(case, "pixels"))
        with torch.no_grad():
            out = tower(pixels, output_hidden_states=True)
        tensors = {"pixel_values": pixels, "last_hidden_state": out.last_hidden_state}
        tensors |= {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
        write_golden(folder, tensors, {"num_hidden_states": len(out.hidden_states)})


main()
