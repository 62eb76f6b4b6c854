"""Makes tests/fixtures/dataset with transformers, TRL and the small tokenizers of tests/fixtures/tokenizers: ids and masks that Snug's rows of
data files must get.

    ENVIRONMENT/bin/python tools/make_dataset_fixtures.py

spans.json   texts with spans of bytes, the library's ids, and which of them have a byte of a span (by the library's offsets)
chats.json   conversations, templates with {% generation %}, and what apply_chat_template(return_assistant_tokens_mask=True) gives
trl.json     rows of data files and what TRL's SFTTrainer trains on: ids, which of them are learned, and with models of tests/fixtures the loss
"""

import json
import pathlib
import random
import unicodedata

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import trl_data

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZERS = ROOT / "tests/fixtures/tokenizers"
OUT = ROOT / "tests/fixtures/dataset"

PIECES = [
    "Hello", " world", " ", "  ", "\n", "\n\n", "\t", "don't", "12345", " 3.14", "你好", "世界", "😀", "👨‍👩‍👧", "é", "e\u0301", "Ångström", "…", "▁", "<0x41>",
    "\u00a0", "naïve", "가", "a" * 20, "def f(x):\n    return x", "!?", "ﬁ", "İ", "\u0338", "\r\n",
]


def untrimmed(name):
    """The tokenizer with offsets that contain the white space of a token."""
    state = json.loads((TOKENIZERS / f"{name}.json").read_text())

    def visit(value):
        if isinstance(value, dict):
            if "trim_offsets" in value:
                value["trim_offsets"] = False
            for child in value.values():
                visit(child)
        elif isinstance(value, list):
            for child in value:
                visit(child)

    visit(state)
    return Tokenizer.from_str(json.dumps(state)), [t["content"] for t in state["added_tokens"]]


def spans():
    cases = []
    for path in sorted(TOKENIZERS.glob("*.json")):
        if path.stem in ("expected",):
            continue
        tokenizer, added = untrimmed(path.stem)
        rng = random.Random(path.stem)
        for _ in range(32):
            text, borders = "", [0]
            for _ in range(rng.randint(2, 24)):
                text += rng.choice(added) if rng.random() < 0.2 else rng.choice(PIECES)
                # At random places between characters.
                borders.append(len(text) - (rng.randint(0, 3) if rng.random() < 0.3 else 0))
            borders = sorted({min(max(b, 0), len(text)) for b in rng.sample(borders, min(len(borders), 2 * rng.randint(1, 4)))})
            chosen = [(borders[i], borders[i + 1]) for i in range(0, len(borders) - 1, 2)]
            if any(unicodedata.combining(text[b]) for b in borders if b < len(text)):
                continue  # within a character that a normalizer makes
            tokens = [(at, at + len(token)) for token in added for at in range(len(text)) if text.startswith(token, at)]
            if any(begin < b < end for b in borders for begin, end in tokens):
                continue  # within an added token
            encoding = tokenizer.encode(text, add_special_tokens=False)
            # White space that an added token swallows belongs to no token.
            offsets = [(b + len(text[b:e]) - len(text[b:e].lstrip()), b + len(text[b:e].rstrip())) if text[b:e].strip() in added else (b, e)
                       for b, e in encoding.offsets]
            mask = [int(any(b < e2 and e > b2 for b2, e2 in chosen)) for b, e in offsets]
            size = lambda end: len(text[:end].encode())
            cases.append({"tokenizer": path.stem, "text": text, "spans": [[size(b), size(e)] for b, e in chosen], "ids": encoding.ids, "mask": mask})
    return cases


CHATML = (
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}{{ message.role + ':\\n\\n' }}{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content | trim }}{{ '<|eot_id|>' }}{% endgeneration %}{% else %}{{ message.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
LLAMA2 = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ bos_token + '[INST] ' + message.content + ' [/INST]' }}"
    "{% elif message.role == 'assistant' %}{% generation %}{{ ' ' + message.content + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
