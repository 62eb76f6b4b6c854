#!/usr/bin/env python3
"""Compares the program with TRL: what `snug data inspect` counts in rows of data, and the losses of a run.

Compared, each with a line of its own; the exit code is 1 when one is not as expected:
  rows       the groups of trl_data.py: samples, positions and learned tokens of each row
  templates  the chat templates that TRL comes with, where it has one with marks around the assistant's words and one without: the text that
             is learned, but for white space at its ends, which some marks enclose. OTHERWISE says where Snug does something else, and why
  run        twelve updates on rows of text and of prompts with completions, from the same weights, padded and packed: the loss that each
             prints

    ENVIRONMENT/bin/python tools/check_trl.py --program build/release/snug
"""

import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import trl
from transformers import LlamaConfig, LlamaForCausalLM

import trl_data

LARGEST_DIFFERENCE = 2e-5  # of losses, relative
UPDATES = 12
LEARNING_RATE = 1e-3
LENGTH = 160  # ids of a window


class Report:
    def __init__(self):
        self.passed = True

    def line(self, passed, what):
        self.passed = self.passed and passed
        print(f"{'as expected' if passed else 'DIFFERENT  '}  {what}", flush=True)


def model_directory(path, tokenizer, bos, eos, template):
    """A Llama of a few numbers with a tokenizer of tests/fixtures."""
    torch.manual_seed(0)
    size = len(trl_data.tokenizer(tokenizer))
    LlamaForCausalLM(LlamaConfig(vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None)).save_pretrained(path)
    (path / "tokenizer.json").write_text((trl_data.TOKENIZERS / f"{tokenizer}.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({key: value for key, value in (("bos_token", bos), ("eos_token", eos)) if value}))
    if template:
        (path / "chat_template.jinja").write_text(template)
    return path


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


class Program:
    def __init__(self, path, scratch):
        self.path, self.scratch, self.directories = path, scratch, 0

    def directory(self):
        self.directories += 1
        path = self.scratch / str(self.directories)
        path.mkdir()
        return path

    def run(self, *words):
        return subprocess.run([self.path, *map(str, words)], capture_output=True, text=True)

    def inspect(self, rows, model, *words):
        """What it tells of rows; a text where it refuses them."""
        file = write_rows(model / "rows.jsonl", rows)
        run = self.run("data", "inspect", file, "--model", model, "--data_cache", model / "cache", "--samples", 1000, "--json", *words)
        return json.loads(run.stdout) if run.returncode == 0 else run.stderr.strip()


def check_rows(report, program):
    for group in trl_data.groups():
        bos, eos = trl_data.SPECIAL[group["tokenizer"]]
        template = group["template"] and trl_data.template(group["template"])
        model = model_directory(program.directory(), group["tokenizer"], bos, eos, template)
        assistant = [None] * len(group["rows"])
        if isinstance(group["rows"][0].get("prompt"), list):
            assistant = [learned for _, learned in trl_data.prepared(group, assistant_only_loss=True)]
        expected, otherwise = [], 0
        for row, (ids, learned), words in zip(group["rows"], trl_data.prepared(group), assistant, strict=True):
            if differs := trl_data.snug_differs(group, row, ids, learned, words):
                ids, learned, otherwise = differs[0], differs[1], otherwise + 1
            expected.append((len(ids) - 1, sum(learned[1:])))
        found = program.inspect(group["rows"], model, "--train_on_inputs", str(group["train_on_inputs"]).lower())
        counts = found if isinstance(found, str) else [(sample["positions"], sample["learned"]) for sample in found["shown"]]
        name = " ".join([group["tokenizer"], group["template"] or "", next(iter(group["rows"][0])), json.dumps(group["trl"])])
        passed = counts == expected
        report.line(passed, f"rows: {name}: {len(expected)} rows, {otherwise} of them not as TRL's, {sum(n for _, n in expected)} learned tokens" +
                    ("" if passed else f"; snug {counts}, expected {expected}"))


# Conversations whose rows Snug refuses: parts that are no text, a content that is null without calls, and an answer before any question.
REFUSED_ROWS = ("parts", "null", "assistant_first")
SHOWN = 1000  # tokens of a sample that the program shows
THOUGHT = "the generation prompt opens a thought: what follows it is learned, and turns that do not begin with it are refused"
# Why all or some conversations are learned otherwise with these templates.
OTHERWISE = {
    "deepseek_r1_distill": THOUGHT, "deepseekv3": THOUGHT, "nemotron_3_5_lightning": THOUGHT, "nemotron_3_nano": THOUGHT, "nemotron_3_super": THOUGHT,
    "nemotron_3_ultra": THOUGHT, "qwen3_5_nothink": THOUGHT, "qwen3_5_think": THOUGHT, "qwen3_6": THOUGHT, "qwen3_8": THOUGHT,
    "diffusion_gemma": "results of tools are written within the turn of their call: they are not learned, or the conversation is refused",
    "glm4moe": "the next turn's beginning ends an answer: TRL's own template has one more, to be learned",
    "gptoss": "TRL learns the generation prompt, too", "muse_glimmer": "TRL learns the generation prompt, too",
    "phi3": "TRL learns the end of text behind the last end of turn, too", "phi3_5": "TRL learns the end of text behind the last end of turn, too",
    "qwen3": "TRL's own template writes thoughts where the model's does not",
}


def check_templates(report, program):
    tokenizer = trl_data.tokenizer.__wrapped__("smollm2")  # one of its own
    bos, eos = "<|endoftext|>", "<|im_end|>"
    tokenizer.bos_token = bos
    rows = [row for key, row in trl_data.CONVERSATIONS.items()
            if key not in REFUSED_ROWS and "variables" not in row and any(message["role"] == "assistant" for message in row["messages"])]
    for marked in sorted((pathlib.Path(trl.__file__).parent / "chat_templates").glob("*_training.jinja")):
        name = marked.name.removesuffix("_training.jinja")
        template = marked.with_name(f"{name}.jinja").read_text()
        model = model_directory(program.directory(), "smollm2", bos, eos, template)
        same, different = 0, []
        for row in rows:
            try:  # TRL takes its marked template by itself where the tokenizer has the one without
                [sample] = trl_data.trainer(tokenizer, [row], template, assistant_only_loss=True).train_dataset
            except Exception:  # whatever a template raises
                continue
            ids = sample["input_ids"][:SHOWN]
            spans = trl_data.spans_of([int(label != trl_data.IGNORED) for label in sample["labels"][:SHOWN]])
            expected = [tokenizer.decode(ids[begin:end]).strip() for begin, end in spans]
            if not expected:
                continue
            found = program.inspect([row], model, "--max_length", 2000)
            if isinstance(found, str):
                different.append("refused: …" + found[-160:])
                continue
            learned = [part["text"].strip() for part in found["shown"][0]["parts"] if part["learned"]]
            if learned == expected:
                same += 1
            else:
                different.append(f"snug {learned}, TRL {expected}")
        why = OTHERWISE.get(name)
        report.line(bool(different) == bool(why), f"template {name}: {same} conversations as TRL's, {len(different)} not" +
                    (f": {why}" if why else "".join("\n      " + d for d in different)))


def trl_losses(model, tokenizer, rows, template, batch, options):
    """Of each update."""
    trainer = trl_data.trainer(
        trl_data.tokenizer(tokenizer), rows, template, model=LlamaForCausalLM.from_pretrained(model, dtype=torch.float32), max_steps=UPDATES,
        max_length=LENGTH, per_device_train_batch_size=batch, learning_rate=LEARNING_RATE, lr_scheduler_type="constant", logging_steps=1,
        save_strategy="no", disable_tqdm=True, **options)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def check_run(report, program):
    """Windows stay in the order of the rows; packed, all of them are in one batch, since the two do not put the same ones together."""
    trained = [("completions", "llama2", None, {}), ("conversations", "smollm2", "generation", {"assistant_only_loss": True})]
    for kind, tokenizer, template, options in trained:
        bos, eos = trl_data.SPECIAL[tokenizer]
        rows = trl_data.completions(bos, eos) if template is None else trl_data.conversations(template)
        group = {"tokenizer": tokenizer, "template": template, "trl": options, "train_on_inputs": False, "rows": rows}
        rows = [row for row, sample in zip(rows, trl_data.prepared(group)) if not trl_data.snug_differs(group, row, *sample, None)]
        source = template and trl_data.template(template)
        model = model_directory(program.directory(), tokenizer, bos, eos, source)
        for packing in (False, True):
            words = ["--max_length", LENGTH - 1, "--packing", str(packing).lower()]
            windows = program.inspect(rows, model, *words)["windows"]
            output = model / f"output_{packing}"
            run = program.run("train", "--model", model, "--train_file", model / "rows.jsonl", "--data_cache", model / "cache",
                              "--output_dir", output, "--shuffle", "false", "--max_steps", UPDATES, "--learning_rate", LEARNING_RATE,
                              "--lr_scheduler_type", "constant", "--per_device_train_batch_size", windows if packing else 2,
                              "--logging_steps", 1, "--costs", "roofline", *words)
            name = f"run: {kind}, {'packed' if packing else 'padded'}"
            if run.returncode != 0:
                report.line(False, f"{name}: {run.stderr.strip()}")
                continue
            metrics = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
            ours = [line["loss"] for line in metrics if "loss" in line]
            theirs = trl_losses(model, tokenizer, rows, source, len(rows) if packing else 2, {**options, "packing": packing})
            largest = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
            report.line(largest <= LARGEST_DIFFERENCE, f"{name}: {len(rows)} rows, {windows} windows, {len(ours)} updates, losses {ours[0]:.6f} to "
                        f"{ours[-1]:.6f}, at most {largest:.1e} from TRL's")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    program = parser.parse_args().program.resolve()
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        program = Program(program, pathlib.Path(scratch))
        check_rows(report, program)
        check_templates(report, program)
        check_run(report, program)
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
