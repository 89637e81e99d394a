"""models/qwen*-vl*: pictures of several shapes through the published image processor, positions of three axes, and the same model
under the names and with the flat config.json of published checkpoints."""
import json
import shutil

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForImageTextToText, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from make_images import path
from tiny import (IMAGE_TOKEN, ROOT, TEXT, Rows, case_folder, forward_and_gradients, greedy, inputs_of, mm_types, randomize, save_model,
                  write_golden, write_json)

PATCH, MERGE = 4, 2
IMAGES = [(30, 50), (1, 1), (1, 200), (100, 37), (3, 5)]     # height, width
TOKENS = dict(image_token_id=IMAGE_TOKEN, video_token_id=139, vision_start_token_id=129, vision_end_token_id=130)
ROPE = dict(rope_type="default", rope_theta=10000.0)
CASES = {
    # two rows of heads for one key-value head, pairs of channels 2 + 1 + 1 for time, row, column
    "qwen2-vl": (Qwen2VLForConditionalGeneration, Qwen2VLConfig(
        text_config=TEXT | dict(rope_parameters=ROPE | dict(mrope_section=[2, 1, 1])),
        vision_config=dict(depth=3, embed_dim=24, num_heads=3, mlp_ratio=2, hidden_size=32, patch_size=PATCH, spatial_merge_size=MERGE),
        **TOKENS)),
    # tied; one temporal patch; blocks of 3 x 3; a second text layer that slides; sections that come round twice
    "qwen2-vl-tied": (Qwen2VLForConditionalGeneration, Qwen2VLConfig(
        text_config=TEXT | dict(rope_parameters=ROPE | dict(mrope_section=[1, 1, 1, 1]), use_sliding_window=True, sliding_window=9,
                                max_window_layers=1, num_key_value_heads=4),
        vision_config=dict(depth=1, embed_dim=16, num_heads=1, mlp_ratio=3, hidden_size=32, patch_size=PATCH, spatial_merge_size=3,
                           temporal_patch_size=1, hidden_act="gelu"),
        tie_word_embeddings=True, **TOKENS)),
    # windows of 2 x 2 tokens, cut at the right and the lower edge; one block in the middle sees all
    "qwen2.5-vl": (Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig(
        text_config=TEXT | dict(rope_parameters=ROPE | dict(mrope_section=[1, 1, 2])),
        vision_config=dict(depth=3, hidden_size=24, intermediate_size=36, num_heads=3, out_hidden_size=32, patch_size=PATCH,
                           spatial_merge_size=MERGE, window_size=2 * PATCH * MERGE, fullatt_block_indexes=[1]),
        **TOKENS)),
    # tied; a position table of 5 x 5; features of blocks 0 and 2 behind the text layers 0 and 1; heads of other sizes than hidden / heads
    "qwen3-vl": (Qwen3VLForConditionalGeneration, Qwen3VLConfig(
        text_config=TEXT | dict(head_dim=12, rope_parameters=ROPE | dict(mrope_section=[2, 2, 2])),
        vision_config=dict(depth=3, hidden_size=24, intermediate_size=40, num_heads=3, out_hidden_size=32, patch_size=PATCH,
                           spatial_merge_size=MERGE, num_position_embeddings=25, deepstack_visual_indexes=[0, 2]),
        tie_word_embeddings=True, **TOKENS)),
}


def processor_of(config):
    vision = config.vision_config
    block = vision.patch_size * vision.spatial_merge_size
    return Qwen2VLImageProcessorPil(patch_size=vision.patch_size, merge_size=vision.spatial_merge_size,
                                    temporal_patch_size=vision.temporal_patch_size,
                                    min_pixels=4 * block ** 2, max_pixels=24 * block ** 2)


def pictures_of(packed, rows):
    """pixel_values and image_grid_thw of some pictures."""
    counts = packed["image_grid_thw"].prod(-1).tolist()
    pixels = packed["pixel_values"].split(counts)
    return dict(pixel_values=torch.cat([pixels[r] for r in rows]), image_grid_thw=packed["image_grid_thw"][rows])


