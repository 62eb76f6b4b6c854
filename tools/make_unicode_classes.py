"""Makes src/formats/tokenizer/unicode_tables.cc and tests/fixtures/tokenizers/unicode_classes.json by asking the `tokenizers` library about every code point:
which characters Oniguruma (expressions of Split and Replace) and Rust (Whitespace, Digits, Punctuation, Lowercase) count among which class, and
what Oniguruma takes for the same letter under (?i:…).

    ENVIRONMENT/bin/python tools/make_unicode_classes.py

Takes some minutes.
"""

import argparse
import json
import pathlib
import sys
import time

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "src/formats/tokenizer/unicode_tables.cc"
FIXTURE = ROOT / "tests/fixtures/tokenizers/unicode_classes.json"

EVERY = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
# Name, and the categories that the table tells the class as a difference from.
PROPERTIES = [("Alphabetic", "Lu Ll Lt Lm Lo Nl"), ("Lowercase", "Ll"), ("Uppercase", "Lu"), ("White_Space", "Zs Zl Zp"), ("Emoji", ""),
              ("Emoji_Presentation", ""), ("Emoji_Modifier", ""), ("Emoji_Modifier_Base", ""), ("Emoji_Component", ""),
              ("Extended_Pictographic", ""), ("Regional_Indicator", ""), ("Ideographic", ""), ("Unified_Ideograph", ""),
              ("Variation_Selector", ""), ("Join_Control", ""), ("Dash", "Pd"), ("Hex_Digit", "")]
SCRIPTS = """Adlm=Adlam Aghb=Caucasian_Albanian Ahom Arab=Arabic Armi=Imperial_Aramaic Armn=Armenian Avst=Avestan Bali=Balinese Bamu=Bamum
Bass=Bassa_Vah Batk=Batak Beng=Bengali Bhks=Bhaiksuki Bopo=Bopomofo Brah=Brahmi Brai=Braille Bugi=Buginese Buhd=Buhid Cakm=Chakma
Cans=Canadian_Aboriginal Cari=Carian Cham Cher=Cherokee Chrs=Chorasmian Copt=Coptic Cpmn=Cypro_Minoan Cprt=Cypriot Cyrl=Cyrillic Deva=Devanagari
Diak=Dives_Akuru Dogr=Dogra Dsrt=Deseret Dupl=Duployan Egyp=Egyptian_Hieroglyphs Elba=Elbasan Elym=Elymaic Ethi=Ethiopic Gara=Garay Geor=Georgian
Glag=Glagolitic Gong=Gunjala_Gondi Gonm=Masaram_Gondi Goth=Gothic Gran=Grantha Grek=Greek Gujr=Gujarati Gukh=Gurung_Khema Guru=Gurmukhi
Hang=Hangul Hani=Han Hano=Hanunoo Hatr=Hatran Hebr=Hebrew Hira=Hiragana Hluw=Anatolian_Hieroglyphs Hmng=Pahawh_Hmong Hmnp=Nyiakeng_Puachue_Hmong
Hung=Old_Hungarian Ital=Old_Italic Java=Javanese Kali=Kayah_Li Kana=Katakana Kawi Khar=Kharoshthi Khmr=Khmer Khoj=Khojki Kits=Khitan_Small_Script
Knda=Kannada Krai=Kirat_Rai Kthi=Kaithi Lana=Tai_Tham Laoo=Lao Latn=Latin Lepc=Lepcha Limb=Limbu Lina=Linear_A Linb=Linear_B Lisu Lyci=Lycian
Lydi=Lydian Mahj=Mahajani Maka=Makasar Mand=Mandaic Mani=Manichaean Marc=Marchen Medf=Medefaidrin Mend=Mende_Kikakui Merc=Meroitic_Cursive
Mero=Meroitic_Hieroglyphs Mlym=Malayalam Modi Mong=Mongolian Mroo=Mro Mtei=Meetei_Mayek Mult=Multani Mymr=Myanmar Nagm=Nag_Mundari Nand=Nandinagari
Narb=Old_North_Arabian Nbat=Nabataean Newa Nkoo=Nko Nshu=Nushu Ogam=Ogham Olck=Ol_Chiki Onao=Ol_Onal Orkh=Old_Turkic Orya=Oriya Osge=Osage
Osma=Osmanya Ougr=Old_Uyghur Palm=Palmyrene Pauc=Pau_Cin_Hau Perm=Old_Permic Phag=Phags_Pa Phli=Inscriptional_Pahlavi Phlp=Psalter_Pahlavi
Phnx=Phoenician Plrd=Miao Prti=Inscriptional_Parthian Rjng=Rejang Rohg=Hanifi_Rohingya Runr=Runic Samr=Samaritan Sarb=Old_South_Arabian
Saur=Saurashtra Sgnw=SignWriting Shaw=Shavian Shrd=Sharada Sidd=Siddham Sind=Khudawadi Sinh=Sinhala Sogd=Sogdian Sogo=Old_Sogdian
Sora=Sora_Sompeng Soyo=Soyombo Sund=Sundanese Sunu=Sunuwar Sylo=Syloti_Nagri Syrc=Syriac Tagb=Tagbanwa Takr=Takri Tale=Tai_Le Talu=New_Tai_Lue
Taml=Tamil Tang=Tangut Tavt=Tai_Viet Telu=Telugu Tfng=Tifinagh Tglg=Tagalog Thaa=Thaana Thai Tibt=Tibetan Tirh=Tirhuta Tnsa=Tangsa Todr=Todhri
Toto Tutg=Tulu_Tigalari Ugar=Ugaritic Vaii=Vai Vith=Vithkuqi Wara=Warang_Citi Wcho=Wancho Xpeo=Old_Persian Xsux=Cuneiform Yezi=Yezidi Yiii=Yi
Zanb=Zanabazar_Square Zinh=Inherited Zyyy=Common""".split()

