"""What TRL's SFTTrainer makes of rows of data files: what make_dataset_fixtures.py stores and check_trl.py compares.

Nothing is downloaded: the tokenizers are those of tests/fixtures/tokenizers, the templates our own of tests/fixtures/chat_templates, the
model a random one of a few numbers.
"""

import functools
import json
import logging
import os
import pathlib
import random
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")

import datasets
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from make_chat_fixtures import CONVERSATIONS, render  # which also fixes the day that templates see

warnings.simplefilter("ignore", FutureWarning)
logging.getLogger("transformers").setLevel(logging.ERROR)
torch.set_num_threads(1)

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZERS = ROOT / "tests/fixtures/tokenizers"
TEMPLATES = ROOT / "tests/fixtures/chat_templates"
IGNORED = -100

# bos_token and eos_token of each tokenizer
SPECIAL = {
    "smollm2": (None, "<|im_end|>"), "qwen2": (None, "<|im_end|>"), "gpt2": (None, "<|endoftext|>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama2": ("<s>", "</s>"), "mistral": ("<s>", "</s>"), "phi3": ("<s>", "<|endoftext|>"), "gemma": ("<bos>", "<eos>"),
}


@functools.cache
def tokenizer(name):
    bos, eos = SPECIAL[name]
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(TOKENIZERS / f"{name}.json")), bos_token=bos, eos_token=eos)


@functools.cache
def small_model(vocabulary):
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                                        num_key_value_heads=1))


def trainer(tokenizer, rows, template=None, model=None, **options):
    """An SFTTrainer with its data prepared. Rows stay what they are: a Dataset would put nulls where another row has a field."""
    tokenizer.chat_template = template
    config = SFTConfig(output_dir=os.path.join(tempfile.gettempdir(), "trl"), report_to=[], use_cpu=True, bf16=False,
                       activation_checkpointing=False, **{"max_length": None, "max_steps": 1, **options})
    return SFTTrainer(model=model or small_model(len(tokenizer)), args=config, processing_class=tokenizer,
                      train_dataset=datasets.IterableDataset.from_generator(lambda: iter(json.loads(json.dumps(rows)))))


def learned(expression, rest="'\\n'"):
    """An assistant's words and what may stand behind them, as TRL wants to see them."""
    return "{% generation %}{{ " + expression + " }}{% endgeneration %}" + ("{{ " + rest + " }}" if rest else "")


def by_role(head, words, rest):
    """`head`, `words`, `rest` of any message; the words are learned where they are the assistant's."""
    return ("{{ " + head + " }}{% if message['role'] == 'assistant' %}" + learned(words, None) + "{% else %}{{ " + words + " }}{% endif %}" +
            ("{{ " + rest + " }}" if rest else ""))


IM = "'<|im_start|>' + message.role + '\\n'"
# Our templates have no marks, and Snug finds the assistant's words itself. TRL needs them, so it gets the template with these changes, which
# do not change what the template writes.
MARKS = {
    "chatml": [("{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
                by_role(IM, "message['content'] + '<|im_end|>'", "'\\n'"))],
    "gemma2": [("{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
                by_role("'<start_of_turn>' + role + '\\n'", "message['content'] | trim + '<end_of_turn>'", "'\\n'"))],
    "phi35": [("{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}", "{{ '<|assistant|>\\n' }}" + learned("message['content'] + '<|end|>'"))],
    "llama3": [("{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}",
                "{{- '' }}" + by_role("'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'",
                                      "message['content'] | trim + '<|eot_id|>'", None)),
               ("{{- '{\"name\": \"' + tool_call.name + '\", ' }}\n            {{- '\"parameters\": ' }}\n            {{- tool_call.arguments | tojson }}\n"
                "            {{- \"}\" }}\n        {%- endif %}\n        {%- if builtin_tools is defined %}\n            {{- \"<|eom_id|>\" }}\n"
                "        {%- else %}\n            {{- \"<|eot_id|>\" }}\n        {%- endif %}",
                "{{- '' }}" + learned("'{\"name\": \"' + tool_call.name + '\", \"parameters\": ' + tool_call.arguments | tojson + '}<|eot_id|>'", None) +
                "{%- endif %}")],
    "mistral_nemo": [("{{- message[\"content\"] + eos_token}}", "{{- '' }}" + learned("message['content'] + eos_token", None)),
                     ("{{- \"[TOOL_CALLS][\" }}", "{{- '' }}{% generation %}{{- \"[TOOL_CALLS][\" }}"),
                     ("    {%- elif message[\"role\"] == \"assistant\" %}", "    {%- endgeneration %}{%- elif message[\"role\"] == \"assistant\" %}")],
    "qwen25": [("{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
                "{{- '' }}" + by_role(IM, "message.content + '<|im_end|>'", "'\\n'")),
               ("{{- '<|im_start|>' + message.role }}\n        {%- if message.content %}\n            {{- '\\n' + message.content }}\n        {%- endif %}",
                "{{- " + IM + " }}{% generation %}{{ message.content or '' }}"),
               ("{{- '\\n<tool_call>\\n{\"name\": \"' }}\n            {{- tool_call.name }}",
                "{{- '' if loop.first and not message.content else '\\n' }}{{- '<tool_call>\\n{\"name\": \"' }}{{- tool_call.name }}"),
               ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
                "        {{- '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}\n    {%- elif message.role == \"tool\" %}")],
    "qwen3": [("{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}",
               "{%- set content = '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') %}"),
              ("{{- '<|im_start|>' + message.role + '\\n' + content }}", ""),
              ("        {%- if message.tool_calls %}\n            {%- for", "        {{- " + IM + " }}{% generation %}{{ content }}\n"
               "        {%- if message.tool_calls %}\n            {%- for"),
              ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
               "        {{- '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}\n    {%- elif message.role == \"tool\" %}")],
}


