#!/usr/bin/env python3
"""Four usual ways to save memory, and budgets: memory and speed relative to PyTorch's eager fp32. See README.md beside this file."""

import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))

from compare import MIB, Turns, add_common_arguments, parse_common  # noqa: E402

# What a published article says of an accelerator: memory and speed relative to fp32.
PUBLISHED = {"fp32": (1.00, 1.00), "mixed": (0.53, 1.72), "checkpointing": (0.67, 0.74), "both": (0.30, 1.09)}
BASE = "PyTorch eager fp32"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_arguments(parser, turns=1)
    arguments = parse_common(parser)
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length, "--steps", arguments.steps]
    snug = [arguments.snug, *common, "--json"]
    turns = Turns()
    for _ in range(arguments.turns):
        turns.run(BASE, [arguments.python, HERE.parent / "pytorch/run.py", *common, "--mode", "eager", "--python", arguments.python])
        turns.run("fp32", snug)
        turns.run("mixed", [*snug, "--precision", "bf16"])
        turns.run("checkpointing", [*snug, "--recompute", "block"])
        turns.run("both", [*snug, "--precision", "bf16", "--recompute", "block"])
        bf16 = [*snug, "--precision", "bf16"]
        turns.run("budget 0.23, clipping", [*bf16, "--memory", int(0.23 * turns.peak_bytes(BASE))])
        turns.run("budget 0.20, no clipping", [*bf16, "--max_grad_norm", 0, "--update_placement", "in_backward",
                                               "--memory", int(0.20 * turns.peak_bytes(BASE))])

    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {len(os.sched_getaffinity(0))} processors, "
          f"relative to {BASE}\n")
    print("| | peak MiB | memory | tokens/s | speed | published: memory, speed |\n|---|---|---|---|---|---|")
    for name in turns.results:
        published = "{:.2f}, {:.2f}".format(*PUBLISHED[name]) if name in PUBLISHED else ""
        peak_bytes, speed = turns.peak_bytes(name), turns.speed(name)
        print(f"| {name} | {peak_bytes / MIB:.0f} | {peak_bytes / turns.peak_bytes(BASE):.3f} | {speed:.1f} | "
              f"{speed / turns.speed(BASE):.2f} | {published} |")


if __name__ == "__main__":
    main()
