"""text/tiktoken/qwen: a small qwen.tiktoken, what the tiktoken package makes of hard texts, and the first Qwen-VL's prompts and labels.

tiktoken merges the neighbours whose joined bytes have the lowest rank; `tokenizers`, with the same merges in order, confirms every text.
"""
import base64
import json
import unicodedata

import tiktoken
from tokenizers import AddedToken, normalizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from text import QWEN2, split, train_byte_level
from text_corpus import HARD
from tiny import case_folder

RANKS, SPAN = 640, 256
IMAGE_TAGS = ["<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>", "</img>", "<imgpad>"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)), *IMAGE_TAGS]
GROUNDED = [
    "<img>cat.png</img>", "Picture 1: <img>https://example.com/a b/猫.png</img>\nWhat is <ref>the cat</ref><box>(1,2),(998,999)</box>?",
    "Picture 1: <img>1.jpg</img>\nPicture 2: <img>2.jpg</img>\n", "<img></img>", "<img>" + "x" * 255 + "</img>", "<img>" + "x" * 256 + "</img>",
    "<img>" + "x" * 257 + "</img>", "<img>e\u0301.png</img>", "<img>no end", "</img>", "<img>a<ref>b</img>", "<imgpad>", "<quad>(1,2),(3,4),(5,6),(7,8)</quad>",
    "<|extra_0|><|extra_204|><|extra_205|>", "a <img >", "<|im_start|>user\n<img>a</img><|im_end|>"]
CHATS = [
    ("You are a helpful assistant.", ["Hello!"]),
    ("You are a helpful assistant.", ["Picture 1: <img>cat.png</img>\nWhat is this?", "A cat.", " And  this? <|im_end|> \n", "\nNothing <|endoftext|>"]),
    ("Be brief. 请简短。", ["<ref>it</ref>", "<ref>it</ref><box>(1,2),(3,4)</box>", "ok"]),
]


class Qwen:
    """The published tokenizer, by its behaviour. allowed: the special tokens that are looked for in a text."""

    def __init__(self, ranks):
        self.special = {token: len(ranks) + i for i, token in enumerate(SPECIALS)}
        self.encoding = tiktoken.Encoding("Qwen", pat_str=QWEN2, mergeable_ranks=ranks, special_tokens=self.special)
        self.start, self.end, self.pad = (self.special[t] for t in ("<img>", "</img>", "<imgpad>"))
        self.endoftext = self.special["<|endoftext|>"]

    def encode(self, text, allowed=SPECIALS):
        """A path between <img> and </img> becomes its bytes, each as the id of that number, padded to SPAN."""
        ids = self.encoding.encode(unicodedata.normalize("NFC", text), allowed_special=set(allowed), disallowed_special=())
        made = []
        while self.start in ids:
            at = ids.index(self.start)
            end = ids.index(self.end, at)
            if any(i >= self.endoftext for i in ids[at + 1:end]):
                raise ValueError("special token in a path")
            path = list(self.encoding.decode_bytes(ids[at + 1:end]))
            if len(path) > SPAN:
                raise ValueError("long path")
            made += ids[:at + 1] + path + [self.pad] * (SPAN - len(path)) + [self.end]
            ids = ids[end + 1:]
        return made + ids

    def decode(self, ids, skip=False):
        made = []
        while self.start in ids:
            at = ids.index(self.start)
            end = ids.index(self.end, at)
            path = ids[at + 1:ids.index(self.pad, at, end)]
            made += ids[:at + 1] + self.encoding.encode(bytes(path).decode()) + [self.end]
            ids = ids[end + 1:]
        made += ids
        return self.encoding.decode([i for i in made if i < self.endoftext] if skip else made, errors="replace")


def attempt(call, *arguments):
    try:
        return call(*arguments)
    except ValueError:
        return None


def prompt_of(qwen, system, turns):
    """What chat() gives the model: parts are encoded one by one, and only the tags of images are special in them."""
    start, end = [qwen.special["<|im_start|>"]], [qwen.special["<|im_end|>"]]
    line = qwen.encode("\n")
    part = lambda role, text: start + qwen.encode(role) + line + qwen.encode(text, IMAGE_TAGS) + end
    ids = part("system", system)
    for i, text in enumerate(turns):
        ids += line + part("assistant" if i % 2 else "user", text)
    return ids + line + start + qwen.encode("assistant") + line


def sample_of(qwen, system, turns):
    """Ids and labels of the published trainer: every special token is special in the texts, and each turn's <|im_start|>, <|im_end|> and last
    line break are learnt, the user's and the system's too."""
    start, end = [qwen.special["<|im_start|>"]], [qwen.special["<|im_end|>"]]
    line, ids, labels = qwen.encode("\n"), [], []
    for i, text in enumerate([system, *turns]):
        role = qwen.encode("system" if i == 0 else "user" if i % 2 else "assistant") + line
        content = qwen.encode(text)
        ids += start + role + content + end + line
        learnt = content if i > 0 and i % 2 == 0 else [-100] * len(content)
        labels += start + [-100] * len(role) + learnt + end + line
    return ids, labels


def main():
    trained = train_byte_level(split(QWEN2), normalizers.NFC(), vocab_size=RANKS)
    byte_of = {c: b for b, c in bytes_to_unicode().items()}
    ranks = {bytes(byte_of[c] for c in token): i for token, i in trained.get_vocab().items()}
    assert sorted(ranks.values()) == list(range(RANKS)) and all(bytes([b]) in ranks for b in range(256))
    qwen = Qwen(ranks)
    trained.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    assert trained.token_to_id("<imgpad>") == qwen.pad

    folder = case_folder("text", "tiktoken", "qwen")
    lines = sorted((i, base64.b64encode(token).decode()) for token, i in ranks.items())
    (folder / "qwen.tiktoken").write_text("".join(f"{token} {i}\n" for i, token in lines))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "model_max_length": 8192, "tokenizer_class": "QWenTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]}}, indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen"}) + "\n")

    cases = []
    for text in HARD + GROUNDED:
        ids = attempt(qwen.encode, text)
        if "<img>" not in text:
            assert trained.encode(text).ids == ids, text
        cases.append({"text": text, "ids": ids} | ({} if ids is None else {
            "decoded": attempt(qwen.decode, ids), "skipped": attempt(qwen.decode, ids, True)}))
    size = RANKS + len(SPECIALS)
    scattered = [[i for i in ((17 * k * k + 31 * k + seed) % size for k in range(40)) if i not in (qwen.start, qwen.end)] for seed in range(6)]
    chats = []
    for system, turns in CHATS:
        ids, labels = sample_of(qwen, system, turns)
        chats.append({"system": system, "turns": turns, "prompt": prompt_of(qwen, system, turns) if len(turns) % 2 else None, "ids": ids, "labels": labels})
    facts = {"vocab_size": size, "special": {t: qwen.special[t] for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra_204|>", *IMAGE_TAGS)},
             "image_span": SPAN, "decodes": [{"ids": ids, "decoded": qwen.decode(ids), "skipped": qwen.decode(ids, True)} for ids in scattered],
             "cases": cases, "chats": chats}
    (folder / "cases.json").write_text(json.dumps(facts).replace('{"text"', '\n{"text"').replace('{"system"', '\n{"system"') + "\n")


main()
