"""videos/: lists of frames through the published video processors, beside a picture, on checkpoints of models/."""
import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import (AutoModelForImageTextToText, LlavaOnevisionVideoProcessor, LlavaOnevisionImageProcessorPil, PreTrainedTokenizerFast,
                          Qwen2VLVideoProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

from make_images import path, picture
from tiny import IMAGE_TOKEN, ROOT, Rows, case_folder, forward_and_gradients, greedy, write_golden

PICTURE = (30, 50)                                   # height, width
VIDEOS = [((24, 40), 3), ((41, 40), 4)]              # height, width and frames of each; of an odd number the last is there twice
FPS = 2                                              # frames for each second
QWEN = ["qwen2-vl", "qwen2-vl-tied", "qwen2.5-vl", "qwen3-vl"]
ONEVISION = "llava-onevision-siglip-qwen2"


def frame_name(size, index):
    return f"frame_{size[0]}x{size[1]}_{index}.png"


def write_frames():
    """Each frame is the one before it, moved aside."""
    folder = case_folder("videos", "frames")
    for size, count in VIDEOS:
        for index in range(count):
            Image.fromarray(np.roll(picture(*size), 7 * index, 1)).save(folder / frame_name(size, index), optimize=True)


def read_frames(size, count):
    return [Image.open(ROOT / "videos" / "frames" / frame_name(size, index)) for index in range(count)]


def load(case):
    folder = ROOT / "models" / case
    return AutoModelForImageTextToText.from_pretrained(folder).eval(), set(load_file(folder / "model.safetensors"))


def facts_of(case, videos, n):
    return {"model": case, "images": [path(*PICTURE).name], "fps": FPS, "video_tokens": n,
            "videos": [[frame_name(size, index) for index in range(count)] for size, count in videos]}


def make_qwen(case):
    model, keys = load(case)
    third = case == "qwen3-vl"
    video_token, vision = model.config.video_token_id, model.config.vision_config
    block = vision.patch_size * vision.spatial_merge_size
    blocks = dict(patch_size=vision.patch_size, merge_size=vision.spatial_merge_size, temporal_patch_size=vision.temporal_patch_size)
    settings = dict(**blocks, min_pixels=4 * block ** 2, max_pixels=24 * block ** 2)
    folder = case_folder("videos", case)
    # Qwen3-VL's limits are of all frames together.
    processor = Qwen3VLVideoProcessor(**blocks, size={"shortest_edge": 8 * block ** 2, "longest_edge": 76 * block ** 2}, cap_pixels_per_frame=False,
                                      do_sample_frames=False) if third else Qwen2VLVideoProcessor(**settings, cap_pixels_per_frame=False)
    processor.save_pretrained(folder)
    still_processor = Qwen2VLImageProcessorPil(**settings)
    still = dict(still_processor([Image.open(path(*PICTURE))], return_tensors="pt"))
    moving = dict(processor([[np.asarray(frame) for frame in read_frames(*video)] for video in VIDEOS], return_tensors="pt"))
    moving = {k: moving[k] for k in ("pixel_values_videos", "video_grid_thw")}
    if case.startswith("qwen2.5"):
        moving["second_per_grid_ts"] = torch.full((len(VIDEOS),), vision.temporal_patch_size / FPS)
    merged = vision.spatial_merge_size ** 2
    n_still = int(still["image_grid_thw"].prod()) // merged
    n = [int(g.prod()) // merged for g in moving["video_grid_thw"]]

    def slots(video):
        """Each time of Qwen3-VL's stands apart, behind a text."""
        times = int(moving["video_grid_thw"][video, 0])
        return [("t", 4), ("v", n[video] // times)] * times if third else [("v", n[video])]

    def types(ids):
        return dict(mm_token_type_ids=(ids == IMAGE_TOKEN).int() + 2 * (ids == video_token).int())

    batch = Rows(case + "/videos", video_token=video_token).add(("t", 2), ("i", n_still), ("t", 2), *slots(0), ("t", 3), ("a", 6)) \
                                                           .add(("t", 6), ("a", 5)) \
                                                           .add(*slots(1), *[] if third else [("t", 4)], ("a", 3)).batch()
    tensors, facts = forward_and_gradients(model, batch | still | moving | types(batch["input_ids"]), keys)
    positions, _ = model.model.get_rope_index(batch["input_ids"], **types(batch["input_ids"]), attention_mask=batch["attention_mask"],
                                              **{k: v for k, v in (still | moving).items() if not k.startswith("pixel")})
    with torch.no_grad():
        features = model.model.get_video_features(moving["pixel_values_videos"], moving["video_grid_thw"]).pooler_output
    tensors |= {"video_features": torch.cat(list(features)), "position_ids": positions}
    split = moving["pixel_values_videos"].split(moving["video_grid_thw"].prod(-1).tolist())

    def only(index):
        return {k: split[index] if k == "pixel_values_videos" else v[index:index + 1] for k, v in moving.items()}

    prompts = Rows(case + "/video prompts", video_token=video_token).add(("t", 2), ("i", n_still), *slots(0), ("t", 3)) \
                                                                    .add(("t", 5)).add(*slots(1), ("t", 2)).ids
    found = greedy(model, prompts, 10, [still | only(0), {}, only(1)], derived=types, **({"repetition_penalty": 1.3} if third else {}))
    write_golden(folder, batch | still | moving | tensors, facts_of(case, VIDEOS, n) | facts | {
        "generate": [entry | {"images": used} for entry, used in zip(found, ([0, 1], [], [2]))]} | (
            texts_and_sizes(folder, still_processor, processor) if third else {}))


def texts_and_sizes(folder, still_processor, video_processor):
    """Qwen3-VL's prompts, the times of a video behind their seconds, and sizes of frames that share limits."""
    marks = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = Tokenizer.from_file(str(ROOT / "text" / "tokenizers" / "qwen2" / "tokenizer.json"))
    tokenizer.add_special_tokens(marks)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    text = "<|im_start|>user\n" + "".join(f"{marks[0]}{mark}{marks[1]}\n" for mark in (marks[3], marks[2], marks[3])) + "moves?<|im_end|>\n"
    fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    processor, prompts = Qwen3VLProcessor(still_processor, fast, video_processor), []
    for fps in (2, 3, 0.7, 24):
        metadata = [{"fps": fps, "total_num_frames": count, "frames_indices": list(range(count))} for _, count in VIDEOS]
        prompts.append({"fps": fps, "ids": processor(
            text=[text], images=[Image.open(path(*PICTURE))], videos=[[np.asarray(frame) for frame in read_frames(*video)] for video in VIDEOS],
            video_metadata=metadata).input_ids[0]})
    sizes = [[count, height, width, least, most, *smart_resize(count, height, width, 2, 32, least, most)]
             for count in (2, 3, 4, 5, 7, 100) for height, width in ((20, 20), (10, 300), (31, 500), (48, 80), (720, 1280), (999, 40))
             for least, most in ((4096, 25165824), (131072, 786432), (4096, 100000))]
    return {"text": text, "prompts": prompts, "smart_resize": sizes}


def make_onevision():
    """Videos of a batch have equally many frames there; a picture beside a video is alone in its row all the same."""
    model, keys = load(ONEVISION)
    config = model.config
    edge, patch, video_token = config.vision_config.image_size, config.vision_config.patch_size, config.video_token_id
    folder = case_folder("videos", ONEVISION)
    processor = LlavaOnevisionVideoProcessor(size={"height": edge, "width": edge})
    processor.save_pretrained(folder)
    videos = [(size, 3) for size, _ in VIDEOS]
    pixels = processor([[np.asarray(frame) for frame in read_frames(*video)] for video in videos], return_tensors="pt").pixel_values_videos
    side = -(-(edge // patch) // 2)
    n = [count * side ** 2 + 1 for _, count in videos]
    still = LlavaOnevisionImageProcessorPil.from_pretrained(ROOT / "models" / ONEVISION)([[Image.open(path(*PICTURE))]], return_tensors="pt")
    still = {k: still[k] for k in ("pixel_values", "image_sizes", "batch_num_images")}
    with torch.no_grad():
        n_still = len(model.model.get_image_features(**still).pooler_output[0])
        features = model.model.get_video_features(pixels, vision_feature_layer=config.vision_feature_layer,
                                                  vision_feature_select_strategy=config.vision_feature_select_strategy).pooler_output
    batch = Rows(ONEVISION + "/videos", video_token=video_token).add(("t", 2), ("i", n_still), ("t", 2), ("v", n[0]), ("t", 3), ("a", 6)) \
                                                                .add(("t", 6), ("a", 5)) \
                                                                .add(("v", n[1]), ("t", 4), ("a", 3)).batch()
    tensors, facts = forward_and_gradients(model, batch | still | {"pixel_values_videos": pixels}, keys)
    prompts = Rows(ONEVISION + "/video prompts", video_token=video_token).add(("t", 2), ("i", n_still), ("v", n[0]), ("t", 3)) \
                                                                         .add(("t", 5)).add(("v", n[1]), ("t", 2)).ids
    found = greedy(model, prompts, 10, [still | {"pixel_values_videos": pixels[:1]}, {}, {"pixel_values_videos": pixels[1:]}])
    tensors |= {"pixel_values_videos": pixels, "video_features": features}
    write_golden(folder, batch | {k: still[k] for k in ("pixel_values", "image_sizes")} | tensors, facts_of(ONEVISION, videos, n) | facts | {
        "generate": [entry | {"images": used} for entry, used in zip(found, ([0, 1], [], [2]))]})


write_frames()
for name in QWEN:
    make_qwen(name)
make_onevision()
