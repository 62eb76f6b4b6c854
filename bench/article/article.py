#!/usr/bin/env python3
"""Four usual ways to save memory, and budgets: memory and speed relative to PyTorch's eager fp32. See README.md beside this file."""

import argparse
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))

import environment  # noqa: E402
from compare import MIB, measure  # noqa: E402
from run import MODELS  # noqa: E402

# What a published article says of an accelerator: memory and speed relative to fp32.
PUBLISHED = {"fp32": (1.00, 1.00), "mixed": (0.53, 1.72), "checkpointing": (0.67, 0.74), "both": (0.30, 1.09)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a turn")
    parser.add_argument("--turns", type=int, default=1, help="how often the whole sequence runs")
    parser.add_argument("--snug", type=pathlib.Path, default=HERE.parent.parent / "build/release/bench/snug_bench_step")
    parser.add_argument("--environment", type=pathlib.Path, default=environment.DEFAULT)
    parser.add_argument("--python", help="an interpreter that already has the requirements, instead of the environment")
    arguments = parser.parse_args()
    if not arguments.snug.exists():
        parser.error(f"--snug: {arguments.snug} does not exist; build it first (README.md of the repository)")
    return arguments


def main():
    arguments = parse_arguments()
    python = arguments.python or environment.python_of(arguments.environment)
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length, "--steps", arguments.steps]
    snug = [arguments.snug, *common, "--json"]
    results = {}

    def turn(name, command):
        result = measure(name, command)
        if result is not None:
            results.setdefault(name, []).append(result)

    for _ in range(arguments.turns):
        turn("PyTorch eager fp32", [python, HERE.parent / "pytorch/run.py", *common, "--mode", "eager", "--python", python])
        eager_bytes = max(r["peak_bytes"] for r in results["PyTorch eager fp32"])
        turn("fp32", snug)
        turn("mixed", [*snug, "--precision", "bf16"])
        turn("checkpointing", [*snug, "--recompute", "block"])
        turn("both", [*snug, "--precision", "bf16", "--recompute", "block"])
        turn("budget 0.23, clipping", [*snug, "--precision", "bf16", "--memory", int(0.23 * eager_bytes)])
        turn("budget 0.20, no clipping", [*snug, "--precision", "bf16", "--max_grad_norm", "0", "--update_placement", "in_backward",
                                          "--memory", int(0.20 * eager_bytes)])

    speed = {name: statistics.median(r["tokens_per_second"] for r in turns) for name, turns in results.items()}
    peak = {name: max(r["peak_bytes"] for r in turns) for name, turns in results.items()}
    base = "PyTorch eager fp32"
    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {len(os.sched_getaffinity(0))} processors, "
          f"relative to {base}\n")
    print("| | peak MiB | memory | tokens/s | speed | published: memory, speed |\n|---|---|---|---|---|---|")
    for name in results:
        published = "{:.2f}, {:.2f}".format(*PUBLISHED[name]) if name in PUBLISHED else ""
        print(f"| {name} | {peak[name] / MIB:.0f} | {peak[name] / peak[base]:.3f} | {speed[name]:.1f} | "
              f"{speed[name] / speed[base]:.2f} | {published} |")


if __name__ == "__main__":
    main()