def make(case, cls, config):
    folder, model = case_folder("models", case), randomize(cls(config), case)
    keys = save_model(model, folder)
    processor = processor_of(config)
    processor.save_pretrained(folder)
    packed = dict(processor([Image.open(path(*size)) for size in IMAGES], return_tensors="pt"))
    n = [int(g.prod()) // processor.merge_size ** 2 for g in packed["image_grid_thw"]]
    rows = Rows(case).add(("t", 2), ("i", n[0]), ("t", 2), ("i", n[1]), ("t", 3), ("a", 6)) \
                     .add(("t", 6), ("a", 5)) \
                     .add(("t", 3), ("i", n[2]), ("t", 4), ("a", 3), ("i", n[3]), ("a", 2), ("i", n[4]), ("t", 1), ("a", 3))
    batch = rows.batch()
    inputs = batch | packed | mm_types(batch["input_ids"])
    tensors, facts = forward_and_gradients(model, inputs, keys)
    positions, _ = model.model.get_rope_index(batch["input_ids"], mm_types(batch["input_ids"])["mm_token_type_ids"],
                                              image_grid_thw=packed["image_grid_thw"], attention_mask=batch["attention_mask"])
    with torch.no_grad():
        features = model.model.get_image_features(packed["pixel_values"], packed["image_grid_thw"])
    assert [len(f) for f in features.pooler_output] == n
    tensors |= {"image_features": torch.cat(list(features.pooler_output)), "position_ids": positions,
                "image_sizes": torch.tensor(IMAGES)}
    prompts = Rows(case + "/prompts").add(("t", 2), ("i", n[0]), ("t", 2), ("i", n[1]), ("t", 3)).add(("t", 5)) \
                                     .add(("i", n[2]), ("t", 2)).ids
    used = ([0, 1], [], [2])
    found = greedy(model, prompts, 10, [pictures_of(packed, rows) if rows else {} for rows in used], derived=mm_types)
    facts |= {"image_tokens": n, "images": [path(*size).name for size in IMAGES],
              "generate": [entry | {"images": rows} for entry, rows in zip(found, used)]}
    write_golden(folder, batch | packed | tensors, facts)


def hub_name(name):
    """What published Qwen2-VL and Qwen2.5-VL checkpoints hold."""
    return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")


def memory_name(name):
    """Module names since transformers 4.52."""
    if name.startswith("visual."):
        return "model." + name
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") and ".language_model." not in name \
        and not name.startswith("model.visual.") else name


def flat_config(config):
    """config.json as it was published: the language model's settings beside the vision part's, and a rope type of its own."""
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    for key in ("model_type", "layer_types", "dtype"):
        text.pop(key, None)
    config["vision_config"] = {k: v for k, v in config["vision_config"].items() if k not in ("rope_parameters", "dtype")}
    config["vision_config"]["in_chans"] = config["vision_config"].pop("in_channels")
    return config | text | {"rope_theta": rope["rope_theta"], "torch_dtype": "float32",
                            "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}


def make_spellings(base):
    source = ROOT / "models" / base
    weights, golden = load_file(source / "model.safetensors"), load_file(source / "golden.safetensors")
    for suffix, rename, flat in (("hub", hub_name, True), ("in-memory", memory_name, False)):
        folder = case_folder("models", f"{base}-{suffix}")
        for file in ("generation_config.json", "preprocessor_config.json"):
            shutil.copy(source / file, folder)
        config = json.loads((source / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(flat_config(config) if flat else config, indent=2) + "\n")
        save_file({rename(k): v for k, v in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
        model, report = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
        assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
        with torch.no_grad():
            logits = model(**inputs_of(golden)).logits * golden["attention_mask"][..., None]
        assert torch.equal(logits, golden["logits"])
        write_json(folder / "golden.json", {"same_as": base})


def micro_batches(base):
    """Six micro-batches of two rows, as make_training's: the third holds no picture."""
    golden = load_file(ROOT / "models" / base / "golden.safetensors")
    merge = json.loads((ROOT / "models" / base / "preprocessor_config.json").read_text())["merge_size"]
    packed = {k: golden[k] for k in ("pixel_values", "image_grid_thw")}
    n = [int(g.prod()) // merge ** 2 for g in packed["image_grid_thw"]]
    plans = [[[("t", 3), 0, ("t", 2), ("a", 4)], [("t", 6), ("a", 5)]],
             [[1, ("t", 1), 4, ("t", 3), ("a", 6)], [("t", 4), ("a", 1)]],
             [[("t", 5), ("a", 7)], [("t", 2), ("a", 3), ("t", 2), ("a", 2)]],
             [[2, ("t", 2), ("a", 5)], [("t", 7), 4, ("t", 1), ("a", 3)]],
             [[("t", 2), 3, ("t", 4), ("a", 1)], [("t", 4), ("a", 3)]],
             [[("t", 3), ("a", 8)], [("t", 1), 1, ("t", 1), 0, ("a", 4)]]]
    for index, plan in enumerate(plans):
        rows, used = Rows(f"{base}/micro-batch {index}"), [s for row in plan for s in row if isinstance(s, int)]
        for row in plan:
            rows.add(*[("i", n[s]) if isinstance(s, int) else s for s in row])
        batch = rows.batch()
        yield batch | (pictures_of(packed, used) if used else {})


if __name__ == "__main__":
    for name, (cls, settings) in CASES.items():
        make(name, cls, settings)
    make_spellings("qwen2-vl")
