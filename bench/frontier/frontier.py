#!/usr/bin/env python3
"""Memory against speed: PyTorch's modes, and Snug at budgets that are shares of the peak of PyTorch's fastest. See README.md beside this file."""

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


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--modes", default="eager,compile,checkpoint", help="PyTorch's modes, comma-separated")
    parser.add_argument("--shares", default="100,75,50,40", help="Snug's budgets, per cent of the peak of PyTorch's fastest")
    parser.add_argument("--steps", type=int, default=3, help="timed steps a turn")
    parser.add_argument("--turns", type=int, default=1, help="how often the whole sequence runs")
    parser.add_argument("--snug", type=pathlib.Path, default=HERE.parent.parent / "build/release/bench/snug_bench_step")
    parser.add_argument("--environment", type=pathlib.Path, default=environment.DEFAULT)
    parser.add_argument("--python", help="an interpreter that already has the requirements, instead of the environment")
    arguments = parser.parse_args()
    arguments.modes = arguments.modes.split(",")
    arguments.shares = [float(share) for share in arguments.shares.split(",")]
    if not arguments.snug.exists():
        parser.error(f"--snug: {arguments.snug} does not exist; build it first (README.md of the repository)")
    if min(arguments.batch, arguments.length, arguments.steps, arguments.turns) < 1:
        parser.error("--batch, --length, --steps and --turns must be at least 1")
    return arguments


def main():
    arguments = parse_arguments()
    python = arguments.python or environment.python_of(arguments.environment)
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length,
              "--precision", arguments.precision, "--steps", arguments.steps]
    snug = [arguments.snug, *common, "--json"]
    results = {}

    def turn(name, command):
        result = measure(name, command)
        if result is not None:
            results.setdefault(name, []).append(result)

    for number in range(arguments.turns):
        for mode in arguments.modes:
            turn(f"PyTorch {mode}", [python, HERE.parent / "pytorch/run.py", *common, "--mode", mode, "--python", python])
        speed = {name: statistics.median(r["tokens_per_second"] for r in turns) for name, turns in results.items()}
        if number == 0:
            fastest = max((name for name in speed if name.startswith("PyTorch")), key=speed.get)
            reference_bytes = max(r["peak_bytes"] for r in results[fastest])
        turn("Snug, unlimited", snug)
        for share in arguments.shares:
            budget = int(reference_bytes * share / 100)
            turn(f"Snug, {share:g} %", [*snug, "--memory", budget])
        turn("Snug, smallest exact", [*snug, "--memory", "smallest"])

    speed = {name: statistics.median(r["tokens_per_second"] for r in turns) for name, turns in results.items()}
    peak = {name: max(r["peak_bytes"] for r in turns) for name, turns in results.items()}
    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {arguments.precision}, "
          f"{len(os.sched_getaffinity(0))} processors; shares are of {fastest}\n")
    print("| | peak MiB | memory | tokens/s | speed |\n|---|---|---|---|---|")
    for name in results:
        print(f"| {name} | {peak[name] / MIB:.0f} | {peak[name] / peak[fastest]:.2f} | {speed[name]:.1f} | "
              f"{speed[name] / speed[fastest]:.2f} |")
    for share in arguments.shares:
        if f"Snug, {share:g} %" not in results:
            print(f"| Snug, {share:g} % | {reference_bytes * share / 100 / MIB:.0f} | {share / 100:.2f} | does not fit | |")


if __name__ == "__main__":
    main()
