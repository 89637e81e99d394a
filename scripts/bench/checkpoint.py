"""Random-weight LLaVA checkpoints (CLIP tower, Qwen2 language model) of two sizes, and one of LLaVA-1.5-7B's shape in bf16, with a
byte tokenizer: a token a byte.

usage: checkpoint.py small|medium|7b FOLDER      writes FOLDER/<size>-fp32 (not of 7b), FOLDER/<size>-bf16, FOLDER/picture.png
"""
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (CLIPImageProcessor, CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor,
                          LlamaConfig, PreTrainedTokenizerFast, Qwen2Config)

VISION = {"small": dict(hidden_size=384, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=6, projection_dim=384),
          "medium": dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, projection_dim=512),
          "7b": dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, projection_dim=768,
                     image_size=336, patch_size=14)}
TEXT = {"small": dict(vocab_size=32000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                      num_key_value_heads=4, tie_word_embeddings=False),
        "medium": dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                       num_key_value_heads=2, tie_word_embeddings=True),
        "7b": dict(vocab_size=32064, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                   num_key_value_heads=32, tie_word_embeddings=False)}


def tokenizer(vocab_size):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {vocab_size - 4: "<|bos|>", vocab_size - 3: "<|eos|>", vocab_size - 2: "<|pad|>", vocab_size - 1: "<image>"}
    names = alphabet + [special.get(i, f"<unused{i}>") for i in range(len(alphabet), vocab_size)]
    inner = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>",
                                   additional_special_tokens=["<image>"])


def main(size, folder):
    torch.manual_seed(0)
    text, vision = TEXT[size], {"image_size": 224, "patch_size": 16, **VISION[size]}
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    precisions = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if size == "7b":
        del precisions["fp32"]
        torch.set_default_dtype(torch.bfloat16)
    vocab = text["vocab_size"]
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision),
        text_config=(LlamaConfig if size == "7b" else Qwen2Config)(**text, max_position_embeddings=4096, bos_token_id=vocab - 4, eos_token_id=vocab - 3, pad_token_id=vocab - 2),
        image_token_index=vocab - 1, image_seq_length=patches, vision_feature_layer=-2, tie_word_embeddings=text["tie_word_embeddings"])
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.02)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.fill_(1.0)
    words = tokenizer(vocab)
    side = vision["image_size"]
    processor = LlavaProcessor(image_processor=CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
                               tokenizer=words, patch_size=vision["patch_size"], vision_feature_select_strategy="default", image_token="<image>",
                               num_additional_image_tokens=1)
    for name, dtype in precisions.items():
        out = folder / f"{size}-{name}"
        model.to(dtype).save_pretrained(out)
        words.save_pretrained(out)
        processor.save_pretrained(out)
    noise = np.random.RandomState(0).randint(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((320, 240), Image.BICUBIC).save(folder / "picture.png")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
