"""What the demo's model makes of pictures of things it never saw: the questions, and the figures from its answers.

usage: held_out.py questions FOLDER     writes own, other, captions and kinds .jsonl, to be answered by vlmtune infer
       held_out.py figures FOLDER       reads <name>_answers.jsonl, prints the figures, writes FOLDER/held_out.html
       held_out.py figures FOLDER REPORT.html    puts the sheet of pictures into that report as well
"""
import base64
import collections
import html
import json
import random
import re
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "demo" / "data"
OTHERS = 2  # other pictures that each caption is tried with
KIND_QUESTION = "What kind of thing is it?"
SHEET = re.compile(r"<!-- held-out -->.*<!-- /held-out -->\n", re.DOTALL)


def held_out_rows():
    """[{"id", "image", "question", "caption", "kind"}] in a fixed mixed order."""
    rows = []
    for row in json.loads((DATA / "heldout.json").read_text(encoding="utf-8")):
        (question, caption), (_, kind) = [(row["conversations"][i]["value"], row["conversations"][i + 1]["value"]) for i in (0, 2)]
        rows.append({"id": row["id"], "image": row["image"], "caption": caption, "kind": kind,
                     "question": question.removeprefix("<image>\n")})
    random.Random(0).shuffle(rows)
    return rows


def questions(folder):
    rows = held_out_rows()
    folder.mkdir(parents=True, exist_ok=True)

    def captioned(row, picture):
        return {"id": f"{row['id']} with {picture['id']}", "image": picture["image"], "conversations": [
            {"from": "human", "value": "<image>\n" + row["question"]}, {"from": "gpt", "value": row["caption"]}]}

    write(folder / "own.jsonl", [captioned(row, row) for row in rows])
    write(folder / "other.jsonl", [captioned(row, rows[(number + step * len(rows) // (OTHERS + 1)) % len(rows)])
                                   for number, row in enumerate(rows) for step in range(1, OTHERS + 1)])
    def asked(row, question, answer):
        return {"id": row["id"], "image": row["image"], "prompt": question, "references": [answer]}

    write(folder / "captions.jsonl", [asked(row, row["question"], row["caption"]) for row in rows])
    write(folder / "kinds.jsonl", [asked(row, KIND_QUESTION, row["kind"]) for row in rows])


def figures(folder, report=None):
    rows = held_out_rows()
    own, other = answers(folder / "own_answers.jsonl", "loss"), answers(folder / "other_answers.jsonl", "loss")
    captions = answers(folder / "captions_answers.jsonl", "text")
    kinds = answers(folder / "kinds_answers.jsonl", "text")
    for row, caption, kind in zip(rows, captions, kinds, strict=True):
        row["answer"], row["kind_answer"] = caption["text"].strip(), kind["text"].strip()
        print(f"  {row['caption']:<34} -> {row['answer']:<34} {row['kind_answer']}"
              + ("" if row["kind_answer"] == row["kind"] else f"  (no: {row['kind']})"))
    lines = summary(rows, own, other)
    print("\n" + "\n".join(lines))
    sheet = picture_sheet(rows, lines)
    page = folder / "held_out.html"
    page.write_text(f"<!doctype html>\n<meta charset=utf-8>\n<title>Held-out pictures</title>\n{sheet}", encoding="utf-8")
    if report is not None and report.exists():
        text = SHEET.sub("", report.read_text(encoding="utf-8"))
        head, end, tail = text.rpartition("</body>")
        report.write_text(head + sheet + end + tail if end else text + sheet, encoding="utf-8")
        page = report
    print(f"pictures with their captions: {page}")


def summary(rows, own, other):
    own_loss, other_loss = token_mean(own), token_mean(other)
    per_row = [mean(other[number * OTHERS + k]["loss"] for k in range(OTHERS)) - row["loss"] for number, row in enumerate(own)]
    error = (sum((gap - mean(per_row)) ** 2 for gap in per_row) / len(per_row) ** 2) ** 0.5
    right = sum(row["kind_answer"] == row["kind"] for row in rows)
    majority, count = collections.Counter(row["kind"] for row in rows).most_common(1)[0]
    exact = sum(row["answer"] == row["caption"] for row in rows)
    return [
        f"{len(rows)} pictures of things that are in no training row:",
        f"loss of the true caption with its own picture {own_loss:.3f}, with another's {other_loss:.3f} nats per token; "
        f"its own is better for {sum(gap > 0 for gap in per_row)} captions "
        f"(mean gap of a caption {mean(per_row):.3f} +- {error:.3f})",
        f'"{KIND_QUESTION}" answered right for {right} of {len(rows)} ({right / len(rows):.0%}); '
        f'always "{majority}" would be right for {count} ({count / len(rows):.0%})',
        f"caption word for word right: {exact} of {len(rows)}",
    ]


def picture_sheet(rows, lines):
    cards = []
    for row in rows:
        data = base64.b64encode((DATA / "images" / row["image"]).read_bytes()).decode()
        mark = "&#10003;" if row["kind_answer"] == row["kind"] else "&#10007; " + html.escape(row["kind"])
        cards.append(f'<figure style="width:150px;margin:8px;font:12px sans-serif"><img width=150 alt="" '
                     f'src="data:image/jpeg;base64,{data}"><figcaption><b>{html.escape(row["answer"])}</b><br>'
                     f'true: {html.escape(row["caption"])}<br>{html.escape(row["kind_answer"])} {mark}</figcaption></figure>')
    text = "".join(f"<p>{html.escape(line)}</p>\n" for line in lines)
    return (f'<!-- held-out -->\n<section style="margin:16px"><h2>Held-out pictures</h2>\n{text}'
            f'<div style="display:flex;flex-wrap:wrap">\n' + "\n".join(cards) + "\n</div></section>\n<!-- /held-out -->\n")


def answers(path, key):
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for answer in found:
        if key not in answer:
            sys.exit(f"{path}: {answer.get('id')}: {answer.get('error', f'no {key}')}")
    return found


def token_mean(scores):
    return sum(s["loss"] * s["label_tokens"] for s in scores) / sum(s["label_tokens"] for s in scores)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["questions", folder]:
            questions(Path(folder))
        case ["figures", folder, *report]:
            figures(Path(folder), *map(Path, report[:1]))
        case _:
            sys.exit(__doc__)
