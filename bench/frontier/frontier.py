#!/usr/bin/env python3
"""Memory against speed: PyTorch's modes, and Snug at budgets that are shares of the peak of PyTorch's fastest. See README.md beside this file."""

import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))

from compare import MIB, Turns, add_common_arguments, parse_common, parse_modes  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_arguments(parser, turns=1)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--modes", default="eager,compile,checkpoint", help="PyTorch's modes, comma-separated")
    parser.add_argument("--shares", default="100,75,50,40", help="Snug's budgets, per cent of the peak of PyTorch's fastest")
    arguments = parse_common(parser)
    arguments.modes = parse_modes(parser, arguments.modes)
    arguments.shares = [float(share) for share in arguments.shares.split(",")]
    return arguments


def main():
    arguments = parse_arguments()
    common = ["--model", arguments.model, "--batch", arguments.batch, "--length", arguments.length,
              "--precision", arguments.precision, "--steps", arguments.steps]
    pytorch = [arguments.python, HERE.parent / "pytorch/run.py", *common, "--python", arguments.python]
    snug = [arguments.snug, *common, "--json"]
    turns = Turns()
    fastest, reference_bytes = "", 0
    for number in range(arguments.turns):
        for mode in arguments.modes:
            turns.run(f"PyTorch {mode}", [*pytorch, "--mode", mode])
        if number == 0:
            fastest = max(turns.results, key=turns.speed)
            reference_bytes = turns.peak_bytes(fastest)
        turns.run("Snug, unlimited", snug)
        for share in arguments.shares:
            turns.run(f"Snug, {share:g} %", [*snug, "--memory", int(reference_bytes * share / 100)])
        turns.run("Snug, smallest exact", [*snug, "--memory", "smallest"])

    print(f"\n{arguments.model}, batch {arguments.batch} × {arguments.length}, {arguments.precision}, "
          f"{len(os.sched_getaffinity(0))} processors; shares are of {fastest}\n")
    print("| | peak MiB | memory | tokens/s | speed |\n|---|---|---|---|---|")
    for name in turns.results:
        peak_bytes, speed = turns.peak_bytes(name), turns.speed(name)
        print(f"| {name} | {peak_bytes / MIB:.0f} | {peak_bytes / turns.peak_bytes(fastest):.2f} | {speed:.1f} | "
              f"{speed / turns.speed(fastest):.2f} |")
    for share in arguments.shares:
        if f"Snug, {share:g} %" not in turns.results:
            print(f"| Snug, {share:g} % | {reference_bytes * share / 100 / MIB:.0f} | {share / 100:.2f} | does not fit | |")


if __name__ == "__main__":
    main()
