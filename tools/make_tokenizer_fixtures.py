"""Makes tests/fixtures/tokenizers with the `tokenizers` library: small vocabularies in the pipelines of real models, texts, and the ids
that the library gives them. With --out DIR and --vocabulary N it makes larger tokenizers elsewhere (tools/compare_tokenizers.py).

    ENVIRONMENT/bin/python tools/make_tokenizer_fixtures.py [--out DIR] [--keep] [--vocabulary N] [--train FILE …]
"""

import argparse
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Text of our own in many scripts: what the small vocabularies are trained on, beside the licence.
SAMPLES = [
    "The quick brown fox jumps over the lazy dog. It's what they'd've done, isn't it? WE'LL SEE; I'M SURE THEY'RE HERE.",
    "def tokens(text: str) -> list[int]:\n    \"\"\"One id a byte.\"\"\"\n    return [b for b in text.encode('utf-8') if b != 0x0A]\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i] * 3.14159;\n\tif (sum > 1e9) break;  // overflow\n}\n\n\n",
    "SELECT name, count(*) FROM users WHERE age >= 21 GROUP BY name ORDER BY 2 DESC LIMIT 100;\r\n-- 12345678901234567890\r\n",
    "Les élèves étudient à l'école; où est le garçon naïf? Ça coûte 1 234,56 €. Straße, größer, Ångström, fjord.",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Съешь же ещё этих мягких французских булок.",
    "敏捷的棕色狐狸跳过了懒狗。机器学习需要大量的数据和内存。東京は日本の首都です。カタカナとひらがな。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 한국어 텍스트입니다.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول. ١٢٣٤٥ שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "😀 😃 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇯🇵 ❤️ ✈️ ½ ² Ⅷ ① — “quoted” ‘single’ … • → ∑∫≈ ∀x∈ℝ",
    "   leading spaces, trailing spaces   \n\n\ttabs\tand\u00a0no-break\u2003em\u3000ideographic   \n",
]

# Texts whose ids are compared: what goes wrong most easily.
TEXTS = SAMPLES + [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\r\n\r\n", "\t\t", "          ten spaces", "a" * 40, "ab" * 40, "x y  z   w    v",
    "Hello, world!", "hello world", "Hello", " Hello", "  Hello  world  ", "don't DON'T Don'T we'LL I'Ve it'S 'S 's",
    "1 12 123 1234 12345 1234567890 3.14 1,000,000 ٣٤٥ ½⅓ Ⅻ", "v1.2.3-rc4+build567", "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
    "!!!???...---===", "a.b,c;d:e!f?g", "...\n\n\n...", "foo\n\n\nbar\r\n\r\nbaz", "end of line   \n   start of line", "\u00a0\u2028\u2029\u180e\u200b\ufeff x",
    "e\u0301 \u00e9 n\u0303 \u00f1 A\u030a \u212b \u1e9b\u0323 \ufb01 \u2460 \uac00 \u1100\u1161 \u1100\u1161\u11a8", "q\u0307\u0323 q\u0323\u0307 a\u0315\u0300\u05ae\u0062",
    "\u017f \u212a 'ſ ſs ß SS 'ß", "İstanbul ISPARTA ıspanak", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U00020000\U0002a6df \U000e0001 \U0010ffff \ufffd",
    "<|endoftext|>", "a<|endoftext|>b", "<s>x</s>", "text <|im_start|>user\nhi<|im_end|>\nmore", "<|end|>   spaces after", "   <mask>  around ",
    "one<|endoftext|><|endoftext|>two", "<|endoftext", "<|im_start|><|im_end", "wordword word, sword keyword", "<0x41> <0xE4> <unk>", "▁▁ ▁a a▁ ▁", "\n\n\n\n\n\n\n\n\n\n\n\n",
    "Ġ Ċ ĉ Âł ÄĿ", "\x00\x01\x1f\x7f control", "mixed 中文 and English混在 text", "https://example.org/a?b=c&d=%20#frag", "ααα βββ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛",
]

