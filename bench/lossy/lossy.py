#!/usr/bin/env python3
"""Trains the quickstart's model by each choice that changes numbers, and prints how far each loss is from the exact one. See README.md."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 128, "n_embd": 160,
         "n_layer": 4, "n_head": 4, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
         "bos_token_id": 256, "eos_token_id": 256, "tie_word_embeddings": True}

# Name, options, and the row whose loss it is compared with.
FORMS = [
    ("fp32", [], None),
    ("bf16 moments", ["--optim", "adamw_bf16"], "fp32"),
    ("8-bit moments", ["--optim", "adamw_8bit"], "fp32"),
    ("bf16 gradients", ["--gradients", "bf16"], "fp32"),
    ("activations in 8 bits", ["--recompute", "compress"], "fp32"),
    ("bf16", ["--precision", "bf16"], "fp32"),
    ("bf16, bf16 moments", ["--precision", "bf16", "--optim", "adamw_bf16"], "bf16"),
    ("bf16, 8-bit moments", ["--precision", "bf16", "--optim", "adamw_8bit"], "bf16"),
    ("bf16, no master weights", ["--precision", "bf16", "--master_weights", "none", "--allow", "no_master_weights"], "bf16"),
    ("fp16", ["--precision", "fp16"], "fp32"),
]


def train(arguments, model, text, validation, output, options):
    command = [arguments.snug, "train", "--model", model, "--from_scratch", "--train_file", text, "--validation_file", validation,
               "--per_device_train_batch_size", 12, "--max_steps", arguments.steps, "--learning_rate", 2e-3,
               "--lr_scheduler_type", "cosine", "--warmup_steps", 30, "--weight_decay", 0.1, "--logging_steps", 100,
               "--memory", "512MiB", "--no_progress", "--output_dir", output, *options]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(options)}: exit code {done.returncode}\n{done.stderr}")
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    evaluation = [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
    categories = json.loads((output / "plan.json").read_text())["categories"]
    state = sum(categories.get(name, 0) for name in ("weights", "master_weights", "optimizer_state"))
    return evaluation, state


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", type=pathlib.Path, default=ROOT / "build/release/snug")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="a text of some megabytes; its last twentieth is for evaluation")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", help="names of forms, separated by commas")
    arguments = parser.parse_args()
    text = arguments.text.read_bytes()
    held_out = len(text) // 20
    only = arguments.only.split(",") if arguments.only else None
    losses = {}
    print(f"evaluation loss after {arguments.steps} updates of the quickstart's run\n")
    print("| | eval loss | against | difference | state bytes |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "model").mkdir()
        (here / "model/config.json").write_text(json.dumps(MODEL))
        (here / "train.txt").write_bytes(text[:-held_out])
        (here / "validation.txt").write_bytes(text[-held_out:])
        for name, options, base in FORMS:
            if only and name not in only:
                continue
            loss, state = train(arguments, here / "model", here / "train.txt", here / "validation.txt",
                                here / name.replace(" ", "_").replace(",", ""), options)
            losses[name] = loss
            difference = f"{loss / losses[base] - 1:+.2%}" if base in losses else ""
            print(f"| {name} | {loss:.4f} | {base or ''} | {difference} | {state:,} |", flush=True)


if __name__ == "__main__":
    main()
