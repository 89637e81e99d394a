"""models/dinov2-vision, models/convnextv2-vision: light towers, what a LLaVA takes of them, and its gradients."""
import torch
from PIL import Image
from transformers import (BitImageProcessorPil, ConvNextImageProcessorPil, ConvNextV2Config, ConvNextV2ForImageClassification, Dinov2Config,
                          Dinov2Model)
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from make_images import path
from tiny import case_folder, generator, math, randomize, save_model, write_golden

IMAGES = [(100, 37), (61, 25)]      # height, width
IMAGENET = dict(image_mean=IMAGENET_DEFAULT_MEAN, image_std=IMAGENET_DEFAULT_STD, resample=3)


def towers():
    """case, the whole model in the file, its tower, features of the tower's output, processor."""
    # 6 x 6 patches on 4 x 4 stored positions; all layers and the last norm, without CLS
    dinov2 = randomize(Dinov2Model(Dinov2Config(hidden_size=24, num_hidden_layers=3, num_attention_heads=3, mlp_ratio=2, image_size=28, patch_size=7)),
                       "dinov2-vision")
    yield ("dinov2-vision", dinov2, dinov2, lambda out: out.last_hidden_state[:, 1:],
           BitImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 42, "width": 42}, **IMAGENET))
    # 72 -> 18 -> 9 -> 4 -> 2: the odd side loses its last line; no norm after the last stage
    whole = randomize(ConvNextV2ForImageClassification(ConvNextV2Config(hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 2, 1], image_size=72, num_labels=3)),
                      "convnextv2-vision")
    yield ("convnextv2-vision", whole, whole.convnextv2, lambda out: out.last_hidden_state.flatten(2).transpose(1, 2),
           ConvNextImageProcessorPil(size={"shortest_edge": 72}, crop_pct=0.875, **IMAGENET))


def make(case, whole, tower, features_of, processor):
    folder = case_folder("models", case)
    keys = save_model(whole, folder)
    processor.save_pretrained(folder)
    pixels = processor([Image.open(path(*size)) for size in IMAGES], return_tensors="pt").pixel_values.requires_grad_()
    out = tower(pixels, output_hidden_states=True)
    features = features_of(out)
    weights = torch.randn(features.shape, generator=generator(case, "loss"))
    loss = (features * weights).mean()
    loss.backward()
    grads = {n: p.grad for n, p in whole.named_parameters()}
    assert set(grads) == keys
    total = math.sqrt(sum(g.double().square().sum() for g in grads.values() if g is not None))
    tensors = {"pixel_values": pixels.detach(), "pixel_gradient": pixels.grad, "features": features, "loss_weights": weights} | \
        {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)} | {f"grad.{n}": g for n, g in grads.items() if g is not None}
    write_golden(folder, tensors, {
        "images": [path(*size).name for size in IMAGES], "num_hidden_states": len(out.hidden_states), "loss": loss.item(), "grad_norm": total,
        "no_grad": sorted(n for n, g in grads.items() if g is None),
        "noise_grad": sorted(n for n, g in grads.items() if g is not None and g.norm() < 1e-6 * total)})


for tower in towers():
    make(*tower)
