"""text/: small tokenizers in the forms that checkpoints hold, and what the reference makes of hard texts and chats.

Each folder tokenizers/NAME is loaded by AutoTokenizer; cases.json beside it holds ids and decodings of every text.
"""
import json
import logging
import os
import shutil
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

import text_chat
from text_corpus import HARD, training_lines

logging.disable(logging.WARNING)
OUT = Path(os.environ.get("GOLDEN_ROOT") or Path(__file__).resolve().parents[2] / "tests" / "golden") / "text"
QWEN2 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def train_byte_level(pre_tokenizer, normalizer=None, vocab_size=900, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(training_lines(), trainer)
    return tokenizer


def split(pattern):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


def write_folder(name, tokenizer, config, model_type=None, old_merges=False, files=(), **extra_files):
    folder = OUT / "tokenizers" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if tokenizer is not None:
        content = json.loads(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str())
        if old_merges:
            content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    for file in files:
        shutil.copy(file, folder / "tokenizer.model")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if model_type:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}) + "\n")
    for file, content in extra_files.items():
        (folder / (file + ".json")).write_text(json.dumps(content) + "\n")
    write_cases(folder)


def write_cases(folder):
    reference = AutoTokenizer.from_pretrained(folder)
    cases = []
    for text in HARD:
        ids = reference.encode(text, add_special_tokens=False)
        cases.append({"text": text, "ids": ids, "decoded": reference.decode(ids), "skipped": reference.decode(ids, skip_special_tokens=True)})
    # Ids in an order that no text has: broken characters, byte tokens alone, specials in between.
    size = len(reference)
    scattered = [[(17 * i * i + 31 * i + seed) % size for i in range(40)] for seed in range(6)]
    added = reference("x").input_ids
    facts = {
        "vocab_size": 1 + max(reference.get_vocab().values()), "bos": reference.bos_token_id, "eos": reference.eos_token_id,
        "pad": reference.pad_token_id, "unk": reference.unk_token_id, "class": type(reference).__name__,
        "adds_bos": bool(added) and added[0] == reference.bos_token_id, "adds_eos": bool(added) and added[-1] == reference.eos_token_id,
        "decodes": [{"ids": ids, "decoded": reference.decode(ids), "skipped": reference.decode(ids, skip_special_tokens=True)} for ids in scattered],
        "cases": cases,
    }
    lines = json.dumps(facts, ensure_ascii=True).replace('{"text"', '\n{"text"')
    (folder / "cases.json").write_text(lines + "\n")


def byte_level_folders():
    chatml = [special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")]
    qwen2 = train_byte_level(split(QWEN2), normalizers.NFC())
    qwen2.add_special_tokens(chatml)
    qwen2.add_tokens([AddedToken("<tool>", normalized=False)])
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "add_bos_token": False}
    write_folder("qwen2", qwen2, config, "qwen2", old_merges=True)

    llama3 = train_byte_level(split(LLAMA3), ignore_merges=True)
    llama3.add_special_tokens([special("<|begin_of_text|>"), special("<|end_of_text|>"), special("<|eot_id|>")])
    bos = llama3.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", bos)])
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    write_folder("llama3", llama3, config, "llama")

    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    smollm2 = train_byte_level(digits)
    smollm2.add_special_tokens(chatml)
    names = {key: "<|im_end|>" for key in ("eos_token", "pad_token")} | {"bos_token": "<|im_start|>", "unk_token": "<|endoftext|>"}
    write_folder("smollm2", smollm2, {"tokenizer_class": "GPT2Tokenizer", **names}, "llama")
    write_folder("smollm2_in_llava", smollm2, {"tokenizer_class": "GPT2Tokenizer", **names}, "llava")

    # Added tokens of every kind, and a pre-tokenizer of many parts.
    parts = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Split("ab", "merged_with_next"), pre_tokenizers.Split(Regex(r"\d+"), "merged_with_previous"),
             pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    odd = train_byte_level(pre_tokenizers.Sequence(parts), normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase(), normalizers.Strip()]))
    odd.add_special_tokens([special("<mask>", lstrip=True, rstrip=True), special("</s>", rstrip=True), special("<s>", lstrip=True)])
    odd.add_tokens([AddedToken("word", single_word=True), AddedToken("<Tool>", normalized=True), AddedToken("  ", normalized=False)])
    write_folder("odd", odd, {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "<mask>", "eos_token": "</s>"})


def sentencepiece_folders(work):
    (work / "corpus.txt").write_text("\n".join(training_lines()), encoding="utf-8")

    def train(prefix, **options):
        spm.SentencePieceTrainer.train(input=str(work / "corpus.txt"), model_prefix=str(work / prefix), minloglevel=2, num_threads=1, max_sentence_length=100000, **options)
        return work / (prefix + ".model")

    model = train("bpe", model_type="bpe", vocab_size=1000, byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<mask>"])
    base = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None, "add_bos_token": True, "add_eos_token": False}
    write_folder("spm_legacy", None, {**base, "legacy": True}, "llama", files=[model])
    write_folder("spm_new", None, {**base, "legacy": False}, files=[model])
    write_folder("spm_no_prefix", None, {**base, "add_prefix_space": False}, files=[model])
    decoder = {str(i): {"content": c, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} for i, c in [(0, "<unk>"), (1, "<s>"), (2, "</s>"), (1000, "<image>"), (1001, "<pad>")]}
    write_folder("spm_added", None, {**base, "legacy": True, "added_tokens_decoder": decoder, "pad_token": "<pad>"}, files=[model])
    write_folder("spm_added_file", None, {"tokenizer_class": "LlamaTokenizer"}, files=[model], added_tokens={"<image>": 1000}, special_tokens_map={"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "pad_token": "<unk>"})

    json_text = to_tokenizer_json(model)
    write_folder("llama_legacy", json_text, {**base, "legacy": True}, "llama", old_merges=True)
    write_folder("llama_new", json_text, {**base, "legacy": False}, "llama")
    write_folder("llama_in_llava", json_text, {**base, "legacy": True, "added_tokens_decoder": decoder, "pad_token": "<pad>"}, "llava")


def to_tokenizer_json(model):
    """The file that Llama-2 and Mistral checkpoints carry for a sentencepiece model."""
    from sentencepiece import sentencepiece_model_pb2 as pb
    proto = pb.ModelProto()
    proto.ParseFromString(model.read_bytes())
    vocab = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = []
    for piece in proto.pieces:
        ways = [(piece.piece[:k], piece.piece[k:]) for k in range(1, len(piece.piece)) if piece.piece[:k] in vocab and piece.piece[k:] in vocab]
        merges += sorted(ways, key=lambda way: (vocab[way[0]], vocab[way[1]])) if piece.type == 1 else []
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([special("<unk>"), special("<s>"), special("</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


def unigram_folder(work):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=600, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(training_lines()[:2000], trainer)
    write_folder("unigram", tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"})


def main():
    import tempfile
    with tempfile.TemporaryDirectory() as work:
        byte_level_folders()
        sentencepiece_folders(Path(work))
        unigram_folder(Path(work))
    text_chat.write(OUT)


if __name__ == "__main__":
    main()
