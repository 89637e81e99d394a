"""Data as users have it: what --dry-run says about it, and shards."""
import io
import json
import re
import shutil
import tarfile

import program
import tiny


class CheckData(program.Case):
    ROWS = 40

    def check(self, code=0, **sections):
        recipe = program.training_recipe(self, output={"dir": str(self.dir / "never")}, **sections)
        result = program.run("lora-finetune", "--recipe", self.write_recipe("check.json", recipe), "--dry-run").expect(code)
        self.assertEqual(result.out, "")
        self.assertFalse((self.dir / "never").exists())
        return result.err

    def rows_with(self, name, *bad):
        """The good rows as JSONL, each of `bad` (line from 1, text) put in its line's place."""
        lines = [json.dumps(row) for row in json.loads(self.rows.read_text())]
        for line, text in bad:
            lines[line - 1] = text
        path = self.dir / "data" / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def test_good_data(self):
        said = self.check()
        found = re.search(r"data.train: 40 rows: 40 usable, 0 bad, 0 without labels, 0 \(0.0 %\) longer than 512 tokens\n"
                          r"tokens of usable rows: (\d+) of text, (\d+) of (\d+) pictures; (\d+) are trained", said)
        self.assertTrue(found, said)
        text, image, pictures, trained = map(int, found.groups())
        rows = json.loads(self.rows.read_text())
        self.assertEqual(pictures, sum(len(row["image"]) if isinstance(row.get("image"), list) else "image" in row for row in rows))
        self.assertEqual(image, pictures * tiny.IMAGE_TOKENS)
        turns = [turn for row in rows for turn in row["conversations"]]
        self.assertEqual(trained, sum(len(self.tokens(turn["value"])) + 1 for turn in turns if turn["from"] == "gpt"))
        self.assertGreater(text, trained)
        self.assertEqual(sum(int(rows) for rows in re.findall(r"^ +\d+ - \d+ +#* +(\d+) ", said, re.M)), 40)
        self.assertIn("trained", said)  # the table of what trains comes behind

    @staticmethod
    def tokens(text):
        """As the tokenizer of tiny.py merges: "th", then "he", "in"."""
        for pair, mark in (("th", "\1"), ("he", "\2"), ("in", "\3")):
            text = text.replace(pair, mark)
        return text

    def test_every_bad_row_is_named(self):
        file = self.rows_with("bad.jsonl", (3, '{"conversations": ['), (17, json.dumps({"conversations": [tiny.turn("human", "<image>"), tiny.turn("gpt", "a")]})),
                              (20, json.dumps({"image": "none.png", "conversations": [tiny.turn("human", "a"), tiny.turn("gpt", "a")]})),
                              (40, json.dumps({"conversations": [tiny.turn("human", "a"), tiny.turn("gpt", "")]})))
        said = self.check(3, data={"train": [file], "bad_sample_budget": 0.05})
        self.assertEqual(re.findall(r"bad\.jsonl:(\d+):", said), ["3", "17", "20", "40"])
        self.assertIn("40 rows: 36 usable, 3 bad, 1 without labels", said)
        self.assertIn("4 of 40 rows are unusable, more than the bad_sample_budget of 0.05", said)
        self.check(0, data={"train": [file], "bad_sample_budget": 0.1})

    def test_long_rows(self):
        said = self.check(0, data={"max_length": 90})
        long, share = re.search(r"(\d+) \(([\d.]+) %\) longer than 90 tokens", said).groups()
        self.assertGreater(int(long), 0)
        self.assertAlmostEqual(float(share), int(long) / 40 * 100, delta=0.05)
        self.assertRegex(said, rf"{long} +{share} %  beyond data.max_length")
        said = self.check(3, data={"max_length": 90, "truncation": "error"})
        self.assertEqual(len(re.findall(r"rows\.json#\d+: the row is \d+ tokens long, more than the limit of 90", said)), int(long))

    def test_validation_rows(self):
        file = self.rows_with("validation.jsonl", (2, "{}"))
        said = self.check(0, data={"validation": [file]})
        self.assertIn("data.validation: 40 rows: 39 usable, 1 bad", said)
        self.assertIn("validation.jsonl:2:", said)
        (self.dir / "empty.jsonl").write_text("{}\n")
        self.assertIn("data.validation: no row is usable", self.check(3, data={"validation": [str(self.dir / "empty.jsonl")]}))