# What the tests ask the engine about, over all of Unicode. Classes in which Oniguruma's own rules show, and those of tokenizers that people share.
EXPRESSIONS = [
    r"\p{L}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Z}", r"\p{C}", r"\p{Cn}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{Mn}",
    r"\p{Nd}", r"\p{Nl}", r"\p{No}", r"\p{Pc}", r"\p{Po}", r"\p{Sm}", r"\p{Sc}", r"\p{Sk}", r"\p{So}", r"\p{Cf}", r"\p{Letter}", r"\p{Other}", r"\P{L}",
    r"\p{^N}", r"\P{^N}", r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"[\w]", r"[\W]", r"[^\w]", r"[^\W]", r"\h", r"\H", r".", r"\N", r"\O", r"\p{Alpha}",
    r"\p{Alphabetic}", r"\p{Lower}", r"\p{Lowercase}", r"\p{Upper}", r"\p{Alnum}", r"\p{Punct}", r"[[:punct:]]", r"\p{Graph}", r"\p{Print}", r"\p{Blank}",
    r"\p{Cntrl}", r"\p{Digit}", r"\p{XDigit}", r"\p{ASCII}", r"\p{Word}", r"[[:word:]]", r"[[:alpha:]]", r"[[:^alpha:]]", r"[[:space:]]", r"\p{Any}",
    r"\p{Assigned}", r"\p{LC}", r"\p{Cased_Letter}", r"\p{Space}", r"\p{Emoji}", r"\p{Extended_Pictographic}", r"\p{Han}", r"\p{Hani}", r"\p{Latin}",
    r"\p{Hiragana}", r"\p{Katakana}", r"\p{Hangul}", r"\p{Thai}", r"\p{Arabic}", r"\p{Cyrillic}", r"\p{Devanagari}", r"\p{Common}", r"\p{Garay}",
    r"[^\r\n\p{L}\p{N}]", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{P}\p{S}]", r"[\p{L}\p{M}]", r"[\p{P}\p{S}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[^\p{L}&&\p{Lu}]", r"[\p{N}\P{L}]", r"[^[a-z][^\p{L}]0]", r"[\x{4E00}-\x{9FA5}a-z]",
    r"(?i:s)", r"(?i:k)", r"(?i:i)", r"(?i:\u03c3)", r"(?i:\u00e5)", r"(?i:\u1e9e)", r"(?i:\x{10D50})", r"(?i:[sdmt])", r"(?i:[a-z])",
    r"(?i:[^a-z])", r"(?i:\p{Lu})", r"(?i:[\p{Lu}])", r"(?i:[\p{Ll}&&\p{Greek}])", r"(?i:[[:lower:]])", r"(?i:[\w])"]
