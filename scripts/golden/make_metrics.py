"""metrics/golden.json: scores of made-up answers by the public evaluation codes: pycocoevalcap 1.2 (its tokenizer is Java) and lmms-eval 0.7.3
(VQA, ANLS, POPE). Needs java, and: pip install numpy loguru sacrebleu && pip install --no-deps pycocoevalcap==1.2 lmms-eval==0.7.3"""
import contextlib
import importlib.util
import io
import json
import os
import random
import sys
import types
from importlib.metadata import version
from pathlib import Path

ROOT = Path(os.environ.get("GOLDEN_ROOT") or Path(__file__).resolve().parents[2] / "tests" / "golden")
# lmms-eval's modules one by one: its packages would import every model.
FOLDER = Path(importlib.util.find_spec("lmms_eval").origin).parent
for name in ("lmms_eval", "lmms_eval.tasks", "lmms_eval.api", "lmms_eval.api.registry"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(FOLDER.parent / name.replace(".", "/"))]
sys.modules[name].register_metric = sys.modules[name].register_aggregation = lambda *_, **__: lambda function: function

from lmms_eval.api.metrics import anls
from lmms_eval.tasks._task_utils.vqa_eval_metric import EvalAIAnswerProcessor
from lmms_eval.tasks.pope import utils as pope
from lmms_eval.tasks.vqav2.utils import vqav2_process_results
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

SENTENCES = """A man's dog isn't at the door; it's "red" (or so).
The U.S. flag costs $5.50 -- or 1,000 yen, e.g. 50% off...
I can't, cannot, won't, gonna, wanna, gimme, lemme, 'tis, 'twas
A well-known black-and-white T-shirt and/or 3/4 cup at 10:30 a.m. by Mr. Smith's
E-mail me at a.b@c.com or http://x.y/z?q=1 #hash @user
hello!!! what??? yes!? ok... The end. The end.The next
dogs' bones, the 1990's and 1990s; '90s rock `n' roll rock'n'roll
don’t “quote” ‘single’ – dash — em… café naïve 你好 世界
AT&T R&B black&white 5'10" 6ft 3-D x-ray
<img> tag [box] {curly} / slash \\ back * star + plus = eq ~ ^ | _under_score_
o'clock ma'am I'd've couldn't've he'll they're we've y'all
1st 2nd 3rd 10,5 1.5 .5 -5 +3 50cm 5% 3.14.15
No. 5 vs. cats, etc. St. Louis Jr. Inc. approx. 5 and no. It is so
wasn't weren't ain't shan't mustn't hasn't Don't DON'T can't. can't, isn't?
U.S.A. U.K. D.C. a.m p.m. A.M. Ph.D. M.D. 3 p.m.
mother-in-law a - b a -b a- b a—b w/ w/o b/w his/her km/h 24/7 9/11
½ cup 5° 20°C 6'2" 100's 70's '70s mid-1980s €5 50¢
O'Brien d'ye 'em ol' goin' James' boys' it's' 'hello' ''hi'' ``hi``""".split("\n")
WORDS = """a an the man woman dog cat red small big plate pizza street sign train bus on in with of near and two three standing sitting holding riding eating
table clock reads 10:30 10:30am isn't can't it's dog's T-shirt black-and-white well-lit fire hydrant 50% $5 U.S. Mr. St. No yes o'clock""".split()
ANSWERS = """yes no Yes. No, 2 two Two. none 10 ten the_cat a,dog 1,000 1000 1,000.5 3.5 .5 dont don't Don't youre red/blue red,blue red red. dark-red (red) [red] "red"
it's its lets let's somebody'd the a an at&t what? ok! 10:30 10.30 $5 5% café Café x-ray""".split() + ["red and blue", "a red  car", "the man's", "on , off", "up - down",
            " yes ", "yes\n", "a\tb", "5 , 6", "St. Louis", "Coca-Cola co.", "would have", "couldntve", "not 've", "", "?", "\"stop\" sign"]
NORMALIZER = EvalAIAnswerProcessor()


def normalized(answer):
    answer = answer.replace("\n", " ").replace("\t", " ").strip()
    return NORMALIZER.process_digit_article(NORMALIZER.process_punctuation(answer))


def tokenized(texts):
    captions = {i: [{"caption": text}] for i, text in enumerate(texts)}
    return [line for line, in PTBTokenizer().tokenize(captions).values()]


def caption(pick):
    words = [pick.choice(WORDS) for _ in range(pick.randint(0, 11))] + ["table"]  # the tokenizer looks beyond the end of a line that ends with "a."
    if pick.random() < 0.3:
        words[pick.randrange(len(words))] += pick.choice([",", ";", ":"])
    text = " ".join(words)
    return (text[0].upper() + text[1:] if pick.random() < 0.6 else text) + pick.choice(["", ".", ".", "!", "?"])


