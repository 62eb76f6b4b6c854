#!/usr/bin/env python3
"""What `snug plan`, the whole command as it is typed, takes: processor seconds, memory, gap.

    bench/planner/plan_command.py build/release/snug [SHAPE …] [--shares 100,50,20,5]

The budget is the smallest plus a share of the way to keeping everything; both are asked of the command first. Weights are not needed:
a shape is a config.json in a temporary folder. Costs are those of the roofline, so that nothing is measured meanwhile.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile


def gpt2():
    return {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def llama(vocabulary, hidden, inner, blocks, heads, kv_heads, tied=False):
    return {"model_type": "llama", "vocab_size": vocabulary, "max_position_embeddings": 8192, "hidden_size": hidden,
            "intermediate_size": inner, "num_hidden_layers": blocks, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied}


# Name: config.json, micro-batch. The Llama 3 shapes are those of the published models.
SHAPES = {
    "gpt2": (gpt2(), 4),
    "smollm2": (llama(49152, 576, 1536, 30, 9, 3, True), 4),
    "tinyllama": (llama(32000, 2048, 5632, 22, 32, 4), 4),
    "llama_8b": (llama(128256, 4096, 14336, 32, 32, 8), 4),
    "llama_70b": (llama(128256, 8192, 28672, 80, 64, 8), 4),
    "llama_100_blocks": (llama(32000, 1024, 2816, 100, 16, 16), 2),
}


def run(words):
    """The command's JSON, its processor seconds (user and system) and the most MiB that it or a child of it held."""
    read, write = os.pipe()
    with open(os.devnull, "w") as nothing:
        child = subprocess.Popen(words, stdout=write, stderr=nothing)
    os.close(write)
    with os.fdopen(read) as out:
        text = out.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 4) or not text:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}")
    return json.loads(text), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snug")
    parser.add_argument("shapes", nargs="*", help=f"some of {', '.join(SHAPES)}; default: all")
    parser.add_argument("--shares", default="100,50,20,5")
    options = parser.parse_args()
    shapes = options.shapes or list(SHAPES)
    if unknown := set(shapes) - set(SHAPES):
        parser.error(f"found shape {', '.join(sorted(unknown))}; expected some of {', '.join(SHAPES)}")

    print("shape              share  processor s      MiB  slowdown      gap")
    for name in shapes:
        config, batch = SHAPES[name]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            words = [options.snug, "plan", "--model", folder, "--from_scratch", "--max_length", "1024",
                     "--per_device_train_batch_size", str(batch), "--precision", "bf16", "--costs", "roofline",
                     "--json", "--memory"]
            everything, _, _ = run(words + ["64TiB"])
            low, high = everything["smallest_budget_bytes"], everything["peak_bytes"]
            for share in map(float, options.shares.split(",")):
                budget = low + int((high - low) * share / 100)
                plan, seconds, mib = run(words + [str(budget)])
                print(f"{name:17} {share:5.0f} % {seconds:11.2f} {mib:9.0f} {100 * plan['slowdown']:7.2f} % "
                      f"{100 * (plan.get('gap') or 0):6.2f} %", flush=True)


if __name__ == "__main__":
    main()
