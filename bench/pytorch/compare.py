#!/usr/bin/env python3
"""Runs Snug's step benchmark and PyTorch in turns on the same model and prints the ratios. See README.md beside this file."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import environment
from run import MODELS

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--modes", default="eager,compile", help="PyTorch's modes, comma-separated: eager, compile, checkpoint")
    parser.add_argument("--steps", type=int, default=3, help="timed steps a turn")
    parser.add_argument("--turns", type=int, default=2, help="how often the sequence (Snug, each mode) runs")
    parser.add_argument("--snug", type=pathlib.Path, default=HERE.parent.parent / "build/release/bench/snug_bench_step")
    parser.add_argument("--environment", type=pathlib.Path, default=environment.DEFAULT)
    parser.add_argument("--python", help="an interpreter that already has the requirements, instead of the environment")
    arguments = parser.parse_args()
    arguments.modes = arguments.modes.split(",")
    for mode in arguments.modes:
        if mode not in ("eager", "compile", "checkpoint"):
            parser.error(f"--modes: {mode} is not one of eager, compile, checkpoint")
    if not arguments.snug.exists():
        parser.error(f"--snug: {arguments.snug} does not exist; build it first (README.md of the repository)")
    if min(arguments.batch, arguments.length, arguments.steps, arguments.turns) < 1:
        parser.error("--batch, --length, --steps and --turns must be at least 1")
    return arguments


def result_of(name, output):
    """The last JSON object in a program's output that has a speed and a peak: the whole output, or a line of it."""
    candidates = [output, *reversed(output.splitlines())]
    for text in candidates:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict) and "tokens_per_second" in value and "peak_bytes" in value:
            return value
    sys.exit(f"{name}: printed no JSON object with tokens_per_second and peak_bytes")


# Exit code of Snug's programs for a plan that does not fit its budget.
DOES_NOT_FIT = 4


def measure(name, command):
    """Runs one turn and returns its result; None where the program refused because the budget is too small."""
    shown = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True)
    if shown.returncode == DOES_NOT_FIT:
        print(json.dumps({"turn_of": name, "fits": False}), flush=True)
        return None
    if shown.returncode != 0:
        sys.exit(f"{name}: exit code {shown.returncode}")
    result = result_of(name, shown.stdout)
    print(json.dumps({"turn_of": name, "tokens_per_second": result["tokens_per_second"], "peak_bytes": result["peak_bytes"]}),
          flush=True)
    return result


def main():
    arguments = parse_arguments()
    python = arguments.python or environment.python_of(arguments.environment)
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length,
              "--precision", arguments.precision, "--steps", arguments.steps]
    commands = {"snug": [arguments.snug, *common, "--json"]}
    for mode in arguments.modes:
        commands[f"pytorch {mode}"] = [python, HERE / "run.py", *common, "--mode", mode, "--python", python]

    results = {name: [] for name in commands}
    for _ in range(arguments.turns):
        for name, command in commands.items():
            results[name].append(measure(name, command))

    speed = {name: statistics.median(r["tokens_per_second"] for r in turns) for name, turns in results.items()}
    spread = {name: (max(r["tokens_per_second"] for r in turns) - min(r["tokens_per_second"] for r in turns)) / speed[name]
              for name, turns in results.items()}
    peak = {name: max(r["peak_bytes"] for r in turns) for name, turns in results.items()}
    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {arguments.precision}, "
          f"{len(os.sched_getaffinity(0))} processors, median of {arguments.turns} turns\n")
    print("| | tokens/s | spread | peak MiB | Snug's speed ÷ | Snug's peak ÷ |\n|---|---|---|---|---|---|")
    for name in commands:
        print(f"| {name} | {speed[name]:.1f} | {spread[name]:.1%} | {peak[name] / MIB:.0f} | "
              f"{speed['snug'] / speed[name]:.2f} | {peak['snug'] / peak[name]:.2f} |")


if __name__ == "__main__":
    main()
