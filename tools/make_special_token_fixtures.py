"""Makes tests/fixtures/tokenizers/special_tokens.json: directories whose files name tokens beside tokenizer.json, or beside vocab.json and
merges.txt, and the tokens and ids that transformers' AutoTokenizer gives for them.

    ENVIRONMENT/bin/python tools/make_special_token_fixtures.py [--out FILE]

The vocabulary is the 256 bytes and six more tokens; byte-level, in lower case, so that `normalized` counts.
"""

import argparse
import json
import pathlib
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# A row of a chat.
CHAT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
TEXTS = [CHAT, "a <X> b", "a<x>B <Y>  <z> <P>.", "one<|endoftext|> two</S>", "<old>  <OLD>x<old>"]
OLD = AddedToken("<old>", special=False, normalized=True, lstrip=True)


def typed(content, **flags):
    return {"__type": "AddedToken", "content": content, **flags}


def token(content, **flags):
    return {"content": content, **flags}


def fast(**settings):
    return {CONFIG: {"tokenizer_class": "PreTrainedTokenizerFast", **settings}}


def gpt2(**settings):
    return {CONFIG: {"tokenizer_class": "GPT2Tokenizer", **settings}}



CHATML = {"262": token("<|im_start|>", special=True, normalized=False), "263": token("<|im_end|>", special=True, normalized=False)}

# Name → (tokens of tokenizer.json, files beside it).
BESIDE_JSON = {
    "a chat's tokens stand in the decoder alone": ([], fast(added_tokens_decoder=CHATML, eos_token="<|im_end|>")),
    "nothing beside": ([OLD], {}),
    "named tokens in their order": ([OLD], fast(pad_token="<P>", bos_token="<X>", eos_token="</S>", mask_token="<Y>")),
    "an object is named": ([OLD], fast(eos_token=typed("<X>", lstrip=True, normalized=True))),
    "a named token of tokenizer.json is special": ([OLD], fast(eos_token="<old>")),
    "additional tokens": ([OLD], fast(additional_special_tokens=["<X>", typed("<Y>", lstrip=True, normalized=True)])),
    "extra tokens, so that additional ones do not count": ([OLD], fast(extra_special_tokens=["<X>", "<old>", "<X>"], additional_special_tokens=["<Y>"])),
    "extra tokens with names": ([OLD], fast(b_token="<X>", a_token=typed("<Y>"), extra_special_tokens={"c_token": "<z>", "b_token": "<P>"},
                                           additional_special_tokens=["</S>"], add_bos_token=True)),
    "flags of the decoder": ([OLD], fast(added_tokens_decoder={"262": token("<old>", rstrip=True, special=True, normalized=False)})),
    "a decoder with an unnamed order": ([OLD], fast(added_tokens_decoder={"264": token("<Y>", special=True), "263": token("<X>"), "64": token("a", single_word=True, normalized=False)},
                                                  eos_token="<X>", pad_token="<P>")),
    "the decoder silences the files": ([OLD], {**fast(added_tokens_decoder={}), MAP: {"eos_token": "<X>"}, ADDED: {"<Y>": 263}}),
    "the map": ([OLD], {**fast(eos_token="<z>", pad_token="<z>", sep_token="<Y>"),
                        MAP: {"eos_token": token("<X>", rstrip=True, normalized=False, lstrip=False, single_word=False), "pad_token": None, "additional_special_tokens": ["<P>"]}}),
    "the map's extra tokens": ([OLD], {**fast(extra_special_tokens=["<Y>"]), MAP: {"extra_special_tokens": ["<X>", token("<z>", lstrip=True)]}}),
    "the map alone": ([OLD], {MAP: {"eos_token": "<X>"}}),
    "the file of added tokens": ([OLD], {ADDED: {"<Y>": 264, "<X>": 263, "<old>": 262}}),
    "added tokens, one of them named": ([OLD], {**fast(eos_token="<X>", additional_special_tokens=["<z>"]), ADDED: {"<X>": 263, "<Y>": 264, "<z>": 265}}),
    "bos and eos are the post-processor's": ([OLD], fast(add_bos_token=True, add_eos_token=True, bos_token="<X>", eos_token="</S>")),
}
BESIDE_VOCABULARY = {
    "gpt2 alone": {},
    "gpt2 with a beginning": gpt2(add_bos_token=True),
    "gpt2 with its own beginning and the end": gpt2(add_bos_token=True, add_eos_token=True, bos_token="<X>"),
    "gpt2 with all named": gpt2(bos_token="<X>", eos_token="</S>", unk_token="<z>", pad_token="<P>", add_bos_token=True, add_eos_token=True),
    "gpt2 with some named": gpt2(bos_token="<X>", eos_token="</S>", pad_token="<P>", mask_token="<Y>", additional_special_tokens=["<z>"]),
    "gpt2 without a beginning": gpt2(bos_token=None, add_bos_token=True, unk_token=None),
    "gpt2 with a decoder": gpt2(added_tokens_decoder={"262": token("<|endoftext|>", special=True, normalized=True), "263": token("<X>", lstrip=True, special=True)}),
    "gpt2 with added tokens": {ADDED: {"<X>": 262, "<Y>": 263}},
    "gpt2 with added tokens and the map": {ADDED: {"<X>": 262, "<Y>": 263}, MAP: {"eos_token": "<Y>", "bos_token": token("<|endoftext|>", lstrip=False, normalized=True)}},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/fixtures/tokenizers/special_tokens.json")
    arguments = parser.parse_args()
    vocabulary = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for word in ["th", "he", "in", "wh", "ou", "re"]:
        vocabulary[word] = len(vocabulary)
    merges = [(word[0], word[1]) for word in ["th", "he", "in", "wh", "ou", "re"]]
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    plain.normalizer = normalizers.Lowercase()
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    cases = []

    def case(name, files, made):
        with tempfile.TemporaryDirectory() as directory:
            for file, value in (files | made).items():
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                pathlib.Path(directory, file).write_text(text)
            pathlib.Path(directory, "config.json").write_text(json.dumps({"model_type": "llama" if "tokenizer.json" in made else "gpt2"}))
            tokenizer = AutoTokenizer.from_pretrained(directory)
            cases.append({
                "name": name, "files": files, "base": "tokenizer.json" if "tokenizer.json" in made else "vocab.json",
                "added_in_json": json.loads(made["tokenizer.json"])["added_tokens"] if "tokenizer.json" in made else [],
                "added": [{"id": i, "content": t.content, "special": t.special, "normalized": t.normalized, "lstrip": t.lstrip, "rstrip": t.rstrip,
                           "single_word": t.single_word} for i, t in sorted(tokenizer.added_tokens_decoder.items())],
                "ids": [tokenizer(t)["input_ids"] for t in TEXTS]})

    for name, (tokens, files) in BESIDE_JSON.items():
        copy = Tokenizer.from_str(plain.to_str())
        copy.add_tokens(tokens)
        case(name, files, {"tokenizer.json": copy.to_str()})
    merges_text = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)
    for name, files in BESIDE_VOCABULARY.items():
        case(name, files, {"vocab.json": json.dumps(vocabulary, ensure_ascii=False), "merges.txt": merges_text})
    assert len(cases[0]["ids"][0]) == 25, len(cases[0]["ids"][0])
    fixture = {"texts": TEXTS, "tokenizer.json": json.loads(plain.to_str()), "vocab.json": vocabulary, "merges.txt": merges_text, "cases": cases}
    arguments.out.write_text(json.dumps(fixture, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
