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


def add_common_arguments(parser, turns):
    """What every comparison with PyTorch takes; `turns` is the default of --turns."""
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a turn")
    parser.add_argument("--turns", type=int, default=turns, help="how often the whole sequence runs")
    parser.add_argument("--snug", type=pathlib.Path, default=HERE.parent.parent / "build/release/bench/snug_bench_step")
    parser.add_argument("--environment", type=pathlib.Path, default=environment.DEFAULT)
    parser.add_argument("--python", help="an interpreter that already has the requirements, instead of the environment")


def parse_common(parser):
    """Parses the command line and checks what add_common_arguments added; `python` is then the interpreter to use."""
    arguments = parser.parse_args()
    if not arguments.snug.exists():
        parser.error(f"--snug: {arguments.snug} does not exist; build it first (README.md of the repository)")
    if min(arguments.batch, arguments.length, arguments.steps, arguments.turns) < 1:
        parser.error("--batch, --length, --steps and --turns must be at least 1")
    arguments.python = arguments.python or environment.python_of(arguments.environment)
    return arguments


def parse_modes(parser, text):
    modes = text.split(",")
    for mode in modes:
        if mode not in ("eager", "compile", "checkpoint"):
            parser.error(f"--modes: {mode} is not one of eager, compile, checkpoint")
    return modes


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_arguments(parser, turns=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--modes", default="eager,compile", help="PyTorch's modes, comma-separated: eager, compile, checkpoint")
    arguments = parse_common(parser)
    arguments.modes = parse_modes(parser, arguments.modes)
    return arguments


class Turns:
    """Results of programs by name, over all turns."""

    def __init__(self):
        self.results = {}

    def run(self, name, command):
        result = measure(name, command)
        if result is not None:
            self.results.setdefault(name, []).append(result)

    def speed(self, name):
        return statistics.median(r["tokens_per_second"] for r in self.results[name])

    def peak_bytes(self, name):
        return max(r["peak_bytes"] for r in self.results[name])


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
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length,
              "--precision", arguments.precision, "--steps", arguments.steps]
    commands = {"snug": [arguments.snug, *common, "--json"]}
    for mode in arguments.modes:
        commands[f"pytorch {mode}"] = [arguments.python, HERE / "run.py", *common, "--mode", mode, "--python", arguments.python]

    turns = Turns()
    for _ in range(arguments.turns):
        for name, command in commands.items():
            turns.run(name, command)

    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {arguments.precision}, "
          f"{len(os.sched_getaffinity(0))} processors, median of {arguments.turns} turns\n")
    print("| | tokens/s | spread | peak MiB | Snug's speed ÷ | Snug's peak ÷ |\n|---|---|---|---|---|---|")
    for name in commands:
        speeds = [r["tokens_per_second"] for r in turns.results[name]]
        speed, peak_bytes = turns.speed(name), turns.peak_bytes(name)
        print(f"| {name} | {speed:.1f} | {(max(speeds) - min(speeds)) / speed:.1%} | {peak_bytes / MIB:.0f} | "
              f"{turns.speed('snug') / speed:.2f} | {turns.peak_bytes('snug') / peak_bytes:.2f} |")


if __name__ == "__main__":
    main()
