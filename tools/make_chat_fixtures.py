"""Makes tests/fixtures/chat_templates/expected.json: what transformers renders for the templates and conversations there.

    ENVIRONMENT/bin/python tools/make_chat_fixtures.py [--out DIR]

The templates (*.jinja) are our own, with the constructs of those that come with Llama 3, Qwen 2.5 and 3, Gemma 2, Mistral Nemo, Phi 3.5, the
distilled R1, and one with {% generation %}. constructs.txt has a template a line; lines are also rendered several at a time, where that
is no error.
"""

import argparse
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATE = datetime.datetime(2024, 7, 26)


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


chat_template_utils.datetime = FixedDate

# What constructs.txt sees.
MESSAGES = [
    {"role": "system", "content": "Be <b>brief</b> & kind."},
    {"role": "user", "content": "Hi \"there\"\n 你好 😀 'x'"},
    {"role": "assistant", "content": "  Hello!  ", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [1, 2.5, None, True], "é": "ü\t\u0001"}}}]},
    {"role": "tool", "content": "", "name": "f"},
    {"role": "user", "content": "bye"},
]
VARIABLES = {
    "bos_token": "<s>", "n": 5, "neg": -7, "f": 2.5, "s": "Hello World foo-bar", "u": "straße ÉCOLE ﬁn Σας ΟΔΟΣ", "lst": [3, 1, 2, 1],
    "d": {"b": 1, "a": {"c": [1, 2]}, "items": "shadow"}, "e": "", "none_": None, "t": True, "big": 1e16, "small": 1e-5,
    "ws": " \t\n x \u00a0", "names": ["b", "A", "c", "a"],
    "objs": [{"n": "x", "v": 2}, {"n": "Y", "v": 1}, {"n": "y"}, {"n": "z", "v": None}], "lines": "a\n\n b\r\nc",
    "md": {"B": 1, "a": 3, "c": 2},
}

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather \"now\" <at> a place & time.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "Größe, 東京"}, "days": {"type": "integer", "minimum": 1},
            "units": {"enum": ["C", "F"]}, "more": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, identity="call12345"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]},
    "question": {"messages": [{"role": "user", "content": "What is 2 + 2?"}]},
    "system": {"messages": [{"role": "system", "content": "  You are a pirate.\n"}, {"role": "user", "content": "Hello"},
                            {"role": "assistant", "content": "Arr!"}]},
    "turns": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                           {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}]},
    "system_turns": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                  {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]},
    "unicode": {"messages": [{"role": "user", "content": "Größe 東京 😀 e\u0301 \u200b\u00a0"}, {"role": "assistant", "content": "«Да» “ok” ‘so’ \u2028"}]},
    "quotes": {"messages": [{"role": "user", "content": "He said \"it's\" {{ 1 }} {% if %} <|im_end|> \\n"},
                            {"role": "assistant", "content": "'\"\\"}]},
    "spaces": {"messages": [{"role": "user", "content": "\n\n  in front and behind \t\n"}, {"role": "assistant", "content": "  \n x \n\n"}]},
    "empty": {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]},
    "null": {"messages": [{"role": "user", "content": "x", "name": None}, {"role": "assistant", "content": None}]},
    "thinking": {"messages": [
        {"role": "user", "content": "1?"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\none"},
        {"role": "user", "content": "2?"}, {"role": "assistant", "content": "two", "reasoning_content": "let me\nsee\n"}]},
    "reasoning": {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "reasoning": "so", "content": "one"}]},
    "tools": {"tools": TOOLS, "messages": [
        {"role": "system", "content": "S"}, {"role": "user", "content": "Weather in Köln?"},
        {"role": "assistant", "tool_calls": [call("weather", {"place": "Köln", "days": 2, "more": [], "x": 1.0, "n": None})]},
        {"role": "tool", "content": "{\"degrees\": 21.5}", "tool_call_id": "call12345"}, {"role": "assistant", "content": "21.5 °C."}]},
    "two_calls": {"tools": TOOLS, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call("weather", {"place": "a"}), call("now", {}, "call67890")]},
        {"role": "tool", "content": "1", "tool_call_id": "call12345"}, {"role": "tool", "content": "2", "tool_call_id": "call67890"},
        {"role": "assistant", "content": "1 and 2."}, {"role": "user", "content": "Thanks"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image"}]},
                           {"role": "assistant", "content": "A cat."}]},
    "assistant_first": {"messages": [{"role": "assistant", "content": "Hello?"}, {"role": "user", "content": "Hi"}]},
    "kwargs": {"messages": [{"role": "user", "content": "x"}],
               "variables": {"enable_thinking": False, "date_string": "01 Jan 2025", "tools_in_user_message": False}, "tools": TOOLS[1:]},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, messages, tools=None, add_generation_prompt=False, variables=None, spans=False):
    messages = chat_template_utils._normalize_chat_messages(messages)  # apply_chat_template does this first
    try:
        texts, indices = chat_template_utils.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=add_generation_prompt,
            return_assistant_tokens_mask=spans, **(variables or {}))
    except Exception as error:  # whatever a template may raise
        return {"error": f"{type(error).__name__}: {error}"}
    result = {"text": texts[0]}
    if spans:
        result["assistant"] = [texts[0][begin:end] for begin, end in indices[0]]
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/fixtures/chat_templates")
    out = parser.parse_args().out
    lines = (out / "constructs.txt").read_text().splitlines()
    joined = ["\n".join(lines[i:i + size]) for size in (3, 7) for i in range(len(lines) - size + 1)]
    constructs = lines + [text for text in joined if "text" in render(text, MESSAGES, variables=VARIABLES)]
    expected = {
        "messages": MESSAGES, "variables": VARIABLES, "tokens": TOKENS, "conversations": CONVERSATIONS,
        "constructs": [{"template": text, **render(text, MESSAGES, variables=VARIABLES)} for text in constructs], "templates": {}}
    for path in sorted(out.glob("*.jinja")):
        template = path.read_text()
        expected["templates"][path.name] = [
            {"conversation": name, "add_generation_prompt": asks,
             **render(template, one["messages"], one.get("tools"), asks, {**TOKENS, **one.get("variables", {})}, "{% generation %}" in template)}
            for name, one in CONVERSATIONS.items() for asks in (False, True)]
    (out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
