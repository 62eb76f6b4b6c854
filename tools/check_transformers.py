#!/usr/bin/env python3
"""Loads a model directory that Snug wrote in transformers, unchanged, and prints the loss on a text or on given tokens.

A development check: it fails when transformers misses a tensor, finds one too many, or gives a loss that is not finite.
Prints one JSON object. Usage: check_transformers.py DIR [--text TEXT | --text_file FILE | --tokens 1,2,3 | --batch FILE]
"""

import argparse
import json
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

IGNORED = -100
# Snug's byte tokenizer: ids 0–255 are the bytes, 256 ends a text.
END_OF_TEXT = 256


def tokens_of_text(directory, text):
    """Token ids by the directory's tokenizer.json; by bytes where it has none."""
    path = directory / "tokenizer.json"
    if path.exists():
        from tokenizers import Tokenizer
        return Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    return list(text.encode()) + [END_OF_TEXT]


def windows(ids, length):
    """(tokens, targets) windows over one stream: targets are one further on; the last window is padded with ignored ones."""
    for first in range(0, max(len(ids) - 1, 0), length):
        tokens, targets = ids[first:first + length], ids[first + 1:first + length + 1]
        tokens = tokens[:len(targets)]
        padding = length - len(targets)
        yield tokens + [0] * padding, targets + [IGNORED] * padding


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--text", default="In the beginning God created the heaven and the earth.")
    source.add_argument("--text_file", type=pathlib.Path)
    source.add_argument("--tokens", help="token ids, comma-separated")
    source.add_argument("--batch", type=pathlib.Path, help="safetensors file with `tokens` and shifted `targets` (steps,B,T)")
    parser.add_argument("--step", type=int, default=0, help="which step of --batch")
    parser.add_argument("--max_length", type=int, help="window length; default the shorter of 1024 and the model's positions")
    parser.add_argument("--max_windows", type=int, help="use only the first so many windows")
    arguments = parser.parse_args()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, report = AutoModelForCausalLM.from_pretrained(
        arguments.directory, dtype=torch.float32, output_loading_info=True)
    problems = {key: sorted(map(str, value)) for key, value in report.items() if value}
    model.eval()

    if arguments.batch:
        batch = load_file(arguments.batch)
        pairs = zip(batch["tokens"][arguments.step].long()[:, None], batch["targets"][arguments.step].long()[:, None])
    else:
        if arguments.tokens:
            ids = [int(word) for word in arguments.tokens.split(",")]
        elif arguments.text_file:
            ids = tokens_of_text(arguments.directory, arguments.text_file.read_text())
        else:
            ids = tokens_of_text(arguments.directory, arguments.text)
        length = arguments.max_length or min(1024, model.config.max_position_embeddings, max(len(ids) - 1, 1))
        pairs = ((torch.tensor([tokens]), torch.tensor([targets])) for tokens, targets in windows(ids, length))

    total, count = 0.0, 0
    with torch.no_grad():
        for index, (tokens, targets) in enumerate(pairs):
            if arguments.max_windows is not None and index >= arguments.max_windows:
                break
            logits = model(input_ids=tokens, use_cache=False).logits
            total += torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).double(), targets.flatten(), ignore_index=IGNORED, reduction="sum").item()
            count += int((targets != IGNORED).sum())
    loss = total / count if count else math.nan
    print(json.dumps({
        "loss": loss, "supervised_tokens": count, "parameters": sum(p.numel() for p in model.parameters()),
        "model_type": model.config.model_type, "problems": problems}))
    return 0 if math.isfinite(loss) and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
