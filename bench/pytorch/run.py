#!/usr/bin/env python3
"""Trains a randomly initialised GPT-2 or Llama with PyTorch and transformers and prints speed and peak memory as JSON lines.

One line a step, then one line of summary (`"event": "summary"`). See README.md beside this file.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import environment

MODELS = ("gpt2", "smollm2", "tiny")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast over fp32 weights")
    parser.add_argument("--mode", choices=("eager", "compile", "checkpoint"), default="eager")
    parser.add_argument("--steps", type=int, default=3, help="timed steps")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them (compiling happens in the first)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--environment", type=pathlib.Path, default=environment.DEFAULT,
                        help="folder of the Python environment, made on first use")
    parser.add_argument("--python", help="an interpreter that already has the requirements, instead of the environment")
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.length, arguments.steps, arguments.threads) < 1 or arguments.warmup < 0:
        parser.error("--batch, --length, --steps and --threads must be at least 1, --warmup at least 0")
    return arguments


def make_model(name, length):
    """The model with random weights, without dropout, as the other side of the comparison trains it."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    no_dropout = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**no_dropout))
    if name == "tiny":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=257, n_positions=max(length, 64), n_embd=64, n_layer=2, n_head=4, bos_token_id=256, eos_token_id=256,
            **no_dropout))
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, bos_token_id=0, eos_token_id=0))


def process_bytes(key):
    """A line of /proc/self/status in bytes: VmHWM is the peak resident memory, VmPTE the page tables now."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def main():
    arguments = parse_arguments()
    environment.enter(arguments.environment, arguments.python)

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = make_model(arguments.model, arguments.length)
    if arguments.length > model.config.max_position_embeddings:
        sys.exit(f"--length {arguments.length}: {arguments.model} has {model.config.max_position_embeddings} positions")
    model.train()
    if arguments.mode == "checkpoint":
        model.activation_checkpointing_enable()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)

    def loss_of(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            return model(input_ids=tokens, labels=tokens, use_cache=False).loss

    compiled = torch.compile(loss_of) if arguments.mode == "compile" else loss_of
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for step in range(arguments.warmup + arguments.steps):
        tokens = torch.randint(model.config.vocab_size, (arguments.batch, arguments.length), generator=generator)
        started = time.perf_counter()
        loss = compiled(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        elapsed = time.perf_counter() - started
        timed = step >= arguments.warmup
        if timed:
            seconds.append(elapsed)
        print(json.dumps({
            "event": "step", "step": step, "timed": timed, "loss": round(loss.item(), 5), "seconds": round(elapsed, 4),
            "tokens_per_second": round(arguments.batch * arguments.length / elapsed, 2),
            "peak_bytes": process_bytes("VmHWM")}), flush=True)
    median = statistics.median(seconds)
    print(json.dumps({
        "event": "summary", "engine": "pytorch", "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__, "model": arguments.model, "batch": arguments.batch,
        "length": arguments.length, "precision": arguments.precision, "mode": arguments.mode, "steps": arguments.steps,
        "threads": arguments.threads, "parameters": sum(p.numel() for p in model.parameters()),
        "step_seconds": round(median, 4), "tokens_per_second": round(arguments.batch * arguments.length / median, 2),
        "peak_bytes": process_bytes("VmHWM"), "page_table_bytes": process_bytes("VmPTE")}), flush=True)


if __name__ == "__main__":
    main()