# What tables of different versions of Unicode, and Oniguruma and Rust, take for different things.
UNICODE_TEXTS = [
    "x² y³ ¼ cup ½ ① Ⅷ ⅷ ⓐⒷ a²b", "می‌خواهم نمی‌دانم کتاب‌ها را", "क्‍ष न्‌य श्री", "👩‍💻👨‍👩‍👧 ❤️‍🔥", "🩷🩵🫨 wow🫎🫏 🪿🪼!", "\U00031350\U000323AF 中\U0002EBF0文",
    "\u1C89\u1C8A \uA7CB\uA7DA\uA7DC \u0897\u0CF3", "\U00010D50\U00010D70\U00010D40\U00010D41 \U00016D70", "\U0001E4D0\U0001E4F0\U0001E4F1 1\U00011F50",
    "Straße STRASSE ẞ ﬁn ﬅ ſo K", "it'ſ IT'S don'T", "\u0363a\u10FC \uAB69x \uA7F2", "\u180E\u200B\u2060\uFEFF", "word‌word wordword‌ ‍word word²", "\U0001D2C0\U0001D2D3 \u2FFC\u31EF ⿾",
    "a\u0301 e\u0323\u0302 \u1ABF\u1ACE", "ǅ Ǆ ǆ ა Ა Ꭰ ꭰ ⴀ Ⴀ", "٪ ۱۲۳ ๑๒ ፩፪ 〇 ㊀ ⑴"]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


def byte_level(name, vocabulary, texts, pre_tokenizer, specials, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=name == "gpt2") for s in specials])
    return tokenizer


def byte_fallback(vocabulary, texts, specials=("<unk>", "<s>", "</s>")):
    base = list(specials) + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=vocabulary + 256, special_tokens=base, limit_alphabet=150, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    # The bytes are tokens of the model, not added ones.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in specials]
    return state


def llama2(vocabulary, texts):
    state = byte_fallback(vocabulary, texts)
    state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    state["pre_tokenizer"] = None
    state["post_processor"] = bos("<s>", 1)
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                         {"type": "ByteFallback"}, {"type": "Fuse"},
                                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return state


