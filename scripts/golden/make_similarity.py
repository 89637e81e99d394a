"""similarity/: contrastive loss and gradients of pictures and texts through llava-clip-llama, by transformers' modules and CLIP's loss;
recalls of a table of similarities by torchmetrics."""
from importlib.metadata import version

import torch
from safetensors.torch import load_file
from torch import nn
from torchmetrics.retrieval import RetrievalHitRate
from transformers import LlavaForConditionalGeneration
from transformers.models.clip.modeling_clip import image_text_contrastive_loss

from tiny import ROOT, Rows, VERSIONS, case_folder, file_key, generator, write_golden

BASE = "llava-clip-llama"
ROWS = ((5, 4), (0, 7), (3, 1), (2, 2))  # tokens before the picture's slots, and of the answer


def unit(x):
    return nn.functional.normalize(x, dim=-1)


def model_case():
    model = LlavaForConditionalGeneration.from_pretrained(ROOT / "models" / BASE, dtype=torch.float32).eval()
    width = model.config.text_config.hidden_size
    pixels = torch.randn(len(ROWS) + 2, 3, 28, 28, generator=generator("similarity", "pixels"))
    rows = Rows("similarity")
    for before, answer in ROWS:
        rows.add(("t", before), ("i", 16), ("t", 2), ("a", answer))
    rows.add(("t", 4), ("a", 3))             # no pairs: without a picture, and with two
    rows.add(("i", 32), ("t", 2), ("a", 5))
    batch = rows.batch()
    projection = nn.Parameter(torch.eye(width) + 0.1 * torch.randn(width, width, generator=generator("similarity", "projection")))
    scale = nn.Parameter(torch.tensor([2.5]))

    images = model.get_image_features(pixel_values=pixels[:len(ROWS)]).pooler_output
    pictures = unit(torch.stack([tokens.reshape(-1, width).mean(0) for tokens in images]))
    texts = []
    for ids, labels in list(zip(rows.ids, rows.labels))[:len(ROWS)]:
        answer = torch.tensor([[i for i, label in zip(ids, labels) if label != -100]])
        texts.append(model.model.language_model(input_ids=answer).last_hidden_state[0].mean(0))
    texts = unit(torch.stack(texts) @ projection.T)
    loss = image_text_contrastive_loss(texts @ pictures.T * scale.exp())
    loss.backward()
    names = {"multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_2.bias", "language_model.model.layers.0.self_attn.q_proj.weight",
             "language_model.model.embed_tokens.weight", "vision_tower.encoder.layers.0.mlp.fc1.weight"}
    keys = load_file(ROOT / "models" / BASE / "model.safetensors").keys()
    gradients = {name: p.grad for n, p in model.named_parameters() if (name := file_key(n, keys)) in names}
    assert gradients.keys() == names and all(g is not None for g in gradients.values())
    tensors = {"input_ids": batch["input_ids"], "labels": batch["labels"], "attention_mask": batch["attention_mask"], "pixel_values": pixels,
               "text_projection": projection, "logit_scale": scale, "pictures": pictures, "texts": texts,
               "grad.text_projection": projection.grad, "grad.logit_scale": scale.grad}
    tensors |= {f"grad.{name}": gradient for name, gradient in gradients.items()}
    return tensors, {"base": BASE, "loss": loss.item(), "cosine": (pictures * texts).sum(-1).mean().item()}


def recalls(similarities, picture_of):
    """Hit rates of pictures as queries, then of texts."""
    own = picture_of[None] == torch.arange(similarities.shape[0])[:, None]
    found = {}
    for name, table, wanted in (("image_to_text", similarities, own), ("text_to_image", similarities.T, own.T)):
        queries = torch.arange(table.shape[0])[:, None].expand_as(table)
        for depth in (1, 5, 10):
            rate = RetrievalHitRate(top_k=depth)
            found[f"{name}_r{depth}"] = rate(table.flatten(), wanted.flatten(), indexes=queries.flatten()).item()
    return found | {"similarity": similarities[picture_of, torch.arange(len(picture_of))].mean().item()}


def main():
    tensors, facts = model_case()
    picture_of = torch.arange(20).repeat_interleave(torch.tensor([1, 2, 3, 5] * 5))
    similarities = torch.randn(20, len(picture_of), generator=generator("similarity", "table"))
    similarities[picture_of, torch.arange(len(picture_of))] += 1
    facts |= {"similarities": similarities.tolist(), "picture_of": picture_of.tolist(), "recalls": recalls(similarities, picture_of),
              "versions": VERSIONS | {"torchmetrics": version("torchmetrics")}}
    write_golden(case_folder("similarity"), tensors, facts)


if __name__ == "__main__":
    main()
