"""How fast does Snug encode text, beside the `tokenizers` library on one thread?

    ENVIRONMENT/bin/python bench/tokenizer/compare.py --program build/release/bench/snug_bench_tokenizer --tokenizer FILE … --text FILE [--turns 3]

Both encode the same text in turns, in one run: the library as one call, Snug as one call, again. The best of the turns counts. Ids are compared
in number. The library gets the text in documents of about 10,000 characters cut at newlines too (encode_batch_fast), because one long text
is not what it is made for; the better of its two counts.
"""

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
import pathlib
import subprocess
import time

from tokenizers import Tokenizer


def documents(text):
    parts, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + 10_000)
        end = len(text) if end < 0 else end + 1
        parts.append(text[begin:end])
        begin = end
    return parts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tokenizer", nargs="+", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    text = pathlib.Path(arguments.text).read_bytes().decode("utf-8", errors="replace")
    parts = documents(text)
    print(f"{len(text.encode()) / 1e6:.1f} MB; MB/s, best of {arguments.turns} turns, one thread")
    print(f"{'tokenizer':12} {'ids':>10} {'library, whole':>15} {'library, parts':>15} {'snug':>8} {'ratio':>6}")
    for path in arguments.tokenizer:
        library = Tokenizer.from_file(path)
        library.no_truncation()
        program = subprocess.Popen([arguments.program, path, arguments.text, str(arguments.turns)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        whole, in_parts, own = [], [], []
        for _ in range(arguments.turns):
            begin = time.perf_counter()
            ids = len(library.encode(text, add_special_tokens=False).ids)
            whole.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            library.encode_batch_fast(parts, add_special_tokens=False)
            in_parts.append(time.perf_counter() - begin)
            program.stdin.write("go\n")
            program.stdin.flush()
            result = json.loads(program.stdout.readline())
            own.append(result["seconds"])
            assert result["ids"] == ids, (path, result["ids"], ids)
        program.stdin.close()
        program.wait()
        size = len(text.encode()) / 1e6
        best = min(whole + in_parts)
        print(f"{pathlib.Path(path).stem:12} {ids:>10,} {size / min(whole):>15.2f} {size / min(in_parts):>15.2f} {size / min(own):>8.2f} "
              f"{best / min(own):>6.1f}", flush=True)


if __name__ == "__main__":
    main()
