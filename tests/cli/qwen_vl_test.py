"""Qwen2-VL through every command: the same rooms as LLaVA, with pictures of any size."""
import json

import family
import program
import tiny
import tiny_qwen
from tiny_qwen import BLOCK, ENDOFTEXT, IM_END, IM_START, IMAGE_PAD, VISION_END, VISION_START


class QwenVl(family.Family):
    TARGETS = ["q_proj", "v_proj"]
    ROWS = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_qwen.write_model(cls.dir / "qwen")
        cls.images = cls.dir / "data" / "images"
        tiny.write_png(cls.images / "wide.png", 6 * BLOCK, 3 * BLOCK, 1)
        tiny.write_png(cls.images / "tall.png", 2 * BLOCK, 5 * BLOCK, 2)
        tiny.write_png(cls.images / "dot.png", 1, 1, 3)
        tiny.write_png(cls.images / "line.png", 200, 1, 4)

    def infer(self, *arguments, stdin=""):
        return program.run("infer", "--model", self.model, *program.FULL_PRECISION, "--set", "generation.max_new_tokens=8", *arguments, stdin=stdin)

    def ask(self, *arguments):
        return self.infer("--json", *arguments).expect(0).json()

    def test_prompt(self):
        def picture(tokens):
            return [VISION_START, *[IMAGE_PAD] * tokens, VISION_END]

        answer = self.ask("--image", self.images / "wide.png", "--image", self.images / "tall.png", "--prompt", "ab <image>c<image> <|image_pad|>")
        self.assertEqual(answer["image_tokens"], 6 * 3 + 2 * 5)
        self.assertEqual(answer["prompt_token_ids"], [
            IM_START, *b"system\nYou are a ", *tokens("helpful assistant."), IM_END, *b"\n", IM_START, *b"user\nab ", *picture(18), *b"c",
            *picture(10), *b" <|image_pad|>", IM_END, *b"\n", IM_START, *b"assistant\n"])

    def test_pictures_of_any_size(self):
        tokens = {name: self.ask("--image", self.images / f"{name}.png", "--prompt", "x")["image_tokens"] for name in ("dot", "line")}
        self.assertEqual(tokens, {"dot": 4, "line": 29})
        tiny.write_png(self.images / "long.png", 201, 1, 4)
        refused = self.infer("--image", self.images / "long.png", "--prompt", "x").expect(3)
        self.assertIn("too long and thin", refused.err)

    def test_limits(self):
        large = self.images / "large.png"
        tiny.write_png(large, 30 * BLOCK, 20 * BLOCK, 5)
        count = lambda *sets: self.ask("--image", large, "--prompt", "x", *[x for s in sets for x in ("--set", s)])["image_tokens"]
        self.assertEqual(count(), 9 * 6)  # the checkpoint's 64 tokens
        self.assertEqual(count(f"image.max_pixels={24 * BLOCK ** 2}"), 6 * 4)
        self.assertEqual(count(f"image_max_pixels={10 ** 7}"), 30 * 20)
        self.assertEqual(self.ask("--image", self.images / "dot.png", "--prompt", "x", "--set", f"image.min_pixels={16 * BLOCK ** 2}")["image_tokens"], 16)
        for wrong in ("image.aspect_ratio=pad", "image.aspect_ratio=anyres", "image.max_pixels=1", "model.vision_select_layer=-2"):
            self.infer("--image", large, "--prompt", "x", "--set", wrong).expect(2)

    def test_batches_and_chats_equal_single_questions(self):
        rows = [{"id": "two", "prompt": "what <image> is <image>", "images": ["wide.png", "tall.png"]}, {"id": "none", "prompt": "say"},
                {"id": "one", "prompt": "<image>", "image": "dot.png"}]
        path = self.dir / "questions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        answers = self.infer("--input", path, "--set", f"data.image_folder={self.images}", "--set", "generation.batch_size=3").expect(0).out.splitlines()
        for row, line in zip(rows, answers):
            images = [x for name in row.get("images", [row["image"]] if "image" in row else []) for x in ("--image", self.images / name)]
            alone = self.ask("--prompt", row["prompt"], *images)
            together = json.loads(line)
            self.assertEqual((together["tokens"], together["prompt_token_ids"]), (alone["tokens"], alone["prompt_token_ids"]))

        chat = [json.loads(line) for line in self.infer("--chat", "--json", "--image", self.images / "wide.png", stdin="what\nand\n").expect(0).out.splitlines()]
        conversation = {"messages": [{"role": "user", "content": [{"type": "image", "image": str(self.images / "wide.png")}, {"type": "text", "text": "what"}]},
                                     {"role": "assistant", "content": chat[0]["text"]}, {"role": "user", "content": "and"}]}
        path = self.dir / "conversation.jsonl"
        path.write_text(json.dumps(conversation) + "\n")
        anew = self.infer("--input", path).expect(0).json()
        self.assertEqual((chat[1]["tokens"], chat[1]["prompt_token_ids"]), (anew["tokens"], anew["prompt_token_ids"]))

    def test_lora(self):
        lora = {"r": 4, "target_modules": "all-linear", "vision_target_modules": ["qkv"]}
        run, lines = self.train("lora", "lora-finetune", lora=lora, output={"merge_adapter": True})
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        names = set(tiny.read_safetensors(run / "final" / "adapter_model.safetensors"))
        for name in ("model.language_model.layers.0.self_attn.q_proj.lora_A.weight", "model.visual.blocks.1.attn.qkv.lora_B.weight",
                     "model.visual.merger.mlp.2.bias", "model.visual.merger.ln_q.weight"):
            self.assertIn("base_model.model." + name, names)
        self.assertFalse([name for name in names if "patch_embed" in name or "blocks.0.mlp" in name])
        question = ("--image", self.images / "wide.png", "--prompt", "what is it")
        adapted = self.ask(*question, "--adapter", run / "final")
        merged = program.run("infer", "--model", run / "merged", *program.FULL_PRECISION, "--set", "generation.max_new_tokens=8", "--json", *question)
        self.assertEqual(merged.expect(0).json()["tokens"], adapted["tokens"])
        self.assertEqual(set(tiny.read_safetensors(run / "merged" / "model.safetensors")), set(tiny.read_safetensors(self.model / "model.safetensors")))

    def test_videos(self):
        for index in range(3):
            tiny.write_png(self.images / f"frame{index}.png", 4 * BLOCK, 3 * BLOCK, index)
        frames = [f"frame{index}.png" for index in range(3)]
        question = {"id": "video", "videos": [frames], "image": "wide.png", "messages": [{"role": "user", "content": "<image>and<video>\nmoves"}]}
        path = self.dir / "video.jsonl"
        path.write_text(json.dumps(question) + "\n")
        answer = self.infer("--input", path, "--set", f"data.image_folder={self.images}").expect(0).json()
        prompt = answer["prompt_token_ids"]
        # Two frames make a time of 4 x 3 tokens, and the third one another.
        self.assertEqual((prompt.count(tiny_qwen.VIDEO_PAD), prompt.count(IMAGE_PAD)), (2 * 4 * 3, 6 * 3))
        first = prompt.index(tiny_qwen.VIDEO_PAD)
        self.assertEqual((prompt[first - 1], prompt[first + 24]), (VISION_START, VISION_END))

        rows = [{"id": str(i), "videos": [frames], "conversations": [tiny.turn("human", "<video>what"), tiny.turn("gpt", "it moves")]} for i in range(4)]
        tiny.write_json(self.dir / "videos.json", rows)
        data = {"train": [str(self.dir / "videos.json")], "image_folder": str(self.images)}
        lora = {"r": 4, "target_modules": "all-linear", "vision_target_modules": ["qkv"]}
        _, plain = self.train("video", "lora-finetune", data=data, lora=lora)
        self.assertLess(plain[-1]["loss"], plain[0]["loss"])
        _, again = self.train("video recomputed", "lora-finetune", data=data, lora=lora, memory={"checkpointing": "full"})
        self.assertEqual([line["loss"] for line in again], [line["loss"] for line in plain])
        _, small = self.train("video small", "lora-finetune", data=data, lora=lora, image={"video_max_pixels": 6 * BLOCK ** 2})
        self.assertLess(small[0]["tokens"], plain[0]["tokens"])

        for wrong, message in (({"videos": ["a.mp4"]}, "not decoded"), ({"videos": [["frame0.png", "tall.png"]]}, "as the video's first")):
            path.write_text(json.dumps({**question, **wrong}) + "\n")
            self.assertIn(message, self.infer("--input", path, "--set", f"data.image_folder={self.images}").out)

    def test_videos_behind_their_seconds(self):
        model = tiny_qwen.write_model(self.dir / "third", "qwen3_vl")
        for index in range(3):
            tiny.write_png(self.images / f"time{index}.png", 4 * BLOCK, 3 * BLOCK, index)
        rows = [{"id": str(i), "videos": [[f"time{index}.png" for index in range(3)]],
                 "conversations": [tiny.turn("human", "<video>what"), tiny.turn("gpt", "it moves")]} for i in range(4)]
        tiny.write_json(self.dir / "frames.json", rows)
        path = self.dir / "times.jsonl"
        path.write_text(json.dumps(rows[0]) + "\n")

        def prompt():
            return program.run("infer", "--model", model, *program.FULL_PRECISION, "--set", "generation.max_new_tokens=4", "--input", path,
                               "--set", f"data.image_folder={self.images}", "--set", "image.video_fps=1").expect(0).json()["prompt_token_ids"]

        def time(seconds):
            return [*tokens(f"<{seconds} seconds>"), VISION_START, *[tiny_qwen.VIDEO_PAD] * 12, VISION_END]

        ids = prompt()
        first = ids.index(VISION_START)
        self.assertEqual(ids[first:first + len(time("0.5")) * 2 + 2], [VISION_START, *time("0.5"), *time("2.0"), VISION_END])

        data = {"train": [str(self.dir / "frames.json")], "image_folder": str(self.images)}
        lora = {"r": 4, "target_modules": "all-linear", "vision_target_modules": ["qkv"]}
        _, plain = self.train("times", "lora-finetune", model={"path": str(model)}, data=data, lora=lora)
        self.assertLess(plain[-1]["loss"], plain[0]["loss"])
        _, again = self.train("times recomputed", "lora-finetune", model={"path": str(model)}, data=data, lora=lora, memory={"checkpointing": "full"})
        self.assertEqual([line["loss"] for line in again], [line["loss"] for line in plain])
        _, small = self.train("times small", "lora-finetune", model={"path": str(model)}, data=data, lora=lora, image={"video_max_pixels": 6 * BLOCK ** 2})
        self.assertLess(small[0]["tokens"], plain[0]["tokens"])

        # The three frames count as four, of 4 x 3 blocks each, and become 3 x 2.
        tiny.write_json(model / "video_preprocessor_config.json", {
            "video_processor_type": "Qwen3VLVideoProcessor", "size": {"shortest_edge": BLOCK ** 2, "longest_edge": 24 * BLOCK ** 2},
            "patch_size": tiny_qwen.PATCH, "merge_size": tiny_qwen.MERGE, "temporal_patch_size": 2})
        self.assertEqual(prompt().count(tiny_qwen.VIDEO_PAD), 2 * 3 * 2)

    def test_parts_that_train(self):
        before = tiny.read_safetensors(self.model / "model.safetensors")
        run, _ = self.train("merger", "pretrain")
        self.assertEqual(set(tiny.read_safetensors(run / "final" / "projector.safetensors")), {name for name in before if name.startswith("visual.merger.")})
        for name, frozen in (("tower", {"projector": True, "vision_tower": False}), ("all", {"projector": False, "vision_tower": False}),
                             ("text", {"projector": True, "vision_tower": True})):
            run, lines = self.train(name, "pretrain", freeze={"language_model": False, **frozen})
            self.assertLess(lines[-1]["loss"], lines[0]["loss"])
            changed = {key for key, values in tiny.read_safetensors(run / "final" / "model.safetensors").items() if values != before[key]}
            parts = {"merger" if "visual.merger" in key else "tower" if "visual" in key else "text" for key in changed}
            self.assertEqual(parts, {"text"} | ({"merger"} if not frozen["projector"] else set()) | ({"tower"} if not frozen["vision_tower"] else set()))

    def test_quantised(self):
        _, lines = self.train("qlora", "lora-finetune", lora={"r": 4, "target_modules": "all-linear"}, quantization={"bits": 4})
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])


def tokens(text):
    """Ids of a text in which a merge of the tokenizer may occur."""
    ids, at = [], 0
    while at < len(text):
        merge = next((m for m in tiny.MERGES if text.startswith(m, at)), None)
        ids.append(256 + tiny.MERGES.index(merge) if merge else ord(text[at]))
        at += len(merge) if merge else 1
    return ids


if __name__ == "__main__":
    program.main()