def template(name):
    return (TEMPLATES / f"{name}.jinja").read_text()


def marked_template(name):
    text = template(name)
    for old, new in MARKS.get(name, []):
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text


def loss_of_batch(trainer, rows):
    """The mean loss that a step would take of rows of the prepared dataset in one batch, and over how many tokens."""
    batch = trainer.data_collator(rows)
    count = int(trainer._get_num_items_in_batch([batch], "cpu"))
    trainer.model.eval()
    with torch.no_grad():
        return trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=count).item(), count


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def texts(bos, eos):
    rows = ["Hello world.", "  in front and behind  ", f"mid {eos} dle", f"end{eos}", f"end{eos} ", "你好 😀 e\u0301\n\n\t"] + ([bos + "Hi"] if bos else [])
    return [{"text": text} for text in rows]


def completions(bos, eos):
    rows = [("The sky is", " blue."), ("Hello ", "world"), ("Count: 12", "345 67"), ("Q: why?\n", "\nBecause."), ("", "Alone"), ("Nothing", ""),
            ("a", "b" + eos)] + ([(bos + "Hi", " there")] if bos else [])
    return [{"prompt": prompt, "completion": completion} for prompt, completion in rows]


TEMPLATE_TOKENIZERS = {"chatml": "smollm2", "qwen25": "qwen2", "qwen3": "qwen2", "llama3": "llama3", "mistral_nemo": "mistral", "phi35": "phi3",
                       "gemma2": "gemma", "generation": "smollm2"}


def renders(name, row):
    """Whether the template takes the conversation; TRL ends where one does not, Snug says so of each row."""
    bos, eos = SPECIAL[TEMPLATE_TOKENIZERS[name]]
    return "text" in render(template(name), row["messages"], row.get("tools"), variables={"bos_token": bos or "", "eos_token": eos})


def conversations(name):
    rows = [CONVERSATIONS[key] for key in ("one", "system", "turns", "unicode", "quotes", "spaces", "empty", "thinking", "tools", "two_calls")]
    return [row for row in rows if renders(name, row)]


def chat_completions(name):
    turns = [user("a"), assistant("b"), user("c")]
    rows = [{"prompt": [user("What is 2 + 2?")], "completion": [assistant("4.")]}, {"prompt": turns, "completion": [assistant("d")]},
            {"prompt": turns[:1], "completion": [assistant("b"), user("c"), assistant("d")]}]
    tools = CONVERSATIONS["tools"]
    if renders(name, tools) and name not in ("chatml", "generation"):
        rows.append({"prompt": tools["messages"][:2], "completion": tools["messages"][2:], "tools": json.dumps(tools["tools"], ensure_ascii=False)})
    variables = {"qwen3": {"enable_thinking": False}, "llama3": {"date_string": "01 Jan 2025"}}
    if name in variables:
        rows.append({**rows[0], "chat_template_kwargs": variables[name]})
    return rows