class Shards(program.Case):
    ROWS = 24

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.samples = json.loads(cls.rows.read_text())
        cls.write_shard("shard-000.tar", 0, 10)
        cls.write_shard("shard-001.tar", 10, 24)

    @classmethod
    def write_shard(cls, name, begin, end, format=tarfile.PAX_FORMAT, folder=""):
        with tarfile.open(cls.dir / name, "w", format=format) as shard:
            for i in range(begin, end):
                row = cls.samples[i]
                pictures = row.get("image", [])
                for k, picture in enumerate([pictures] if isinstance(pictures, str) else pictures):
                    cls.add(shard, f"{folder}{i:06d}.{k}.png" if k else f"{folder}{i:06d}.png", (cls.dir / "data" / "images" / picture).read_bytes())
                cls.add(shard, f"{folder}{i:06d}.json", json.dumps(row).encode())
                cls.add(shard, f"{folder}{i:06d}.cls", b"7")  # nothing that we read
        return cls.dir / name

    @staticmethod
    def add(shard, name, content):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        shard.addfile(member, io.BytesIO(content))

    def train(self, name, data, code=0, **sections):
        recipe = program.training_recipe(self, output={"dir": str(self.dir / name)}, **{"train": {"max_steps": 6}, **sections})
        recipe["data"].update({"group_by_modality_length": False, **data})
        del recipe["data"]["image_folder"]
        result = program.run("pretrain", "--recipe", self.write_recipe(f"{name}.json", recipe)).expect(code)
        return self.losses(name) if code == 0 else result.err

    def losses(self, name):
        return [json.loads(line)["loss"] for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]

    def test_shards_train_as_their_rows_do(self):
        rows = self.dir / "data" / "images" / "rows.json"  # beside the pictures, since there is no folder for them
        shutil.copy(self.rows, rows)
        expected = self.train("rows", {"train": [str(rows)]})
        self.assertEqual(self.train("shards", {"train": [str(self.dir / "shard-{000..001}.tar")]}), expected)
        self.assertEqual(self.train("listed", {"train": [str(self.dir / "shard-00{0,1}.tar")], "format": "webdataset"}), expected)
        long = [self.write_shard(f"{format}.tar", 0, 24, format, "a-folder-with-a-name/" * 12) for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)]
        for path in (*long, self.write_shard("ustar.tar", 0, 24, tarfile.USTAR_FORMAT, "a-folder-with-a-name/" * 6)):
            self.assertEqual(self.train(path.stem, {"train": [str(path)]}), expected)

    def test_weights_packing_and_resuming(self):
        data = {"train": [{"path": str(self.dir / "shard-000.tar"), "weight": 2}, {"path": str(self.dir / "shard-001.tar"), "weight": 0.5}], "packing": True}
        for name in ("whole", "resumed"):
            self.train(name, data)
        checkpoints = self.dir / "resumed" / "checkpoints"
        shutil.rmtree(checkpoints / "step-000006")
        self.assertEqual(self.train("resumed", data), self.losses("whole"))
        self.assertIn("resumed from step 3", (self.dir / "resumed" / "log.txt").read_text())
        self.assertEqual((self.dir / "resumed" / "final" / "mm_projector.safetensors").read_bytes() if (self.dir / "resumed" / "final" / "mm_projector.safetensors").exists() else
                         [path.read_bytes() for path in sorted((self.dir / "resumed" / "final").iterdir())],
                         [path.read_bytes() for path in sorted((self.dir / "whole" / "final").iterdir())])

    def test_captions(self):
        with tarfile.open(self.dir / "captions.tar", "w") as shard:
            for i in range(8):
                picture = (self.dir / "data" / "images" / f"{i // 4 * 4}a.png").read_bytes()
                self.add(shard, f"{i}.PNG", picture)
                self.add(shard, f"{i}.txt", f"a thing with number {i}".encode())
                self.add(shard, f"{i}.json", json.dumps({"url": "x", "caption": f"a thing with number {i}"} if i % 2 else {"width": 3}).encode())
        self.train("captions", {"train": [str(self.dir / "captions.tar")]})
        log = (self.dir / "captions" / "log.txt").read_text() if (self.dir / "captions" / "log.txt").exists() else ""
        self.assertNotIn("skipped", log)

    def test_bad_members_are_named(self):
        shard = self.dir / "bad.tar"
        with tarfile.open(shard, "w") as out:
            for i, row in enumerate(row for row in self.samples if isinstance(row.get("image"), str)):
                self.add(out, f"{i}.json", json.dumps(row)[:-4 if i == 7 else None].encode())
                self.add(out, f"{i}.png", b"\x89PNG no more" if i == 9 else (self.dir / "data" / "images" / "0a.png").read_bytes())
        recipe = program.training_recipe(self, output={"dir": str(self.dir / "never")})
        recipe["data"].update({"train": [str(shard)], "image_folder": None})
        said = program.run("pretrain", "--recipe", self.write_recipe("bad.json", recipe), "--dry-run").expect(3).err
        self.assertRegex(said, r"bad\.tar/7: byte \d+ of the file is not valid JSON")
        self.assertIn("bad.tar/9.png", said)

        whole = (self.dir / "shard-000.tar").read_bytes()
        for name, content, what in (("short.tar", whole[:2000], "cut short"), ("torn.tar", whole[:5000] + b"x" * 600 + whole[5600:], "no header|cut short"),
                                    ("packed.tar.gz", b"\x1f\x8b" + whole, "unpack it first"), ("empty.tar", bytes(10240), "neither")):
            (self.dir / name).write_bytes(content)
            self.assertRegex(self.train(f"run-{name}", {"train": [str(self.dir / name)]}, code=3), what)
        self.assertIn("not closed", self.train("brace", {"train": ["shard-{000..1.tar"]}, code=2))


