"""Training and held-out rows in LLaVA's JSON format.

A thing is held out as a whole: all stamps with its name, and no emoji of that name stays in training either.
"""
import json
import re

QUESTIONS = ["What is in this picture?", "Describe the image briefly.", "What does this image show?", "What can you see here?"]
KIND_QUESTION = "What kind of thing is it?"
HELD_OUT_EVERY = 7  # of the things of each kind


def write(out, stamps, emoji):
    training, held_out = split(stamps, emoji)
    dump(out / "pretrain.json", [pretrain_row(record) for record in training])
    dump(out / "finetune.json", [finetune_row(record, QUESTIONS[number // 2 % len(QUESTIONS)], kind_first=number % 2 == 1)
                                 for number, record in enumerate(training)])
    dump(out / "heldout.json", [finetune_row(record, QUESTIONS[0]) for record in held_out])
    return len(training), len(held_out)


def split(stamps, emoji):
    """-> (training records, held-out records); the held-out ones are stamps."""
    things = {}
    for record in stamps:
        things.setdefault((record["kind"], thing(record["caption"])), []).append(record)
    seen, held_names = {}, set()
    for kind, name in things:
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] % HELD_OUT_EVERY == HELD_OUT_EVERY // 2:
            held_names.add(name)
    training = [record for record in stamps + emoji if thing(record["caption"]) not in held_names]
    return training, [record for record in stamps if thing(record["caption"]) in held_names]


def thing(caption):
    """The caption without article and full stop: what two pictures of the same thing share."""
    return re.sub(r"^(a|an|the|some) ", "", caption.lower().rstrip("."))


def pretrain_row(record):
    return row(record, [("<image>", record["caption"])])


def finetune_row(record, question, kind_first=False):
    """Two turns, in either order, so that both questions are also asked of the picture alone."""
    turns = [(question, record["caption"])]
    if record["kind"]:
        turns.insert(0 if kind_first else 1, (KIND_QUESTION, f"It is {record['kind']}."))
    turns[0] = ("<image>\n" + turns[0][0], turns[0][1])
    return row(record, turns)


def row(record, turns):
    conversations = []
    for question, answer in turns:
        conversations += [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return {"id": record["image"].rpartition(".")[0], "image": record["image"], "conversations": conversations}


def dump(path, rows):
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