# Whole matches: an expression, a text.
MATCHES = [
    ("(?i:ss)", "ß ẞ ſs ſſ SS sS s"), ("(?i:sss)", "ßs sß sss ßss"), ("(?i:ß)", "ss SS ß ẞ sſ s"), ("(?i:st)", "ﬆ ﬅ ST sT s"), ("(?i:fi)", "ﬁ FI ﬀ"),
    ("(?i:ffi)", "ﬃ ﬀi fﬁ FFi"), ("(?i:ﬁ)", "fi FI ﬁ"), ("(?i:[ß])", "ss ß ẞ SS"), ("(?i:[s][s])", "ß ss"), ("(?i:s+)", "ß ss"), ("(?i:ss+)", "ß ßs sß ss"),
    ("(?i:mass)", "maß MASS mas"), ("(?i:aß)", "ASS aß"), ("(?i:stras)se", "Straße Strasse"), ("(?i:'s)", "'ſ 's 'S"), ("(?i:ŉ)", "ʼn ʼN ŉ"),
    (r"(?i:\x73s)", "ß ss"), ("(?i:[^ß]+)", "ss s ß"), ("a(?i)b|c", "aB C aC ac c"), ("(?i)a(?-i)b", "AB Ab"), ("(?i:a(?-i:b)c)", "AbC ABC"),
    ("(?im:a.b)", "A\nB"), (r"(?i:a\p{Lu}b)", "ABB aBB abb"), ("[a-z&&[^aeiou]]+", "hello"), ("[^a-c&&b-d]+", "abcde"), ("[a-c-e]+", "a-e"), ("[]a]+", "]a"),
    ("[-a]+", "-a"), ("[a-]+", "a-"), (r"\b\w", "a² b"), (r"\w+", "می\u200cخواهم x² ¼"), (r"[\w]+", "x² ¼"), ("[[:^alpha:]]+", "ab12"), ("[a[bc]]+", "abcd"),
    (r"[\b\x{61}-\x{63}]+", "abcd\b"), ("(?i:[sß]+)", "ss ßß sß"), ("(?i:[a-z]+)", "ſKaZİı"), ("(?i:ssa|b)", "ßA B")]


def found(pattern, text):
    return [piece for piece, _ in pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True).pre_tokenize_str(text)]


def members(pattern):
    """Code points that the expression of one character matches by themselves."""
    matched = set()
    for start in range(0, len(EVERY), 20_000):
        for piece in found(f"(?:{pattern})+", "".join(map(chr, EVERY[start:start + 20_000]))):
            matched.update(map(ord, piece))
    return matched


def runs(codes):
    """Lengths of what lies outside and inside in turns, from 0 on."""
    lengths, at, codes = [], 0, sorted(codes)
    for i, code in enumerate(codes):
        if i == 0 or code != codes[i - 1] + 1:
            lengths += [code - at, 0]
        lengths[-1] += 1
        at = code + 1
    return " ".join(map(str, lengths))


def whole_pieces(pre_tokenizer):
    """Characters that the pre-tokenizer leaves together with letters around them."""
    return {c for c in EVERY if len(pre_tokenizer.pre_tokenize_str(f"a{chr(c)}a")) == 1}


def steps(pairs):
    """[(from, to)] as rows (first, count, step, to − from)."""
    rows = []
    for code, to in sorted(pairs):
        delta = to - code
        for row in reversed(rows[-8:]):
            first, count, step, known = row
            gap = code - (first + (count - 1) * (step or 1))
            if known == delta and ((count == 1 and gap <= 2) or gap == step):
                row[1], row[2] = count + 1, gap
                break
        else:
            rows.append([code, 1, 0, delta])
    return [[first, count, step or 1, delta] for first, count, step, delta in rows]


def literal(text):
    """A C++ string in lines."""
    words, lines = text.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 122:
            lines.append("")
        lines[-1] += word + " "
    lines[-1] = lines[-1].rstrip()
    return [f'"{line}"' for line in lines]


def wrapped(cells):
    lines = ["   "]
    for cell in cells:
        if len(lines[-1]) + len(cell) > 128:
            lines.append("   ")
        lines[-1] += " " + cell
    return lines


def quoted(text):
    return '"' + "".join(c if 0x20 <= ord(c) < 0x7F else f"\\U{ord(c):08X}" for c in text) + '"'


def letters_of_one_kind(cased):
    """What (?i:c) matches beside c: groups of single characters, and characters that stand for several."""
    alone = "\n".join(map(chr, cased))
    groups, several = {}, {}
    for code in cased:
        pattern = Regex(f"(?i:\\x{{{code:X}}})")
        group = {ord(p) for p, _ in pre_tokenizers.Split(pattern, behavior="removed", invert=True).pre_tokenize_str(alone) if len(p) == 1}
        assert code in group, hex(code)
        if len(group) > 1:
            groups[code] = tuple(sorted(group))
        folded = chr(code).casefold()
        if len(folded) > 1 and [p for p, _ in pre_tokenizers.Split(pattern, behavior="removed", invert=True).pre_tokenize_str(folded)] == [folded]:
            several[code] = folded
    for code, group in groups.items():
        for other in group:
            assert groups[other] == group, (hex(code), group)
    return groups, several