class Grounding(program.Case):
    ROWS = 1

    def test_boxes_come_back_in_pixels(self):
        """One row learnt by heart."""
        box = [2, 5, 18, 25]
        row = {"id": "a", "image": "0a.png", "objects": {"ref": ["thing"], "bbox": [box]},  # a picture of 20 x 30
               "messages": [{"role": "user", "content": "Where is the <ref-object>?"}, {"role": "assistant", "content": "<bbox>"}]}
        (self.dir / "grounded.jsonl").write_text(json.dumps(row) + "\n")
        recipe = program.training_recipe(self, lora={"r": 8, "alpha": 16, "dropout": 0, "target_modules": "all-linear"}, output={"dir": str(self.dir / "run")},
                                         train={"max_steps": 80, "per_device_batch_size": 1, "gradient_accumulation_steps": 1, "save_steps": 0},
                                         optimizer={"learning_rate": 2e-2})
        recipe["data"]["train"] = [str(self.dir / "grounded.jsonl")]
        said = program.run("lora-finetune", "--recipe", self.write_recipe("grounded.json", recipe)).expect(0).err
        self.assertIn("[[[0.233, 0.167, 0.767, 0.833]</s>]]", said)
        ask = ["infer", "--model", self.model, "--adapter", self.dir / "run" / "final", *program.FULL_PRECISION, "--max-new-tokens", 28]  # it knows no end
        picture = self.dir / "data" / "images" / "0a.png"
        answer = program.run(*ask, "--image", picture, "--prompt", "Where is the thing?", "--json").expect(0).json()
        self.assertEqual(answer["text"], "[0.233, 0.167, 0.767, 0.833]")
        found, = answer["objects"]
        for mine, edge in zip(found["bbox"], box):
            self.assertAlmostEqual(mine, edge, delta=0.02)
        lines = program.run(*ask, "--input", self.dir / "grounded.jsonl", "--set", f"data.image_folder={picture.parent}").expect(0).out
        self.assertEqual(json.loads(lines)["objects"], answer["objects"])
        self.assertNotIn("objects", program.run(*ask, "--prompt", "Where?", "--json").expect(0).json())


if __name__ == "__main__":
    program.main()
