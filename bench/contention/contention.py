#!/usr/bin/env python3
"""Trains small and large models alone and beside busy processes, in turns, and prints what is left of the speed. See README.md here."""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0))


def gpt2(vocabulary, positions, width, blocks, heads):
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocabulary, "n_positions": positions,
            "n_embd": width, "n_layer": blocks, "n_head": heads, "activation_function": "gelu_new", "resid_pdrop": 0.0,
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 256, "eos_token_id": 256, "tie_word_embeddings": True}


SMOLLM2 = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576,
           "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
           "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True,
           "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 0}

# name: (configuration, batch, length, updates of a run, updates of a quick run)
MODELS = {
    "tiny": (gpt2(257, 64, 32, 2, 2), 2, 64, 2000, 500),
    "quickstart": (gpt2(257, 128, 160, 4, 4), 12, 128, 60, 15),
    "gpt2": (gpt2(50257, 1024, 768, 12, 12), 1, 256, 6, 2),
    "smollm2": (SMOLLM2, 1, 256, 6, 2),
}


@contextlib.contextmanager
def busy_processes(count):
    """So many processes that only compute, until the block ends."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        if busy:
            time.sleep(0.2)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def snug_run(arguments, folder, name, environment):
    """(seconds of an update, digest of the trained model)."""
    configuration, batch, length, updates, quick = MODELS[name]
    model = folder / name
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(configuration))
    tokens = folder / "tokens.bin"  # 2-byte ids below 257
    if not tokens.exists():
        state, ids = 1, bytearray()
        for _ in range(100000):
            state = (state * 1103515245 + 12345) % 2**31
            ids += (state // 65536 % 256).to_bytes(2, "little")
        tokens.write_bytes(ids)
    output = folder / "output"
    done = subprocess.run(
        [str(arguments.snug), "train", "--model", str(model), "--from_scratch", "--train_file", str(tokens), "--output_dir",
         str(output), "--overwrite_output_dir", "--per_device_train_batch_size", str(batch), "--max_length", str(length),
         "--max_steps", str(quick if arguments.quick else updates), "--logging_steps", "1", "--threads",
         str(arguments.threads), "--costs", "roofline", "--no-progress"],
        env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    seconds = [row["step_seconds"] for row in rows if "step_seconds" in row]
    warm = max(1, len(seconds) // 10)
    with open(output / "model.safetensors", "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return statistics.fmean(seconds[warm:]), digest


def pytorch_run(arguments, folder, name, environment):
    _, batch, length, updates, quick = MODELS[name]
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/pytorch/run.py"), "--model", name, "--batch", str(batch), "--length", str(length),
         "--steps", str(quick if arguments.quick else updates), "--threads", str(arguments.threads), "--python",
         arguments.pytorch],
        env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"pytorch {name}: {done.stderr[-2000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return statistics.fmean(row["seconds"] for row in rows if row.get("timed")), None


def fair_share(threads, busy):
    """Of the speed alone, where every thread and every busy process gets the same part of the cores."""
    return min(threads, CORES * threads / max(CORES, threads + busy)) / min(threads, CORES)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", type=pathlib.Path, action="append",
                        help="program to measure (default build/release/snug); several are measured in turns")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated: " + ", ".join(MODELS))
    parser.add_argument("--busy", default="0,1,2", help="numbers of busy processes, comma-separated; 0 comes first")
    parser.add_argument("--turns", type=int, help="how often everything runs (default 3, quick 2); medians are printed")
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--waits", default="own", help="comma-separated: own (what the program does itself), runtime (what "
                        "libgomp does by default), passive, or a GOMP_SPINCOUNT")
    parser.add_argument("--pytorch", metavar="PYTHON", help="interpreter with torch and transformers: gpt2 and smollm2 beside it")
    parser.add_argument("--quick", action="store_true", help="fewer updates and turns: minutes instead of half an hour")
    arguments = parser.parse_args()
    programs = arguments.snug or [ROOT / "build/release/snug"]
    turns = arguments.turns or (2 if arguments.quick else 3)
    loads = sorted({0, *map(int, arguments.busy.split(","))})
    environments = {"own": {}, "runtime": {"GOMP_SPINCOUNT": "300000"}, "passive": {"OMP_WAIT_POLICY": "passive"}}

    sides = []  # label, how to run it
    for program in programs:
        for waits in arguments.waits.split(","):
            environment = environments.get(waits) or ({} if waits == "own" else {"GOMP_SPINCOUNT": waits})
            label = " ".join(([str(program)] if len(programs) > 1 else ["Snug"]) + ([waits] if waits != "own" else []))
            sides.append((label, program, environment, snug_run))
    if arguments.pytorch:
        sides.append(("PyTorch eager", None, {}, pytorch_run))

    print(f"{CORES} cores, {arguments.threads} threads, {turns} turns; load before: {os.getloadavg()[0]:.2f}\n")
    print("| model | side | ms alone | " + " | ".join(f"beside {n}, ÷ alone | of fair" for n in loads[1:]) + " | same bits |")
    print("|---|---|---|" + "---|---|" * len(loads[1:]) + "---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            seconds, digests = {}, {}
            running = [side for side in sides if side[3] is snug_run or name in ("gpt2", "smollm2")]
            for _ in range(turns):
                for load in loads:
                    for label, program, environment, run in running:
                        arguments.snug = program
                        with busy_processes(load):
                            took, digest = run(arguments, pathlib.Path(folder), name, environment)
                        seconds.setdefault((label, load), []).append(took)
                        digests.setdefault(label, set()).add(digest)
            for label, *_ in running:
                alone = statistics.median(seconds[label, 0])
                cells = []
                for load in loads[1:]:
                    share = alone / statistics.median(seconds[label, load])
                    cells += [f"{share:.2f}", f"{share / fair_share(arguments.threads, load):.2f}"]
                same = "–" if digests[label] == {None} else "yes" if len(digests[label]) == 1 else "NO"
                print(f"| {name} | {label} | {alone * 1000:.4g} | " + " | ".join(cells) + f" | {same} |", flush=True)


if __name__ == "__main__":
    main()
