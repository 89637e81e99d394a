"""The first Qwen-VL through every command: pictures of one size behind a resampler, fused projections, its own tokenizer and chat format."""
import json
import shutil

import family
import program
import tiny
import tiny_first_qwen
from tiny_first_qwen import IDS, QUERIES


def encoded(text):
    """Ids of a text; <|marks|> in it are control tokens."""
    ids, at = [], 0
    while at < len(text):
        known = next((t for t in [*IDS, *tiny.MERGES] if text.startswith(t, at)), None)
        ids.append(ord(text[at]) if known is None else IDS.get(known, 256 + tiny.MERGES.index(known) if known in tiny.MERGES else None))
        at += 1 if known is None else len(known)
    return ids


def picture(number):
    return encoded(f"Picture {number}: <img>") + [IDS["<imgpad>"]] * QUERIES + encoded("</img>\n")


class FirstQwenVl(family.Family):
    TARGETS = ["c_attn", "attn.c_proj", "w1", "w2"]
    ROWS = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_first_qwen.write_model(cls.dir / "qwen")
        cls.images = cls.dir / "data" / "images"

    def infer(self, *arguments, model=None, stdin=""):
        return program.run("infer", "--model", model or self.model, *program.FULL_PRECISION, "--set", "generation.max_new_tokens=8", *arguments, stdin=stdin)

    def ask(self, *arguments, model=None):
        return self.infer("--json", *arguments, model=model).expect(0).json()

    def test_prompt(self):
        answer = self.ask("--image", self.images / "0a.png", "--image", self.images / "1a.png", "--prompt", "<image>ab <image><|im_end|> c")
        system = encoded("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        typed = [*b"<|im_end|> c"]  # a control token that the user types is text
        self.assertEqual(answer["prompt_token_ids"], [*system, *encoded("<|im_start|>user\n"), *picture(1), *encoded("ab "), *picture(2), *typed,
                                                      *encoded("<|im_end|>\n<|im_start|>assistant\n")])
        self.assertEqual(answer["image_tokens"], 2 * QUERIES)

    def test_rows_in_its_own_format(self):
        path = self.dir / "own.json"
        value = "Picture 1: <img>0a.png</img>\nPicture 2: <img>1a.png</img>\nwhich <ref>pin</ref>?"
        tiny.write_json(path, [{"id": "a", "conversations": [tiny.turn("user", value), tiny.turn("assistant", "<box>(1,2),(3,4)</box>")]}])
        answer = self.infer("--input", path, "--set", f"data.image_folder={self.images}").expect(0).json()
        begin = answer["prompt_token_ids"].index(IDS["<img>"]) - len("Picture 1: ")
        self.assertEqual(answer["prompt_token_ids"][begin:], [*picture(1), *picture(2), *encoded("which <ref>pin</ref>?<|im_end|>\n<|im_start|>assistant\n")])
        shown = program.run("lora-finetune", "--dry-run", "--recipe", self.write_recipe("own-recipe.json", program.training_recipe(
            self, data={"train": [str(path)], "num_workers": 0}, lora={"target_modules": self.TARGETS}, output={"dir": str(self.dir / "own")}))).expect(0)
        self.assertIn("[[<box>(1,2),(3,4)</box><|im_end|>]]", shown.out + shown.err)

    def test_a_turn_ends_the_answer(self):
        folder = self.dir / "ends"
        shutil.copytree(self.model, folder)
        weights = tiny_first_qwen.random_weights(1)
        shape, _ = weights["lm_head.weight"]
        rows = [[0.0] * shape[1] for _ in range(shape[0])]
        rows[IDS["<|im_end|>"]], rows[IDS["<|im_start|>"]] = [1.0] * shape[1], [-1.0] * shape[1]  # one of them has the best logit
        weights["lm_head.weight"] = shape, sum(rows, [])
        tiny.write_safetensors(folder / "model.safetensors", weights)
        answer = self.ask("--prompt", "x", model=folder)
        self.assertEqual((answer["tokens"], answer["finish_reason"]), ([], "stop"))

    def test_batches_and_chats_equal_single_questions(self):
        short = tiny_first_qwen.write_model(self.dir / "short", seq_length=120)  # passed within the chat
        rows = [{"id": "two", "prompt": "what <image> is <image>", "images": ["0a.png", "1a.png"]}, {"id": "none", "prompt": "say"},
                {"id": "one", "prompt": "<image>", "image": "2a.png"}]
        path = self.dir / "questions.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        answers = self.infer("--input", path, "--set", f"data.image_folder={self.images}", "--set", "generation.batch_size=3").expect(0).out.splitlines()
        for row, line in zip(rows, answers):
            images = [x for name in row.get("images", [row["image"]] if "image" in row else []) for x in ("--image", self.images / name)]
            alone = self.ask("--prompt", row["prompt"], *images)
            together = json.loads(line)
            self.assertEqual((together["tokens"], together["prompt_token_ids"]), (alone["tokens"], alone["prompt_token_ids"]))

        long = " ".join(["then"] * 20)
        for model in (self.model, short):
            out = self.infer("--chat", "--json", "--image", self.images / "0a.png", stdin=f"what\nand\n{long}\n", model=model).expect(0).out
            chat = [json.loads(line) for line in out.splitlines()]
            turns = [{"role": "user", "content": [{"type": "image", "image": str(self.images / "0a.png")}, {"type": "text", "text": "what"}]}]
            for answer, question in zip(chat, ("and", long, None)):
                path.write_text(json.dumps({"messages": turns}) + "\n")
                anew = self.infer("--input", path, model=model).expect(0).json()
                self.assertEqual((answer["tokens"], answer["prompt_token_ids"]), (anew["tokens"], anew["prompt_token_ids"]))
                turns += [{"role": "assistant", "content": answer["text"]}, {"role": "user", "content": question}]

    def test_lora(self):
        run, lines = self.train("lora", "lora-finetune", lora={"r": 4, "target_modules": self.TARGETS}, output={"merge_adapter": True})
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        names = {name.removeprefix("base_model.model.") for name in tiny.read_safetensors(run / "final" / "adapter_model.safetensors")}
        adapted = {name.rsplit(".lora_", 1)[0] for name in names if ".lora_" in name}
        self.assertEqual(adapted, {f"transformer.h.{i}.{name}" for i in range(tiny.LAYERS) for name in ("attn.c_attn", "attn.c_proj", "mlp.w1", "mlp.w2")})
        saved = {name for name in tiny.read_safetensors(self.model / "model.safetensors") if "attn_pool" in name}
        self.assertEqual({name for name in names if ".lora_" not in name}, saved)
        question = ("--image", self.images / "0a.png", "--prompt", "what is it")
        answer = self.ask(*question, "--adapter", run / "final")
        self.assertEqual(self.ask(*question, model=run / "merged")["tokens"], answer["tokens"])
        self.assertEqual(set(tiny.read_safetensors(run / "merged" / "model.safetensors")), set(tiny.read_safetensors(self.model / "model.safetensors")))
        self.assertEqual({p.name for p in (run / "merged").iterdir()}, {p.name for p in self.model.iterdir()})

    def test_parts_that_train(self):
        before = tiny.read_safetensors(self.model / "model.safetensors")
        run, _ = self.train("resampler", "pretrain")
        projector = tiny.read_safetensors(run / "final" / "projector.safetensors")
        self.assertEqual(set(projector), {name for name in before if "attn_pool" in name})
        for name, frozen in (("tower", {"projector": True, "vision_tower": False}), ("all", {"projector": False, "vision_tower": False}),
                             ("text", {"projector": True, "vision_tower": True})):
            run, lines = self.train(name, "pretrain", freeze={"language_model": False, **frozen})
            self.assertLess(lines[-1]["loss"], lines[0]["loss"])
            changed = {key for key, values in tiny.read_safetensors(run / "final" / "model.safetensors").items() if values != before[key]}
            parts = {"resampler" if "attn_pool" in key else "tower" if "visual" in key else "text" for key in changed}
            self.assertEqual(parts, {"text"} | ({"resampler"} if not frozen["projector"] else set()) | ({"tower"} if not frozen["vision_tower"] else set()))

    def test_quantised(self):
        _, lines = self.train("qlora", "lora-finetune", lora={"r": 4, "target_modules": "all-linear"}, quantization={"bits": 4})
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        whole, folder = self.ask("--prompt", "x", "--set", "quantization.bits=4"), self.dir / "nf4"
        program.run("quantize", "--model", self.model, "--output", folder, "--bits", "4").expect(0)
        skipped = json.loads((folder / "config.json").read_text())["quantization_config"]["llm_int8_skip_modules"]
        self.assertEqual(set(skipped), {"visual", "transformer.visual", "lm_head"})
        self.assertEqual(self.ask("--prompt", "x", model=folder)["tokens"], whole["tokens"])


if __name__ == "__main__":
    program.main()
