"""models/llava-*: LLaVA-1.5 kinds. Logits of {two images, one image in the middle, text only}, every gradient, greedy tokens."""
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM, LlavaConfig,
                          LlavaForConditionalGeneration, MistralConfig, Qwen2Config, SiglipVisionConfig)

from tiny import (IMAGE_TOKEN, ROOT, TEXT, VISION, Rows, case_folder, forward_and_gradients, generator, greedy, randomize,
                  save_model, write_golden)

N = 16                  # image tokens: (28 / 7)^2
CASES = {
    "llava-clip-llama": LlavaConfig(text_config=LlamaConfig(**TEXT), vision_config=CLIPVisionConfig(**VISION),
                                    image_token_index=IMAGE_TOKEN, image_seq_length=N),
    # tied embeddings, no CLS so nothing to drop, all layers but not the last norm
    "llava-siglip-qwen2": LlavaConfig(
        text_config=Qwen2Config(**TEXT, tie_word_embeddings=True), vision_config=SiglipVisionConfig(**VISION),
        image_token_index=IMAGE_TOKEN, image_seq_length=N, vision_feature_layer=-1, vision_feature_select_strategy="full",
        tie_word_embeddings=True),
    # two layers side by side, projector without bias and with another activation, CLS kept, one positive layer index
    "llava-layers-mistral": LlavaConfig(
        text_config=MistralConfig(**TEXT, sliding_window=8), vision_config=CLIPVisionConfig(**VISION), image_token_index=IMAGE_TOKEN,
        image_seq_length=N + 1, vision_feature_layer=[-2, 3], vision_feature_select_strategy="full", projector_hidden_act="gelu_pytorch_tanh",
        multimodal_projector_bias=False),
    "llava-layers-default": LlavaConfig(
        text_config=LlamaConfig(**TEXT | dict(num_hidden_layers=1)), vision_config=CLIPVisionConfig(**VISION),
        image_token_index=IMAGE_TOKEN, image_seq_length=N, vision_feature_layer=[-2, -1]),
}


def rows(case, n):
    return Rows(case).add(("t", 3), ("i", n), ("i", n), ("t", 2), ("a", 6)) \
                     .add(("t", 5), ("i", n), ("t", 4), ("a", 3), ("t", 2), ("a", 2)) \
                     .add(("t", 8), ("a", 5)).batch()


def pixels(case, count=3, size=VISION["image_size"]):
    return torch.randn(count, 3, size, size, generator=generator(case, "pixels"))


def generation(model, case, n, pictures):
    """Prompts: two images, text only, one image first and last."""
    prompts = Rows(case + "/prompts").add(("t", 2), ("i", n), ("i", n), ("t", 3)).add(("t", 6)).add(("i", n), ("t", 1)).ids
    found = greedy(model, prompts, 10, [dict(pixel_values=pictures[:2]), {}, dict(pixel_values=pictures[2:])])
    return [entry | {"images": images} for entry, images in zip(found, ([0, 1], [], [2]))]


def make(case, config):
    folder, model = case_folder("models", case), randomize(LlavaForConditionalGeneration(config), case)
    keys = save_model(model, folder)
    n = config.image_seq_length
    batch = rows(case, n) | dict(pixel_values=pixels(case))
    tensors, facts = forward_and_gradients(model, batch, keys)
    with torch.no_grad():
        features = model.model.get_image_features(batch["pixel_values"]).pooler_output
    tensors["image_features"] = torch.cat(list(features))
    facts |= {"image_tokens": n, "generate": generation(model, case, n, batch["pixel_values"])}
    write_golden(folder, batch | tensors, facts)


def make_parts():
    """stage1-*: a bare language model and a bare tower joined by a projector file under LLaVA's own names.
    Image positions hold -200 in input_ids, one per feature, since the language model knows no image token."""
    text = LlamaForCausalLM.from_pretrained(ROOT / "models" / "llama")
    tower = CLIPVisionModel.from_pretrained(ROOT / "models" / "clip-vision")
    for case, names in (("stage1-linear", {"": ""}), ("stage1-mlp2x", {"linear_1.": "0.", "linear_2.": "2."})):
        config = LlavaConfig(text_config=text.config, vision_config=tower.config, image_token_index=IMAGE_TOKEN, image_seq_length=N)
        model = LlavaForConditionalGeneration(config)
        if case == "stage1-linear":     # LLaVA-1.0's projector, which transformers has no class for
            model.model.multi_modal_projector = nn.Linear(config.vision_config.hidden_size, config.text_config.hidden_size)
        randomize(model, case)
        model.model.language_model.load_state_dict(text.model.state_dict())
        model.lm_head.load_state_dict(text.lm_head.state_dict())
        model.model.vision_tower.load_state_dict(tower.state_dict())
        folder = case_folder("models", case)
        projector = model.model.multi_modal_projector

        def llava_name(name):
            ours = max((k for k in names if name.startswith(k)), key=len)
            return "model.mm_projector." + names[ours] + name.removeprefix(ours)
        save_file({llava_name(k): v.clone() for k, v in projector.state_dict().items()}, folder / "mm_projector.safetensors",
                  metadata={"format": "pt"})
        batch = rows(case, N) | dict(pixel_values=pixels(case))
        model.requires_grad_(False)
        projector.requires_grad_(True)
        out = model(**batch)
        out.loss.backward()
        tensors = {"logits": out.logits.detach() * batch["attention_mask"][..., None]}
        tensors |= {f"grad.{llava_name(n)}": p.grad for n, p in projector.named_parameters()}
        ids = batch.pop("input_ids")
        batch["input_ids"] = ids.where(ids != IMAGE_TOKEN, -200)
        write_golden(folder, batch | tensors, {
            "language_model": "llama", "vision_tower": "clip-vision", "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
            "loss": out.loss.item(), "label_tokens": int((batch["labels"][:, 1:] != -100).sum()), "image_tokens": N})
        assert set(load_file(folder / "mm_projector.safetensors")) == {k.removeprefix("grad.") for k in tensors if k.startswith("grad.")}


if __name__ == "__main__":
    for name, settings in CASES.items():
        make(name, settings)
    make_parts()