def bos(token, token_id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def added(content, token_id, **flags):
    token = dict(id=token_id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    token.update(flags)
    return token


def add(state, tokens):
    taken = max([max(state["model"]["vocab"].values())] + [t["id"] for t in state["added_tokens"]]) + 1
    for content, flags in tokens:
        known = state["model"]["vocab"].get(content)
        state["added_tokens"].append(added(content, taken if known is None else known, **flags))
        taken += known is None


def old_merges(state):
    state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]


def pipelines(vocabulary, texts):
    """Name → tokenizer.json as an object."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = {}
    tokenizer = byte_level("gpt2", vocabulary, texts, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    made["gpt2"] = json.loads(tokenizer.to_str())
    old_merges(made["gpt2"])

    tokenizer = byte_level("llama3", vocabulary, texts, pre_tokenizers.Sequence([split(LLAMA3), level]), [], ignore_merges=True)
    state = made["llama3"] = json.loads(tokenizer.to_str())
    # Whole words that no merges make: what ignore_merges is about.
    for extra in ["Ġunmergeable", "Hello", "wordword", "Ġkeyword"]:
        state["model"]["vocab"].setdefault(extra, len(state["model"]["vocab"]))
    add(state, [("<|begin_of_text|>", {}), ("<|end_of_text|>", {}), ("<|eot_id|>", {})])
    state["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        bos("<|begin_of_text|>", state["added_tokens"][0]["id"])]}

    tokenizer = byte_level("qwen2", vocabulary, texts, pre_tokenizers.Sequence([split(QWEN2), level]),
                           ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    made["qwen2"] = json.loads(tokenizer.to_str())

    tokenizer = byte_level("smollm2", vocabulary, texts, pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made["smollm2"] = json.loads(tokenizer.to_str())

    tokenizer = byte_level("gpt4o", vocabulary, texts, pre_tokenizers.Sequence([split(GPT4O), level]), ["<|endoftext|>"])
    made["gpt4o"] = json.loads(tokenizer.to_str())
    tokenizer = byte_level("deepseek", vocabulary, texts, pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [level]), ["<|endoftext|>"])
    made["deepseek"] = json.loads(tokenizer.to_str())

    state = made["llama2"] = llama2(vocabulary, texts)
    old_merges(state)

    state = made["mistral"] = llama2(vocabulary, texts)
    state["normalizer"] = None
    state["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    add(state, [("[INST]", {}), ("[/INST]", {})])

    state = made["metaspace"] = llama2(vocabulary, texts)
    state["normalizer"] = {"type": "NFKC"}
    state["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]}
    add(state, [("<mask>", dict(lstrip=True)), ("word", dict(single_word=True, normalized=True, special=False))])

    state = made["phi3"] = llama2(vocabulary, texts)
    add(state, [("<|endoftext|>", {}), ("<|assistant|>", dict(rstrip=True)), ("<|end|>", dict(rstrip=True)), ("<|user|>", dict(rstrip=True))])

    state = made["gemma"] = byte_fallback(vocabulary, texts, ("<pad>", "<eos>", "<bos>", "<unk>"))
    state["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    state["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    state["post_processor"] = bos("<bos>", 2)
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                         {"type": "ByteFallback"}, {"type": "Fuse"}]}
    add(state, [("\n" * n, dict(special=False)) for n in range(2, 9)] + [("▁" * n, dict(special=False)) for n in range(2, 9)] + [("<start_of_turn>", {}), ("<end_of_turn>", {})])

    # Added tokens in whose place the normalizer writes something else.
    state = made["normalized"] = llama2(vocabulary, texts)
    for token in state["added_tokens"]:
        token["normalized"] = True
    add(state, [("word", dict(normalized=True, special=False)), ("two words", dict(normalized=True, special=False)), ("<mask>", dict(normalized=True)),
                ("<|end|>", dict(rstrip=True))])

    # Classes of characters: Rust's, and Oniguruma's in a pattern with an intersection.
    tokenizer = byte_level("unicode", vocabulary, texts, pre_tokenizers.Sequence([
        split(r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|ss|ß)?"),
        split(r"\w+|\p{Emoji}+|[[:punct:]]+"), level]), ["<|endoftext|>"])
    tokenizer.normalizer = normalizers.Lowercase()
    made["unicode"] = json.loads(tokenizer.to_str())
    tokenizer = byte_level("rust", vocabulary, texts, pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True), level]), ["<|endoftext|>"])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False)])
    made["rust"] = json.loads(tokenizer.to_str())

    # Components that models above do not use.
    tokenizer = byte_level("pieces", vocabulary, texts, pre_tokenizers.Sequence([
        pre_tokenizers.Split(",", behavior="merged_with_previous"), pre_tokenizers.Split(Regex(r"\d+"), behavior="contiguous"),
        pre_tokenizers.Punctuation(behavior="merged_with_next"), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.ByteLevel(add_prefix_space=True)]), ["<|endoftext|>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Strip(),
                                                 normalizers.Replace(Regex(r"\s{3,}"), "  ")])
    made["pieces"] = json.loads(tokenizer.to_str())
    tokenizer = byte_level("words", vocabulary, texts, pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[aeiou]"), behavior="removed", invert=False), level]), ["<|endoftext|>"])
    made["words"] = json.loads(tokenizer.to_str())
    return made


def make_trained(out):
    """training.txt, and in trained.json what the library's own trainer makes of it."""
    draw = random.Random(2)
    words = (ROOT / "LICENSE").read_text().split()
    lines = [" ".join(draw.choices(words, k=draw.randrange(1, 15))) for _ in range(400)] + [s for s in SAMPLES for _ in range(3)]
    lines += ["    indented = %d" % draw.randrange(10 ** draw.randrange(1, 6)) for _ in range(50)] + ["aaaa aaa aaaaaaa", "  ", "", "\t\tx"]
    draw.shuffle(lines)
    path = out / "training.txt"
    path.write_text("\n".join(lines))  # no newline at the end
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([str(path)], trainers.BpeTrainer(vocab_size=1200, special_tokens=["<|endoftext|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    (out / "trained.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/fixtures/tokenizers")
    parser.add_argument("--vocabulary", type=int, default=600)
    parser.add_argument("--train", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="tokenizers that are there stay: which of equally frequent characters the library takes is chance")
    arguments = parser.parse_args()
    texts = [(ROOT / "LICENSE").read_text()] + SAMPLES * 4
    texts += [path.read_text(errors="replace") for path in arguments.train]
    arguments.out.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    joined = list(TEXTS)
    for _ in range(12):  # pieces of all of them in a random order
        joined.append("".join(random.sample([t for t in TEXTS if len(t) < 120], 12)))
    joined += UNICODE_TEXTS
    make_trained(arguments.out)
    expected = {"texts": joined, "tokenizers": {}}
    for name, state in pipelines(arguments.vocabulary, texts).items():
        state["truncation"], state["padding"] = None, None
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        path = arguments.out / f"{name}.json"
        if arguments.keep and path.exists():
            text = path.read_text().rstrip("\n")
        path.write_text(text + "\n")
        tokenizer = Tokenizer.from_str(text)
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in joined]
        with_specials = tokenizer.encode("x").ids
        bare = tokenizer.encode("x", add_special_tokens=False).ids
        expected["tokenizers"][name] = {
            "ids": ids, "x": with_specials, "bare_x": bare,
            "decoded": [tokenizer.decode(i) for i in ids], "decoded_all": [tokenizer.decode(i, skip_special_tokens=False) for i in ids]}
    (arguments.out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