def main():
    begin = time.time()
    say = lambda text: print(f"{time.time() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

    rows = {"kCategories": [], "kProperties": [], "kScripts": [], "kRustClasses": []}
    categories = {name: members(rf"\p{{{name}}}") for name in CATEGORIES}
    assert sum(map(len, categories.values())) == len(set().union(*categories.values()))
    for name, codes in categories.items():
        rows["kCategories"].append((name, "", runs(codes)))
    say("categories")

    def differing(name, base, codes):
        known = set().union(*(categories[c] for c in base.split())) if base else set()
        return (name, base, runs(codes ^ known))

    for name, base in PROPERTIES:
        rows["kProperties"].append(differing(name, base, members(rf"\p{{{name}}}")))
    say("properties")
    rust = {name: set(EVERY) - whole_pieces(splitter) for name, splitter in (
        ("numeric", pre_tokenizers.Digits(individual_digits=True)), ("punctuation", pre_tokenizers.Punctuation()),
        ("white space", pre_tokenizers.WhitespaceSplit()))}
    rust["word"] = whole_pieces(pre_tokenizers.Whitespace())
    bases = {"numeric": "Nd Nl No", "punctuation": "Pc Pd Ps Pe Pi Pf Po", "white space": "Zs Zl Zp", "word": "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl Pc"}
    rows["kRustClasses"] = [differing(name, bases[name], codes) for name, codes in rust.items()]
    say("Rust's classes")
    for script in SCRIPTS:
        short, _, long = script.partition("=")
        codes = members(rf"\p{{{long or short}}}")
        rows["kScripts"].append((f"{long or short} {short}", "", runs(codes)))
    say("scripts")

    lower, lower_several = {}, {}
    for code in EVERY:
        made = normalizers.Lowercase().normalize_str(chr(code))
        if len(made) > 1:
            lower_several[code] = made
        elif ord(made) != code:
            lower[code] = ord(made)
    assert lower_several == {0x130: "i\u0307"}, lower_several
    cased = sorted(set().union(*(categories[c] for c in ("Lu", "Ll", "Lt"))) | members(r"\p{Changes_When_Casefolded}") | members(r"\p{Changes_When_Casemapped}"))
    groups, several = letters_of_one_kind(cased)
    same = {(group[0], other) for group in groups.values() for other in group[1:]}
    say("letters")

    out = ["// Made by tools/make_unicode_classes.py with tokenizers " + tokenizers.__version__ + ": not to be edited.",
           '#include "formats/tokenizer/unicode_tables.h"', "", "namespace snug::unicode_tables {", "namespace {", "", "// clang-format off"]
    tables = []

    def table(name, kind, lines):
        tables.append(f"const std::span<const {kind}> {name}{{{name}Rows}};")
        out.extend(["", f"constexpr {kind} {name}Rows[] = {{", *lines, "};"])

    for name, entries in rows.items():
        lines = []
        for names, base, text in entries:
            strings = literal(text)
            one = f'    {{"{names}", "{base}", {strings[0]}}},'
            if len(strings) == 1 and len(one) <= 130:
                lines.append(one)
            else:
                lines += [f'    {{"{names}", "{base}",'] + ["     " + line for line in strings]
                lines[-1] += "},"
        table(name, "ClassRow", lines)
    for name, pairs in (("kLowercase", lower.items()), ("kSameLetters", same)):
        table(name, "MappingRow", wrapped(f"{{0x{first:X}, {count}, {step}, {delta}}}," for first, count, step, delta in steps(pairs)))
    table("kSeveralLetters", "SeveralRow", wrapped(f"{{0x{code:X}, U{quoted(text)}}}," for code, text in sorted(several.items())))
    out += ["", "// clang-format on", "}  // namespace", "", *tables, "", "}  // namespace snug::unicode_tables", ""]
    out = "\n".join(out)
    TABLES.write_text(out)
    say(f"{TABLES.name}: {out.count(chr(10))} lines")

    # {expression: runs, or "= other expression" that has the same}
    expected, known = {}, {}
    for expression in EXPRESSIONS:
        text = runs(members(expression))
        expected[expression] = f"= {known[text]}" if text in known else text
        known.setdefault(text, expression)
    FIXTURE.write_text(json.dumps({"expressions": expected, "rust": {name: runs(codes) for name, codes in rust.items()},
                                   "matches": [[e, t, found(e, t)] for e, t in MATCHES]}, indent=0, ensure_ascii=False) + "\n")
    say(FIXTURE.name)


if __name__ == "__main__":
    main()