PHI3 = (
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ '<|assistant|>\\n' }}{% generation %}{{ message.content + '<|end|>' }}"
    "{% endgeneration %}{{ '\\n' }}{% else %}{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}{% endif %}{% endfor %}")
GEMMA = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}{{ 'model\\n' }}{% generation %}{{ message.content | trim + eos_token }}"
    "{% endgeneration %}{{ '\\n' }}{% else %}{{ message.role + '\\n' + message.content | trim + '\\n' }}{% endif %}{% endfor %}")

CHATS = [
    [{"role": "user", "content": "Hi, who are you?"}, {"role": "assistant", "content": "I'm a small model. 你好 😀!"}],
    [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two\n\n"}, {"role": "user", "content": "  Three  "},
     {"role": "assistant", "content": "\n  Four: def f(x):\n    return 3.14"}],
    [{"role": "user", "content": "Write <|im_end|> and </s>, please."}, {"role": "assistant", "content": "e\u0301 <|im_end|> </s>?"},
     {"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
]


def chats():
    cases = []
    for name, template, bos, eos in [("smollm2", CHATML, None, "<|im_end|>"), ("qwen2", CHATML, None, "<|im_end|>"),
                                     ("llama3", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"), ("llama2", LLAMA2, "<s>", "</s>"),
                                     ("mistral", LLAMA2, "<s>", "</s>"), ("phi3", PHI3, "<s>", "<|end|>"), ("gemma", GEMMA, "<bos>", "<eos>")]:
        raw, _ = untrimmed(name)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos, eos_token=eos)
        variables = {key: value for key, value in (("bos_token", bos), ("eos_token", eos)) if value}
        for messages in CHATS:
            out = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            # Phi-3's special tokens swallow white space. Where an answer begins with some, transformers takes the token that opens the turn
            # for a part of the answer; Snug does not.
            opens = raw.token_to_id("<|assistant|>")
            out["assistant_masks"] = [0 if token == opens else bit for token, bit in zip(out["input_ids"], out["assistant_masks"])]
            cases.append({"tokenizer": name, "template": template, "variables": variables, "messages": messages,
                          "text": tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False),
                          "ids": list(out["input_ids"]), "mask": list(out["assistant_masks"])})
    return cases


def trl_groups():
    cases = []
    for group in trl_data.groups():
        learned_of_assistant = [None] * len(group["rows"])
        if isinstance(group["rows"][0].get("prompt"), list):
            learned_of_assistant = [learned for _, learned in trl_data.prepared(group, assistant_only_loss=True)]
        made = []
        for row, (ids, learned), assistant in zip(group["rows"], trl_data.prepared(group), learned_of_assistant, strict=True):
            made.append({"ids": ids, "learned": trl_data.spans_of(learned)})
            if differs := trl_data.snug_differs(group, row, ids, learned, assistant):
                made[-1]["snug"] = {"ids": differs[0], "learned": trl_data.spans_of(differs[1]), "why": differs[2]}
        bos, eos = trl_data.SPECIAL[group["tokenizer"]]
        cases.append({**group, "bos_token": bos, "eos_token": eos, "samples": made})
    return cases


def trl_batches():
    rows = trl_data.token_rows()
    return {"length": trl_data.BATCH_LENGTH, "rows": rows,
            "steps": [{"model": model, "packing": packing, **trl_data.step(model, rows, packing)}
                      for model in ("gpt2_tied", "llama_gqa_tied") for packing in (False, True)]}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def lines(cases):
    return "[\n" + ",\n".join(map(compact, cases)) + "\n]"


def write(name, text):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(text + "\n")


if __name__ == "__main__":
    write("spans.json", lines(spans()))
    write("chats.json", lines(chats()))
    write("trl.json", '{"rows":' + lines(trl_groups()) + ',"batches":' + compact(trl_batches()) + "}")
