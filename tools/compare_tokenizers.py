"""Compares `snug tokenizer encode` with the `tokenizers` library on a large mixed text: prints one line a tokenizer, ends with 1 when any id
differs.

    ENVIRONMENT/bin/python tools/compare_tokenizers.py --program build/dev/snug [--megabytes 20] [--scratch DIR] [--tokenizer FILE …] [--text FILE …]

Without --tokenizer it trains one of each pipeline of make_tokenizer_fixtures.py (8,192 tokens). The text is mixed from files of this
machine (--text; by default the sources here and Python's library), the scripts of make_tokenizer_fixtures.py, random characters of all of
Unicode, runs of spaces and newlines, digits, emoji, combining marks, written special tokens, and bytes that are not UTF-8.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
import unicodedata

from tokenizers import Regex, Tokenizer, pre_tokenizers

from make_tokenizer_fixtures import ROOT, SAMPLES, TEXTS, pipelines


def mixed_text(megabytes, files, specials, seed):
    """Bytes, not all of them UTF-8."""
    draw = random.Random(seed)
    known = pre_tokenizers.Split(Regex(r"[\P{Cn}&&\P{Co}]+"), behavior="removed", invert=True)  # to the library: younger than Python's tables
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    assigned = [c for part, _ in known.pre_tokenize_str(every) for c in part]
    marks = [c for c in assigned if unicodedata.combining(c)]
    sources = [path.read_bytes() for path in files]
    whole, size = [], 0
    while size < megabytes * 1_000_000:
        kind = draw.randrange(16)
        if kind < 7:
            source = draw.choice(sources)
            start = draw.randrange(max(1, len(source) - 20_000))
            part = source[start:start + draw.randrange(20_000)]  # may cut a character
        elif kind == 7:
            part = "".join(draw.choice(SAMPLES) for _ in range(20)).encode()
        elif kind == 8:
            part = "".join(draw.choice(TEXTS) for _ in range(40)).encode()
        elif kind == 9:
            part = "".join(draw.choice(assigned) for _ in range(300)).encode()
        elif kind == 10:
            part = "".join(draw.choice("aeioun가") + "".join(draw.choices(marks, k=draw.randrange(4))) for _ in range(200)).encode()
        elif kind == 11:
            part = "".join(draw.choice([" ", "\n", "\t", "\r\n", "\u00a0", "\u3000"]) * draw.randrange(1, 30) for _ in range(30)).encode()
        elif kind == 12:
            part = " ".join(str(draw.randrange(10 ** draw.randrange(1, 18))) for _ in range(100)).encode()
        elif kind == 13:
            part = "".join(draw.choice(specials + [" ", "\n", "x", " word "]) for _ in range(60)).encode()
        elif kind == 14:
            part = bytes(draw.randrange(256) for _ in range(200))
        else:
            part = "".join(chr(draw.randrange(0x1F300, 0x1FAFF)) + draw.choice(["", "\u200d", "\ufe0f", " "]) for _ in range(100)).encode()
        whole.append(part)
        size += len(part)
    return b"".join(whole)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--scratch", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[], help="names of pipelines")
    parser.add_argument("--text", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    scratch = arguments.scratch or pathlib.Path(tempfile.mkdtemp())
    scratch.mkdir(parents=True, exist_ok=True)
    files = arguments.text or (sorted(ROOT.glob("src/**/*.cc")) + sorted(ROOT.glob("docs/*.md")) +
                               sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))
    paths = list(arguments.tokenizer)
    if not paths:
        texts = SAMPLES * 20 + [f.read_text(errors="replace") for f in files[::4]]
        for name, state in pipelines(arguments.vocabulary, texts).items():
            if arguments.only and name not in arguments.only:
                continue
            paths.append(scratch / f"{name}.json")
            paths[-1].write_text(json.dumps(state, ensure_ascii=False))
    specials = sorted({t["content"] for p in paths for t in json.loads(p.read_text())["added_tokens"]})
    raw = mixed_text(arguments.megabytes, files, specials, arguments.seed)
    (scratch / "mixed.txt").write_bytes(raw)
    text = raw.decode("utf-8", errors="replace")
    print(f"{len(raw) / 1e6:.1f} MB, {len(text):,} characters, {text.count(chr(0xFFFD)):,} replaced")
    different = False
    for path in paths:
        library = Tokenizer.from_file(str(path))
        library.no_truncation()
        begin = time.perf_counter()
        expected = library.encode(text).ids
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        subprocess.run([arguments.program, "tokenizer", "encode", "--tokenizer", path, "--file", scratch / "mixed.txt", "--output",
                        scratch / "ids.txt"], check=True)
        own = time.perf_counter() - begin
        ids = [int(word) for word in (scratch / "ids.txt").read_text().split()]
        same = ids == expected
        print(f"{path.stem:10} {len(expected):>10,} ids  {'equal' if same else 'DIFFERENT'}  library {seconds:.1f} s, snug {own:.1f} s", flush=True)
        if not same:
            different = True
            at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
            print(f"  at {at}: snug {ids[at - 3:at + 8]} {[library.id_to_token(i) for i in ids[at - 3:at + 8]]}\n"
                  f"       library {expected[at - 3:at + 8]} {[library.id_to_token(i) for i in expected[at - 3:at + 8]]}\n"
                  f"  after {library.decode(expected[max(0, at - 20):at])!r}")
    sys.exit(different)


if __name__ == "__main__":
    main()