def groups():
    """Rows of one format each, the tokenizer and the template of the model, and what TRL is told (and what that is in Snug)."""
    def group(tokenizer, rows, template=None, train_on_inputs=False, **options):
        return {"tokenizer": tokenizer, "template": template, "trl": options, "train_on_inputs": train_on_inputs, "rows": rows}

    for name, (bos, eos) in SPECIAL.items():
        yield group(name, texts(bos, eos))
        yield group(name, completions(bos, eos))
    yield group("llama3", completions(*SPECIAL["llama3"]), None, True, completion_only_loss=False)
    for template, name in TEMPLATE_TOKENIZERS.items():
        yield group(name, conversations(template), template, assistant_only_loss=True)
        yield group(name, chat_completions(template), template)
    yield group("qwen2", conversations("qwen25")[:2], "qwen25", True)
    yield group("llama3", chat_completions("llama3")[:2], "llama3", True, completion_only_loss=False)
    yield group("smollm2", [{"conversations": [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Hello!"}]}], "chatml", True)


def prepared(group, **more):
    """[(ids, learned)] of the rows of a group."""
    options = {**group["trl"], **more}
    chat = group["template"] and (marked_template if options.get("assistant_only_loss") else template)(group["template"])
    made = trainer(tokenizer(group["tokenizer"]), group["rows"], chat, **options)
    return [(list(row["input_ids"]), [int(label != IGNORED) for label in row["labels"]]) for row in made.train_dataset]


def spans_of(bits):
    """[[begin, end], …] of the ones."""
    edges = [at for at, (before, bit) in enumerate(zip([0] + bits, bits + [0])) if before != bit]
    return [list(edge) for edge in zip(edges[::2], edges[1::2])]


TWO_BEGINNINGS = "the text spells its beginning of text out: TRL puts a second one before it"
APART = ("the prompt's own ids do not begin those of prompt and completion: TRL trains on a prompt that is cut off, which nobody asks for; Snug "
         "encodes the completion apart")
BEHIND = "behind the end of the turn stands white space, or an end of text, that nobody waits for: TRL learns it, too"
BETWEEN = "between the assistant's turns are others' in the completion: TRL learns these, too, unless it is told assistant_only_loss"
SWALLOWED = "the token that opens the turn swallows the white space that the answer begins with: transformers takes it for a part of the answer"


def snug_differs(group, row, ids, learned, assistant_learned):
    """What Snug makes of a row where it does not do what TRL does: (ids, learned, why), or None. By the library's own ids."""
    encode = lambda text: tokenizer(group["tokenizer"])(text, add_special_tokens=False)["input_ids"]
    bos, eos = SPECIAL[group["tokenizer"]]
    end = encode(eos)
    why = None
    if isinstance(row.get("prompt"), str):
        prompt, both = encode(row["prompt"]), encode(row["prompt"] + row["completion"])
        if both[:len(prompt)] != prompt:
            completion = encode(row["completion"])
            if tokenizer(group["tokenizer"]).convert_ids_to_tokens(encode("a"))[0].startswith("▁"):  # it puts a space before a text, but not here
                before = "a" if row["completion"].startswith("\n") else "\n"
                completion = encode(before + row["completion"])[len(encode(before)):]
            start = [] if bos is None else encode(bos)
            ids = start + prompt + completion + (end if completion[-1:] != end else [])
            learned = [int(group["train_on_inputs"])] * len(start + prompt)
            learned += [1] * (len(ids) - len(learned))
            why = APART
    if bos and ids[:2] == 2 * encode(bos):
        ids, learned, why = ids[1:], learned[1:], TWO_BEGINNINGS
    if isinstance(row.get("prompt"), list) and not group["train_on_inputs"] and learned != assistant_learned:
        learned, why = assistant_learned, BETWEEN if any(m["role"] != "assistant" for m in row["completion"]) else BEHIND
    if group["tokenizer"] == "phi3":
        opens = encode("<|assistant|>")[0]
        if any(bit and token == opens for token, bit in zip(ids, learned)):
            learned, why = [bit if token != opens else 0 for token, bit in zip(ids, learned)], SWALLOWED
    return why and (ids, learned, why)


BATCH_LENGTH = 16  # ids


def token_rows():
    """Rows of ids that end in the id that is also padding. Two are longer than a batch; of one of these nothing that is learned is left."""
    rng = random.Random(1)
    rows = []
    for size in (3, 5, 12, 9, 8, BATCH_LENGTH, 20, 18):
        ids = [rng.randrange(256) for _ in range(size - 1)] + [256]
        learned = [at + 1 == size or (size != 18 and rng.random() < 0.6) for at in range(size)]
        rows.append({"input_ids": ids, "labels": [token if bit else IGNORED for token, bit in zip(ids, learned)]})
    rows[0]["labels"], rows[1]["labels"] = rows[0]["input_ids"], rows[1]["input_ids"]
    return rows


def step(model_name, rows, packing):
    """All rows in one batch, as a step takes them: what the collator makes, the loss, the tokens it is divided by, the gradient's norm."""
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({str(id): id for id in range(257)}, unk_token="0")), eos_token="256")
    model = AutoModelForCausalLM.from_pretrained(ROOT / "tests/fixtures" / model_name, dtype=torch.float32)
    made = trainer(words, rows, model=model, max_length=BATCH_LENGTH, packing=packing)
    assert made.processing_class.pad_token_id == words.eos_token_id
    batch = made.data_collator(list(made.train_dataset))
    model.eval()  # no dropout
    count = made._get_num_items_in_batch([batch], "cpu")
    loss = made.compute_loss(model, dict(batch), num_items_in_batch=count)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    made.model.zero_grad()
    columns = ("input_ids", "labels") + (("position_ids",) if packing else ())
    return {**{column: batch[column].tolist() for column in columns}, "divided_by": int(count), "loss": loss.item(), "grad_norm": norm.item()}