def changed(pick, text):
    words = text.split()
    for _ in range(pick.randint(0, 4)):
        at = pick.randrange(len(words))
        words[at:at + pick.randint(0, 2)] = [pick.choice(WORDS) for _ in range(pick.randint(0, 2))]
        words = words or [pick.choice(WORDS)]
    return " ".join(words)


def rows_of_captions(pick, count, most_references):
    rows = []
    for _ in range(count):
        text = caption(pick)
        rows.append({"answer": changed(pick, text), "references": [changed(pick, text) for _ in range(pick.randint(1, most_references))]})
    return rows


def rows_of_answers(pick, count, references):
    rows = []
    for _ in range(count):
        few = [pick.choice(ANSWERS) for _ in range(pick.randint(1, 4))]
        rows.append({"answer": pick.choice(few + ANSWERS[:6]), "references": [pick.choice(few) for _ in range(references)]})
    return rows


def rows_of_yes_and_no(pick, count):
    says = ["Yes", "yes", "No", "no", "Yes, there is.", "No, there is not.", "There is no dog.", "It is not there", "Nothing. No", "Yes. no", "There isn't", "not,", "a cat"]
    return [{"answer": pick.choice(says), "references": [pick.choice(["yes", "no", "Yes", "No."])]} for _ in range(count)]


def mean(values):
    return sum(values) / len(values)


def caption_scores(rows):
    lines = iter(tokenized([text for row in rows for text in (row["answer"], *row["references"])]))
    answers, references = {}, {}
    for i, row in enumerate(rows):
        answers[i] = [next(lines)]
        references[i] = [next(lines) for _ in row["references"]]
    with contextlib.redirect_stdout(io.StringIO()):
        return {"bleu4": float(Bleu(4).compute_score(references, answers)[0][3]), "rouge_l": float(Rouge().compute_score(references, answers)[0]),
                "cider": float(Cider().compute_score(references, answers)[0])}


def answer_scores(rows):
    def exact(row):  # Qwen-VL's evaluate_vqa.py
        return max(float(row["answer"].strip().lower() == reference.strip().lower()) for reference in row["references"])

    def vqa(row):
        document = {"question_id": 0, "answers": [{"answer": text, "answer_id": i} for i, text in enumerate(row["references"])]}
        return vqav2_process_results(document, [row["answer"]])["exact_match"]

    return {"exact_match": mean([exact(row) for row in rows]), "anls": mean([anls(row["references"], [row["answer"]])["anls"] for row in rows]),
            "vqa_accuracy": float(mean([vqa(row) for row in rows]))}


def yes_no_scores(rows):
    def read(answer):  # POPE's evaluate.py
        words = answer.split(".")[0].replace(",", "").split(" ")
        return "no" if "No" in words or "not" in words or "no" in words else "yes"

    read_rows = [(read(row["answer"]), row["references"][0].lower().strip(" .")) for row in rows]
    results = [{"prediction": said, "ground_truth": right, "score": float(said == right)} for said, right in read_rows]
    return {"pope_accuracy": pope.pope_aggregate_accuracy(results), "pope_precision": pope.pope_aggregate_precision(results),
            "pope_recall": pope.pope_aggregate_recall(results), "pope_f1": pope.pope_aggregate_f1_score(results),
            "pope_yes_ratio": mean([float(said == "yes") for said, _ in read_rows])}


def main():
    pick = random.Random(20250)
    sentences = SENTENCES + [caption(pick) for _ in range(200)]
    captions, answers, yes_no = rows_of_captions(pick, 60, 5), rows_of_answers(pick, 120, 10), rows_of_yes_and_no(pick, 80)
    odd = [{"answer": "", "references": ["a dog"]}, {"answer": "...", "references": ["!", "a"]}, {"answer": "a", "references": ["a"]}, {"answer": ".", "references": ["?"]},
           {"answer": "a a a a a", "references": ["a a", "a a a a b c"]}]
    pairs = rows_of_answers(pick, 60, 3) + [{"answer": "ab", "references": ["abcd", "xyzw"]}, {"answer": "Ünï", "references": ["ÜNÏ x", "un"]}]
    golden = {"versions": {name: version(name) for name in ("pycocoevalcap", "lmms-eval")},
              "tokenized": [[text, line.split()] for text, line in zip(sentences, tokenized(sentences))],
              "normalized": [[text, normalized(text)] for text in ANSWERS],
              "cases": {"captions": {"rows": captions, "scores": caption_scores(captions)},
                        "one caption": {"rows": captions[:1], "scores": caption_scores(captions[:1])},
                        "odd captions": {"rows": odd, "scores": caption_scores(odd)},
                        "ten answers": {"rows": answers, "scores": answer_scores(answers) | caption_scores(answers)},
                        "three answers": {"rows": pairs, "scores": answer_scores(pairs)},
                        "yes or no": {"rows": yes_no, "scores": yes_no_scores(yes_no)}}}
    (ROOT / "metrics").mkdir(parents=True, exist_ok=True)
    (ROOT / "metrics" / "golden.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
