"""profile-memory: its predictions against what real runs measured, and properties that any prediction must have."""
import json
import random
import resource
import shutil
import subprocess
import sys
import time

import program
import tiny
import tiny_first_qwen
import tiny_qwen

LENGTH = 1400  # of an answer, in tokens
FAMILIES = {    # how to write a folder whose pictures have 64 tokens, and what LoRA adapts in its tower
    **{kind: (lambda folder, kind=kind: tiny_qwen.write_model(folder, kind), "qkv") for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")},
    "qwen": (tiny_first_qwen.write_model, "in_proj"),
}


class Profile(program.Case):
    def setUp(self):
        self.number = 0

    def write_data(self, images, count=4, length=LENGTH):
        rows = [{"id": str(i), "conversations": [tiny.turn("human", "<image>" * images), tiny.turn("gpt", "a" * (length - 16 * images))]}
                for i in range(count)]
        for row in rows:
            if images:
                row["image"] = [f"{k}a.png" for k in range(images)]
            else:
                row["conversations"][0]["value"] = "b"
        path = self.dir / f"rows-{images}-{count}-{length}.json"
        tiny.write_json(path, rows)
        return str(path)

    def write_questions(self, count):
        """Rows whose prompts are as long as write_data's rows with a picture."""
        rows = [{"image": "0a.png", "conversations": [tiny.turn("human", "a" * (LENGTH - 14)), tiny.turn("gpt", "a")]} for _ in range(count)]
        path = self.dir / f"questions-{count}.json"
        tiny.write_json(path, rows)
        return str(path)

    def predict(self, recipe, command, *sets, code=0):
        arguments = [x for pair in sets for x in ("--set", pair)]
        return program.run("profile-memory", "--recipe", recipe, "--command", command, "--json", "-", *arguments).expect(code).json()

    def compare(self, name, predicted, measured):
        peak = measured["peak_allocated_bytes"]
        self.assertAlmostEqual(predicted["peak_allocated_bytes"] / peak, 1, delta=0.01, msg=name)
        for category, bytes_ in measured["by_category"].items():
            self.assertAlmostEqual(predicted["by_category"][category], bytes_, delta=max(0.02 * bytes_, 0.002 * peak), msg=f"{name}: {category}")

        expected = {phase["name"]: phase["peak_bytes"] for phase in predicted["phases"]}
        for phase in measured["phases"]:
            if phase["name"] in expected and phase["name"] != "other":
                self.assertAlmostEqual(expected[phase["name"]], phase["peak_bytes"], delta=max(0.02 * phase["peak_bytes"], 0.002 * peak),
                                       msg=f"{name}: {phase['name']}")

    def check_training(self, name, command, images=1, **sections):
        run = self.dir / name.replace(" ", "-").replace(":", "")
        recipe = program.training_recipe(self, output={"dir": str(run)}, train={"max_steps": 3, "per_device_batch_size": 2})
        recipe["data"] = {"train": [self.write_data(images)], "image_folder": str(self.images), "max_length": 2048}
        for section, values in sections.items():
            recipe.setdefault(section, {}).update(values)
        path = self.write_recipe(f"{run.name}.json", recipe)
        program.run(command, "--recipe", path).expect(0)
        step = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
        length = step["tokens"] // (recipe["train"]["per_device_batch_size"] * recipe["train"]["gradient_accumulation_steps"])
        self.compare(name, self.predict(path, command, f"data.max_length={length}"), json.loads((run / "memory.json").read_text()))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.dir / "data" / "images"

    def test_training(self):
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0.1}
        full = {"language_model": False}
        bf16 = {"compute": "bf16", "parameters": "bf16"}
        recompute = {"checkpointing": "full"}
        few_bits = self.dir / "few-bits"
        program.run("quantize", "--model", self.model, "--output", few_bits, "--bits", "4").expect(0)
        for name, command, images, sections in [
            ("projector", "pretrain", 1, {}),
            ("projector bf16", "pretrain", 1, {"precision": bf16}),
            ("full", "pretrain", 1, {"freeze": full}),
            ("full checkpointing", "pretrain", 1, {"freeze": full, "memory": recompute}),
            ("full bf16 two images", "pretrain", 2, {"freeze": full, "precision": bf16}),
            ("everything trained", "pretrain", 1, {"freeze": {**full, "vision_tower": False}, "memory": {**recompute, "vision_checkpointing": "full"}}),
            ("lora", "lora-finetune", 1, {"lora": lora}),
            ("lora text only", "lora-finetune", 0, {"lora": lora}),
            ("lora two images checkpointing", "lora-finetune", 2, {"lora": lora, "memory": recompute}),
            ("lora bf16 checkpointing", "lora-finetune", 1, {"lora": lora, "precision": bf16, "memory": recompute}),
            ("lora fp16", "lora-finetune", 1, {"lora": lora, "precision": {"compute": "fp16", "parameters": "fp16", "loss_scale": 64}}),
            ("lora one row", "lora-finetune", 1, {"lora": lora, "train": {"max_steps": 3, "per_device_batch_size": 1, "gradient_accumulation_steps": 4}}),
            ("lora bf16 weights of fp32 arithmetic", "lora-finetune", 1, {"lora": lora, "precision": {"compute": "fp32", "parameters": "bf16"}}),
            ("full selective", "pretrain", 1, {"freeze": full, "memory": {"checkpointing": "selective"}}),
            ("lora every other block", "lora-finetune", 1, {"lora": lora, "memory": {"checkpointing": "every:2"}}),
            ("full adamw8bit", "pretrain", 1, {"freeze": full, "optimizer": {"name": "adamw8bit"}}),
            ("full lion", "pretrain", 1, {"freeze": full, "optimizer": {"name": "lion"}}),
            ("qlora", "lora-finetune", 1, {"lora": lora, "quantization": {"bits": 4}}),
            ("qlora with its head", "lora-finetune", 1, {"lora": lora, "quantization": {"bits": 4, "type": "int4", "skip_modules": ["vision_tower"]}}),
            ("qlora bf16 int8", "lora-finetune", 1, {"lora": lora, "precision": bf16, "quantization": {"bits": 8}}),
            ("lora streamed from disk", "lora-finetune", 1, {"lora": lora, "memory": {**recompute, "offload": {"parameters": "disk"}}}),
            ("lora streamed from disk kept activations", "lora-finetune", 1, {"lora": lora, "memory": {"checkpointing": "none", "offload": {"parameters": "disk"}}}),
            ("lora on few bits streamed from disk", "lora-finetune", 1, {"model": {"path": str(few_bits)}, "lora": lora, "memory": {**recompute, "offload": {"parameters": "disk"}}}),
            ("projector streamed from disk bf16", "pretrain", 1, {"precision": bf16, "memory": {**recompute, "offload": {"parameters": "disk"}}}),
            ("full optimizer in backward", "pretrain", 1, {"freeze": full, "optimizer": {"max_grad_norm": 0},
                                                            "train": {"max_steps": 3, "per_device_batch_size": 2, "gradient_accumulation_steps": 1},
                                                            "memory": {**recompute, "optimizer_in_backward": True}}),
            ("full bf16 weights", "pretrain", 1, {"freeze": full, "precision": {**bf16, "trained": "bf16"}, "memory": {"checkpointing": "selective:attention"}}),
            ("lora from a cache", "lora-finetune", 1, {"lora": lora, "data": {"embedding_cache": str(self.dir / "embeddings")}}),
            ("projector from a cache bf16 two images", "pretrain", 2, {"precision": bf16, "data": {"embedding_cache": str(self.dir / "embeddings")}}),
            ("lora small chunks", "lora-finetune", 1, {"lora": lora, "memory": {"loss_chunk_tokens": 32}}),
            ("projector with similarities", "pretrain", 1, {"model": {"similarity_head": True}}),
            ("lora bf16 with similarities", "lora-finetune", 1, {"lora": lora, "precision": bf16, "memory": recompute, "model": {"similarity_head": True}}),
            ("lora with answers", "lora-finetune", 1, {"lora": lora, "data": {"validation": [self.write_questions(12)]}, "train": {"eval_metrics": ["anls"]},
                                                       "generation": {"max_new_tokens": 1, "batch_size": 12}}),
        ]:
            with self.subTest(name):
                self.check_training(name, command, images, **sections)

    def test_families(self):
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0.1}
        bf16 = {"compute": "bf16", "parameters": "bf16"}
        tiny.write_png(self.images / "64 tokens.png", 8 * tiny_qwen.BLOCK, 8 * tiny_qwen.BLOCK, 1)  # as many as the folders' limit
        rows = [{"id": str(i), "conversations": [tiny.turn("human", "<image><image>what"), tiny.turn("gpt", "a" * 900)], "image": ["64 tokens.png"] * 2}
                for i in range(4)]
        tiny.write_json(self.dir / "families.json", rows)
        for family, (write_model, of_tower) in FAMILIES.items():
            model = {"path": str(write_model(self.dir / family))}
            data = {"train": [str(self.dir / "families.json")]}
            for name, command, sections in [
                ("lora", "lora-finetune", {"lora": {**lora, "vision_target_modules": [of_tower]}}),
                ("lora bf16 checkpointing", "lora-finetune", {"lora": lora, "precision": bf16, "memory": {"checkpointing": "full"}}),
                ("qlora", "lora-finetune", {"lora": lora, "quantization": {"bits": 4}}),
                ("everything trained", "pretrain", {"freeze": {"language_model": False, "vision_tower": False},
                                                    "memory": {"checkpointing": "full", "vision_checkpointing": "full"}}),
                ("lora from a cache", "lora-finetune", {"lora": lora, "data": {"embedding_cache": str(self.dir / "family-embeddings")}}),
            ]:
                with self.subTest(f"{family} {name}"):
                    self.check_training(f"{family} {name}", command, 0, model=model, **{**sections, "data": {**data, **sections.get("data", {})}})
            with self.subTest(f"{family} infer"):
                run = self.dir / f"infer-{family}"
                recipe = {"model": model, "generation": {"max_new_tokens": 20}, "output": {"dir": str(run)},
                          "precision": {"compute": "fp32", "parameters": "fp32"}}
                path = self.write_recipe(f"infer-{family}.json", recipe)
                answer = program.run("infer", "--recipe", path, "--json", "--image", self.images / "64 tokens.png", "--prompt", "word " * 50).expect(0).json()
                self.assertEqual(answer["completion_tokens"], 20)
                self.compare(family, self.predict(path, "infer", f"generation.prompt_tokens={answer['prompt_tokens']}"),
                             json.loads((run / "memory.json").read_text()))

    def test_videos(self):
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0.1, "vision_target_modules": ["qkv"]}
        tiny.write_png(self.images / "frame.png", 8 * tiny_qwen.BLOCK, 8 * tiny_qwen.BLOCK, 1)  # as large as the folders' limit
        for family in ("qwen2_vl", "qwen3_vl"):
            model = {"path": str(tiny_qwen.write_model(self.dir / f"videos-{family}", family))}
            for frames in (3, 12):
                rows = [{"id": str(i), "conversations": [tiny.turn("human", "<video><image>what"), tiny.turn("gpt", "a" * 1200)],
                         "videos": [["frame.png"] * frames], "image": "frame.png"} for i in range(4)]
                tiny.write_json(self.dir / "videos.json", rows)
                for name, command, sections in [
                    (f"{family} {frames} frames", "lora-finetune", {"lora": lora}),
                    (f"{family} {frames} frames everything trained", "pretrain",
                     {"freeze": {"language_model": False, "vision_tower": False}, "memory": {"checkpointing": "full", "vision_checkpointing": "full"}}),
                ]:
                    with self.subTest(name):
                        self.check_training(name, command, 0, model=model, data={"train": [str(self.dir / "videos.json")]}, **sections)

    def test_bad_rows_are_passed_over(self):
        rows = json.loads(open(self.write_data(1)).read())
        rows[1] = {"id": "bad"}
        tiny.write_json(self.dir / "one-bad.json", rows)
        recipe = program.training_recipe(self)
        recipe["data"].update(train=[str(self.dir / "one-bad.json")], max_length=2048, bad_sample_budget=0.5)
        for packing in (False, True):
            recipe["data"].update(packing=packing, group_by_modality_length=not packing)
            self.predict(self.write_recipe("one-bad-recipe.json", recipe), "pretrain")

    def test_light_tower(self):
        language, _, _ = tiny.write_parts(self.dir / "light", self.model)
        model = {"path": str(language), "vision_tower": str(tiny.write_convnext(self.dir / "light" / "convnext")), "mm_projector_type": "mlp2x_gelu",
                 "projector_width": 28}
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0.1}
        bf16 = {"compute": "bf16", "parameters": "bf16"}
        trained = {"language_model": False, "vision_tower": False}
        for name, command, sections in [
            ("projector", "pretrain", {}),
            ("projector bf16", "pretrain", {"precision": bf16}),
            ("everything trained", "pretrain", {"freeze": trained}),
            ("everything trained checkpointing", "pretrain", {"freeze": trained, "memory": {"checkpointing": "full", "vision_checkpointing": "full"}}),
            ("everything trained bf16 selective", "pretrain", {"freeze": trained, "precision": bf16,
                                                               "memory": {"checkpointing": "selective", "vision_checkpointing": "selective"}}),
            ("lora", "lora-finetune", {"lora": {**lora, "vision_target_modules": ["pwconv1", "pwconv2"]}}),
            ("qlora with its tower", "lora-finetune", {"lora": lora, "quantization": {"bits": 4, "skip_modules": ["multi_modal_projector"]}}),
            ("lora streamed from disk", "lora-finetune", {"lora": lora, "memory": {"offload": {"parameters": "disk"}}}),
            ("lora from a cache", "lora-finetune", {"lora": lora, "data": {"embedding_cache": str(self.dir / "light-embeddings")}}),
        ]:
            with self.subTest(name):
                self.check_training(f"light {name}", command, 2, model=model, **sections)
        losses = [[json.loads(line)["loss"] for line in (self.dir / f"light-{name}" / "metrics.jsonl").read_text().splitlines()]
                  for name in ("lora-streamed-from-disk", "lora-from-a-cache")]
        self.assertEqual(losses[0], losses[1])

        model["projector"] = str(self.dir / "light-projector" / "final" / "projector.safetensors")
        run = self.dir / "infer-light"
        path = self.write_recipe("infer-light.json", {"model": model, "generation": {"max_new_tokens": 20}, "output": {"dir": str(run)},
                                                      "precision": {"compute": "fp32", "parameters": "fp32"}})
        answer = program.run("infer", "--recipe", path, "--json", "--image", self.images / "0a.png", "--prompt", "word " * 50).expect(0).json()
        self.compare("light infer", self.predict(path, "infer", f"generation.prompt_tokens={answer['prompt_tokens']}"),
                     json.loads((run / "memory.json").read_text()))

        # A whole model of these parts is one that reads again.
        whole = {"path": str(self.dir / "light-everything-trained" / "final")}
        path = self.write_recipe("whole-light.json", {"model": whole, "generation": {"max_new_tokens": 4}})
        program.run("infer", "--recipe", path, "--json", "--image", self.images / "0a.png", "--prompt", "word").expect(0)

    def test_packing(self):
        lora = {"r": 4, "target_modules": "all-linear", "dropout": 0.1}
        for name, command, images, sections in [
            ("packed", "lora-finetune", 1, {"lora": lora}),
            ("packed text bf16 checkpointing", "lora-finetune", 0, {"lora": lora, "precision": {"compute": "bf16", "parameters": "bf16"},
                                                                  "memory": {"checkpointing": "full"}}),
            ("packed full two images", "pretrain", 2, {"freeze": {"language_model": False}}),
            ("packed from a cache", "lora-finetune", 1, {"lora": lora, "data": {"embedding_cache": str(self.dir / "packed-embeddings")}}),
        ]:
            with self.subTest(name):
                data = {"train": [self.write_data(images, 24)], "packing": True, "max_length": 2900, "group_by_modality_length": False}
                self.check_training(name, command, images, **{**sections, "data": {**data, **sections.get("data", {})}})

    def test_inference(self):
        tokens = {}
        for name, words, sections in [("short", 5, {}), ("long", 150, {}), ("bf16", 20, {"precision": {"compute": "bf16", "parameters": "bf16"}}),
                                      ("quantised", 20, {"quantization": {"bits": 4}}),
                                      ("streamed from disk", 20, {"memory": {"offload": {"parameters": "disk"}}}),
                                      ("all logits", 150, {"generation": {"max_new_tokens": 20, "logits": "all"}})]:
            with self.subTest(name):
                run = self.dir / f"infer-{name}"
                recipe = {"model": {"path": str(self.model)}, "generation": {"max_new_tokens": 20}, "output": {"dir": str(run)},
                          "precision": {"compute": "fp32", "parameters": "fp32"}, **sections}
                path = self.write_recipe(f"infer-{name}.json", recipe)
                answer = program.run("infer", "--recipe", path, "--json", "--image", self.images / "0a.png", "--prompt", "word " * words).expect(0).json()
                self.assertEqual(answer["finish_reason"], "length")
                tokens[name] = answer["tokens"]
                self.compare(name, self.predict(path, "infer", f"generation.prompt_tokens={answer['prompt_tokens']}"),
                             json.loads((run / "memory.json").read_text()))

        self.assertEqual(tokens["all logits"], tokens["long"])

    def test_more_never_takes_less(self):
        recipe = program.training_recipe(self, lora={"r": 4}, train={"per_device_batch_size": 2})
        recipe["data"] = {"train": [self.write_data(1)], "image_folder": str(self.images), "max_length": 512}
        path = self.write_recipe("monotone.json", recipe)
        for hardware in ("cpu", "8gb-gpu", "ascend-910b"):
            for key, values in [("train.per_device_batch_size", (1, 2, 3, 8)), ("data.max_length", (64, 100, 512, 2000)), ("lora.r", (1, 4, 64)),
                                ("memory.checkpointing", ("full", "selective", "none")), ("memory.checkpointing", ("every:1", "every:2", "none")), ("memory.checkpointing", ("full", "selective:attention", "none")),
                                ("memory.checkpointing", ("first:2", "first:1", "none")), ("precision.trained", ("bf16", "fp32")),
                                ("memory.offload.parameters", ("disk", "none")),
                                ("memory.loss_chunk_tokens", (16, 128, 0)), ("quantization.bits", (4, 8, 16))]:
                peaks = [self.predict(path, "lora-finetune", f"{key}={value}", f"hardware={hardware}")["total_bytes"] for value in values]
                self.assertEqual(peaks, sorted(peaks), f"{key} on {hardware}")

    def test_more_never_takes_less_in_any_recipe(self):
        draw = random.Random(11)
        steps = {"train.per_device_batch_size": (1, 2, 3, 4, 6), "data.max_length": (40, 64, 100, 333, 1000, 2048), "lora.r": (1, 2, 8, 33, 64),
                 "memory.checkpointing": ("full", "none"), "memory.loss_chunk_tokens": (16, 64, 256, 0), "train.gradient_accumulation_steps": (1, 2, 5),
                 "precision.parameters": ("bf16", "fp32"), "lora.target_modules": ('["q_proj"]', '["q_proj","v_proj"]', "all-linear"),
                 "freeze.vision_tower": ("true", "false"), "quantization.bits": (4, 8, 16), "optimizer.name": ("adamw8bit", "adamw")}
        for number in range(10):
            chosen = {key: draw.randrange(len(values)) for key, values in steps.items()}
            recipe = program.training_recipe(self, lora={"r": 4})
            recipe["data"] = {"train": [self.write_data(draw.choice((0, 1, 2)))], "image_folder": str(self.images), "max_length": 512}
            path = self.write_recipe(f"any-{number}.json", recipe)
            hardware = draw.choice(("cpu", "24gb-gpu", "ascend-910b"))

            def total(key=None, place=0):
                sets = [f"{k}={steps[k][place if k == key else i]}" for k, i in chosen.items()]
                return self.predict(path, "lora-finetune", *sets, f"hardware={hardware}")["total_bytes"]

            for key in draw.sample(list(steps), 4):
                totals = [total(key, place) for place in range(len(steps[key]))]
                self.assertEqual(totals, sorted(totals), f"{key} on {hardware} in {chosen}")

    def test_fit(self):
        recipe = program.training_recipe(self, lora={"r": 4})
        recipe["data"] = {"train": [self.write_data(1)], "image_folder": str(self.images), "max_length": 2048}
        recipe["train"] = {"global_batch_size": 4, "max_steps": 2}
        del recipe["memory"]
        path = self.write_recipe("fit.json", recipe)
        fast = ["memory.checkpointing=none", "memory.loss_chunk_tokens=0", "train.per_device_batch_size=4"]
        limit = self.predict(path, "lora-finetune", *fast)["peak_allocated_bytes"] // 2
        budget = ["--set", f'memory.budget="{limit}"']
        found = program.run("profile-memory", "--recipe", path, *budget, "--fit", "--json", "-").expect(0).json()
        self.assertLessEqual(found["total_bytes"], limit)
        self.assertTrue(found["plan"])

        # What the user named stays, even when nothing fits then.
        fast += ["quantization.bits=16", "optimizer.name=adamw", "memory.offload.parameters=none"]
        kept = program.run("profile-memory", "--recipe", path, *budget, *[x for pair in fast for x in ("--set", pair)], "--fit", "--json", "-").expect(4)
        self.assertEqual(kept.json()["plan"], {})

        # The budget holds in a run: it stops the fast recipe, and not the planned one.
        run = self.dir / "fit-run"
        stopped = program.run("lora-finetune", "--recipe", path, *budget, *[x for pair in fast for x in ("--set", pair)], "--set", f"output.dir={run}")
        self.assertIn("/memory/budget", stopped.expect(4).err)
        done = program.run("lora-finetune", "--recipe", path, *budget, "--set", f"output.dir={run}", "--set", "memory.plan=auto").expect(0)
        self.assertIn("too much", done.err)
        self.assertLessEqual(json.loads((run / "memory.json").read_text())["peak_allocated_bytes"], limit)

    def test_published_peaks(self):
        out = subprocess.run([sys.executable, "-B", program.ROOT / "scripts/bench/peaks.py", "--binary", program.binary(), "--json"], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        ratios = {figure["name"]: figure["ratio"] for figure in map(json.loads, out.stdout.splitlines())}
        single = {name: ratio for name, ratio in ratios.items() if "prompt of" in name and "GPUs" not in name}
        self.assertEqual(len(single), 17)
        for name, ratio in {**single, "torchtune": ratios["peak torchtune llama-3.2-3B"]}.items():
            self.assertAlmostEqual(ratio, 1, delta=0.02, msg=name)
        grown = {name: ratio for name, ratio in ratios.items() if "from" in name and "GPUs" not in name}
        self.assertEqual(len(grown), 8)
        for name, ratio in grown.items():
            self.assertAlmostEqual(ratio, 1, delta=0.05, msg=name)

    def test_large_models_need_a_small_machine(self):
        recipes = program.ROOT / "recipes"
        for recipe, model in [("llava-1.5-7b-finetune", None), ("llava-1.6-vicuna-7b-lora", None), ("llava-1.6-vicuna-7b-lora", "llava-v1.6-34b-hf"),
                              ("qwen2.5-7b-infer", "Qwen2.5-72B-Instruct")]:
            more = ["--set", f"model.path=models/{model}"] if model else []
            begin = time.monotonic()
            process = program.start("profile-memory", "--recipe", recipes / f"{recipe}.json", "--hardware", "h200", "--json", self.dir / "large.json", *more)
            process.communicate()
            self.assertIn(process.returncode, (0, 4))
            self.assertLess(time.monotonic() - begin, 20)
            self.assertGreater(json.loads((self.dir / "large.json").read_text())["total_bytes"], 13e9)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2 << 20)  # KiB, of the largest child

    def test_report_page(self):
        recipe = program.training_recipe(self, lora={"r": 4})
        recipe["data"] = {"train": [self.write_data(1)], "image_folder": str(self.images), "max_length": 300}
        page = self.dir / "memory.html"
        program.run("profile-memory", "--recipe", self.write_recipe("page.json", recipe), "--ablate", "--report", page).expect(0)
        html = page.read_text()
        self.assertNotIn("http", html.replace("http-equiv", ""))  # nothing is loaded from elsewhere
        browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if browser is None:
            self.skipTest("no browser to open the page in")
        shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.dir}/browser", "--dump-dom", page.as_uri()],
                               capture_output=True, text=True, timeout=120).stdout
        for text in ("Does it fit?", "8gb-gpu", "step 2: backward", "layers.1", "memory.checkpointing: full"):
            self.assertIn(text, shown)
        self.assertGreater(shown.count("<polygon"), 3)

    def test_known_models_need_no_files(self):
        done = program.run("profile-memory", "--recipe", program.ROOT / "recipes/llava-1.5-7b-lora.json", "--hardware", "8gb-gpu", "--json", "-").expect(4)
        self.assertIn("one picture a row is assumed", done.err)
        out = done.json()
        self.assertFalse(out["fits"])
        self.assertGreater(out["by_category"]["weights"], 13e9)
        table = program.run("profile-memory", "--recipe", program.ROOT / "recipes/llava-1.5-7b-lora.json", "--hardware", "a100-80gb").expect(0).out
        self.assertIn("fits", table)
        self.assertIn("layers (32)", table)


if __name__ == "__main__":
    program.main()
