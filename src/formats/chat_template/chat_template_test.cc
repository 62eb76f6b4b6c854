// Chat templates against transformers: tests/fixtures/chat_templates holds templates of our own with the constructs of real ones,
// conversations, and what transformers renders for them (tools/make_chat_fixtures.py).
#include "formats/chat_template/chat_template.h"

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string fixture(const std::string& name) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/chat_templates/" + name;
}

const Json& expected() {
  static const Json kExpected = read_json_object(fixture("expected.json"));
  return kExpected;
}

ChatTemplate fixture_template(const std::string& name) {
  return ChatTemplate::parse(read_small_file(fixture(name), Bytes(1 << 20)), name, expected()["tokens"]);
}

Json turns(std::initializer_list<std::pair<const char*, const char*>> list) {
  Json messages = Json::array();
  for (const auto& [role, content] : list) messages.push_back({{"role", role}, {"content", content}});
  return messages;
}

const Json& hello() {
  static const Json kHello = turns({{"user", "Hello"}});
  return kHello;
}

std::string render(const std::string& source, const Json& messages = hello(), const Json& variables = {}) {
  return ChatTemplate::parse(source, "t.jinja").render({.messages = messages, .variables = variables}).text;
}

std::vector<std::string> learned(const ChatTemplate& chat, const Json& messages, const Json& tools = {}) {
  const RenderedChat rendered = chat.render({.messages = messages, .tools = tools, .locate_assistant = true});
  std::vector<std::string> texts;
  for (const TextSpan& span : rendered.assistant)
    texts.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return texts;
}

void expect_refusal(std::string_view fragment, const std::string& source, const Json& messages = hello()) {
  expect_user_error(ExitCode::kBadFile, fragment, [&] { render(source, messages); });
}

TEST(ChatTemplate, EveryConstructIsThatOfJinja) {
  const Json& cases = expected()["constructs"];
  ASSERT_GT(cases.size(), 200u);
  int rendered = 0;
  for (const Json& one : cases) {
    const auto source = one["template"].get<std::string>();
    if (one.contains("error")) {
      EXPECT_THROW(render(source, expected()["messages"], expected()["variables"]), UserError)
          << source << "\n"
          << one["error"];
      continue;
    }
    ++rendered;
    try {
      EXPECT_EQ(render(source, expected()["messages"], expected()["variables"]),
                one["text"].get<std::string>())
          << source;
    } catch (const UserError& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
  }
  EXPECT_GT(rendered, 200);
}

TEST(ChatTemplate, TemplatesLikeRealOnesAreRenderedAsByTransformers) {
  for (const auto& [name, cases] : expected()["templates"].items()) {
    const ChatTemplate chat = fixture_template(name);
    for (const Json& one : cases) {
      const Json& conversation = expected()["conversations"][one["conversation"].get<std::string>()];
      const Json tools = conversation.value("tools", Json()),
                 variables = conversation.value("variables", Json());
      const ChatInput input{.messages = conversation["messages"],
                            .tools = tools,
                            .add_generation_prompt = one["add_generation_prompt"].get<bool>(),
                            .variables = variables,
                            .locate_assistant = one.contains("assistant")};
      SCOPED_TRACE(name + ", " + one.dump());
      if (one.contains("error")) {
        EXPECT_THROW(chat.render(input), UserError);
        continue;
      }
      const RenderedChat rendered = chat.render(input);
      EXPECT_EQ(rendered.text, one["text"].get<std::string>());
      if (!input.locate_assistant) continue;
      std::vector<std::string> spans;
      for (const TextSpan& span : rendered.assistant)
        spans.push_back(rendered.text.substr(span.begin, span.end - span.begin));
      EXPECT_EQ(spans, one["assistant"].get<std::vector<std::string>>());
    }
  }
}

// --- What is learned

TEST(AssistantTurns, HoldTheirWordsAndTheEndOfTurn) {
  const Json talk =
      turns({{"system", "S"}, {"user", "a"}, {"assistant", "b "}, {"user", "c"}, {"assistant", "d"}});
  EXPECT_THAT(learned(fixture_template("chatml.jinja"), talk), ElementsAre("b <|im_end|>", "d<|im_end|>"));
  EXPECT_THAT(learned(fixture_template("qwen25.jinja"), talk), ElementsAre("b <|im_end|>", "d<|im_end|>"));
  EXPECT_THAT(learned(fixture_template("llama3.jinja"), talk), ElementsAre("b<|eot_id|>", "d<|eot_id|>"));
  // Its </s> stands behind the last turn only, and is no end of a turn.
  EXPECT_THAT(learned(fixture_template("phi35.jinja"), talk), ElementsAre("b <|end|>", "d<|end|>"));
  // The system message moves to the last question: no render of a part is the beginning of the whole.
  EXPECT_THAT(learned(fixture_template("mistral_nemo.jinja"), talk), ElementsAre("b </s>", "d</s>"));
  // The last answer has an empty thought before it, which the model is to write.
  EXPECT_THAT(learned(fixture_template("qwen3.jinja"), talk),
              ElementsAre("b <|im_end|>", "<think>\n\n</think>\n\nd<|im_end|>"));
  EXPECT_THAT(learned(fixture_template("gemma2.jinja"), turns({{"user", "a"}, {"assistant", "b"}})),
              ElementsAre("b<end_of_turn>"));
}

TEST(AssistantTurns, HoldCallsOfTools) {
  const Json& conversation = expected()["conversations"]["tools"];
  EXPECT_THAT(learned(fixture_template("qwen3.jinja"), conversation["messages"], conversation["tools"]),
              ElementsAre(HasSubstr("\"name\": \"weather\", \"arguments\": {\"place\": \"Köln\""),
                          "<think>\n\n</think>\n\n21.5 °C.<|im_end|>"));
  EXPECT_THAT(
      learned(fixture_template("mistral_nemo.jinja"), conversation["messages"], conversation["tools"]),
      ElementsAre(testing::StartsWith("[TOOL_CALLS][{\"name\": \"weather\""), "21.5 °C.</s>"));
}

TEST(AssistantTurns, OfGenerationBlocksAreTheBlocks) {
  const ChatTemplate chat = fixture_template("generation.jinja");
  EXPECT_TRUE(chat.marks_generation());
  EXPECT_THAT(learned(chat, turns({{"user", "ä"}, {"assistant", "b"}, {"user", "c"}, {"assistant", " d "}})),
              ElementsAre("b<|end|>", " d <|end|>"));
  // Even where the conversation begins with one.
  EXPECT_THAT(learned(chat, turns({{"assistant", "b"}})), ElementsAre("b<|end|>"));
}

TEST(AssistantTurns, OfTemplatesWithoutALoopOverMessagesAreFoundByPrefixes) {
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for i in range(messages|length) %}[{{ messages[i].role }}] {{ messages[i].content }}<e>\n{% endfor "
      "%}\n"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "t");
  EXPECT_THAT(learned(chat, turns({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}})),
              ElementsAre(" b<e>", " d<e>"));
  EXPECT_EQ(chat.end_of_turn(), "<e>");
}

// A template that writes a tool's answer while the call is the loop's item: the answer is not the model's.
TEST(AssistantTurns, DoNotHoldWhatOthersSay) {
  const auto chat = [](std::string_view behind_calls) {
    return ChatTemplate::parse(
        "{% for m in messages %}{% if m.role != 'tool' %}[{{ m.role }}]{{ m.content }}"
        "{% if m.role == 'assistant' and not loop.last and messages[loop.index].role == 'tool' %}"
        "({{ messages[loop.index].content }}){% endif %}" +
            std::string(behind_calls) +
            "\n{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
        "t");
  };
  const Json talk = turns({{"user", "a"},
                           {"assistant", "call"},
                           {"tool", "result"},
                           {"assistant", "b"},
                           {"user", "c"},
                           {"assistant", "d"}});
  EXPECT_THAT(learned(chat(""), talk), ElementsAre("call", "b", "d"));
  // Where the call has an end behind the answer, it does not begin as the whole does.
  expect_user_error(ExitCode::kBadFile, "up to a turn is not what the whole conversation begins with",
                    [&] { learned(chat("<e>"), talk); });
}

TEST(AssistantTurns, ThatCannotBeLocatedAreRefusedWithTheReason) {
  const Json talk = turns({{"user", "a"}, {"assistant", "b"}});
  const auto refused = [](std::string_view reason, const ChatTemplate& chat, const Json& messages) {
    expect_user_error(ExitCode::kBadFile, reason, [&] { learned(chat, messages); });
    EXPECT_THAT(chat.render({.messages = messages}).text, Not(IsEmpty()));  // only where they are asked for
  };
  refused(
      "begins with '<｜Assistant｜>b<｜end｜>' and not with the generation prompt '<｜Assistant｜><think>",
      fixture_template("r1_distill.jinja"), talk);
  refused("the conversation begins with one", fixture_template("chatml.jinja"),
          turns({{"assistant", "b"}, {"user", "a"}}));
  const char* kDropping =
      "{% for i in range(messages|length) %}{% if i + 1 == messages|length or messages[i].role == 'user' "
      "%}({{ messages[i].content }})"
      "{% endif %}{% endfor %}";
  refused("up to a turn is not what the whole conversation begins with", ChatTemplate::parse(kDropping, "t"),
          turns({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}}));
  refused("it writes nothing for message 1", ChatTemplate::parse("hello", "t"), talk);
  refused("it writes nothing for message 1",
          ChatTemplate::parse(
              "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", "t"),
          talk);
  refused("inside a macro",
          ChatTemplate::parse(
              "{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m('x') }}", "t"),
          talk);
  EXPECT_THAT(learned(fixture_template("chatml.jinja"), turns({{"user", "a"}})), IsEmpty());
}

TEST(AssistantTurns, EndWithTheTokenThatGenerationStopsAt) {
  EXPECT_EQ(fixture_template("chatml.jinja").end_of_turn(), "<|im_end|>");
  EXPECT_EQ(fixture_template("llama3.jinja").end_of_turn(), "<|eot_id|>");
  EXPECT_EQ(fixture_template("gemma2.jinja").end_of_turn(), "<end_of_turn>");
  EXPECT_EQ(fixture_template("phi35.jinja").end_of_turn(), "<|end|>");
  EXPECT_EQ(fixture_template("mistral_nemo.jinja").end_of_turn(), "</s>");
  EXPECT_EQ(fixture_template("generation.jinja").end_of_turn(), "<|end|>");
  EXPECT_EQ(ChatTemplate::parse("nothing", "t").end_of_turn(), "");
}

// --- Errors

TEST(ChatTemplate, ErrorsNameFileAndLine) {
  expect_refusal("t.jinja:2: found {% include %}", "a\n{% include 'x' %}");
  expect_refusal("t.jinja:1: found {% import %}", "{% import 'x' as y %}");
  expect_refusal("t.jinja:1: found {% from %}", "{% from 'x' import y %}");
  expect_refusal("t.jinja:3: found {% extends %}", "\n\n{% extends 'x' %}");
  expect_refusal("t.jinja:1: found {% block %}", "{% block x %}{% endblock %}");
  expect_refusal("t.jinja:1: found {% autoescape %}", "{% autoescape true %}{% endautoescape %}");
  expect_refusal("t.jinja:1: found {% do %}", "{% do x.append(1) %}");
  expect_refusal("t.jinja:1: found {% jump %}, which is no statement", "{% jump %}");
  expect_refusal("t.jinja:2: found the filter 'urlize'", "{% if false %}\n{{ 'a'|urlize }}{% endif %}");
  expect_refusal("t.jinja:1: found the test 'is red'", "{{ 'a' is red }}");
  expect_refusal(
      "t.jinja:3: the template ends inside {% if %}; expected {% elif %} or {% else %} or {% endif %}",
      "{% if true %}\nx\n{{ 1 }}");
  expect_refusal("t.jinja:1: found {% endfor %} inside {% if %}", "{% if true %}{% endfor %}");
  expect_refusal("t.jinja:1: a text in quotes has no end", "{{ 'abc }}");
  expect_refusal("t.jinja:2: expected '}}', found 'b'", "x\n{{ a b }}");
  expect_refusal("t.jinja:1: expected an expression, found '}}'", "{{ }}");
  expect_refusal("t.jinja:2: a comment has no end", "\n{# x");
  expect_refusal("t.jinja:1: 'x' is undefined", "{{ x.y }}");
  expect_refusal("t.jinja:4: unsupported operand types for +: 'str' and 'int'",
                 "{{ 1 }}\n{% if true %}\n\n{{ 'a' + 1 }}{% endif %}");
  expect_refusal("t.jinja:2: the template refuses the conversation: roles must alternate",
                 "\n{{ raise_exception('roles must alternate') }}");
  expect_refusal("t.jinja:1: access to 'append' is unsafe", "{{ [].append(1) }}");
  expect_refusal("t.jinja:1: found 'encode' of a str", "{{ 'a'.encode() }}");
  expect_refusal("t.jinja:1: a method has no text that is the same twice", "{{ {}.items }}");
  expect_refusal("t.jinja:1: found 'cycler', which Snug's chat templates do not have", "{{ cycler(1) }}");
  expect_refusal("t.jinja:1: found \\N: characters by name", "{{ '\\N{BULLET}' }}");
  expect_user_error(ExitCode::kBadFile, "t: byte 1 is not UTF-8", [] { ChatTemplate::parse("a\xFF", "t"); });
}

TEST(ChatTemplate, CapitalsAreThoseOfPython) {
  EXPECT_EQ(render("{{ 'ẖ ᾀ ὐ ΐ ᾷ ﬃ ß ŉ ǆ'|upper }}"),
            "H\u0331 ἈΙ Υ\u0313 \u0399\u0308\u0301 Α\u0342Ι FFI SS ʼN Ǆ");
  EXPECT_EQ(render("{{ 'ᾀ ᾲ ﬃ ß ǆ ǅ'.title() }}"), "ᾈ Ὰ\u0345 Ffi Ss ǅ ǅ");
  EXPECT_EQ(render("{{ 'ᎠẞςİſΣ'.casefold() }} {{ 'aÉǅ'.swapcase() }} {{ 'ΟΔΟΣ İ'|lower }}"),
            "Ꭰssσi\u0307sσ Aéǅ οδος i\u0307");
}

TEST(ChatTemplate, MessagesAreChecked) {
  expect_refusal("messages is []", "x", Json::array());
  expect_refusal("messages is \"a\" (string)", "x", "a");
  expect_refusal("messages[1] is 3", "x", Json::array({Json::object(), 3}));
  expect_refusal("18446744073709551615", "x", Json::array({{{"role", 18446744073709551615u}}}));
}

TEST(ChatTemplate, TheDateIsTheCallers) {
  const ChatTemplate chat = ChatTemplate::parse("{{ strftime_now('%d %b %Y, %A %H:%M') }}", "t");
  EXPECT_EQ(chat.render({.messages = hello()}).text, "26 Jul 2024, Friday 00:00");
  EXPECT_EQ(chat.render({.messages = hello(), .date = "2026-03-01"}).text, "01 Mar 2026, Sunday 00:00");
  expect_user_error(ExitCode::kBadFile, "the date is \"tomorrow\"; expected YYYY-MM-DD",
                    [&] { chat.render({.messages = hello(), .date = "tomorrow"}); });
}

// --- Bounds: each would run for ever, or fill the memory

TEST(ChatTemplateBounds, NestingIsBounded) {
  const auto nested = [](size_t depth, const std::string& open, const std::string& middle,
                         const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += middle;
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_EQ(render("{{ " + nested(90, "(", "1", ")") + " }}"), "1");
  expect_refusal("nested more than 100 deep", "{{ " + nested(30'000, "[", "1", "]") + " }}");
  expect_refusal("nested more than 100 deep", "{{ " + nested(30'000, "not ", "1", "") + " }}");
  expect_refusal("nested more than 100 deep", "{{ " + nested(30'000, "-", "1", "") + " }}");
  expect_refusal("nested more than 100 deep", "{% set " + nested(30'000, "(", "a", ")") + " = 1 %}");
  expect_refusal("nested more than 100 deep", nested(5'000, "{% if true %}", "x", "{% endif %}"));
  expect_refusal("more than 400 operations deep", "{{ 1" + nested(20'000, "+1", "", "") + " }}");
  expect_refusal("more than 400 operations deep", "{{ x" + nested(20'000, ".x", "", "") + " }}");
  expect_refusal("more than 400 operations deep", "{{ 'x'" + nested(20'000, "|trim", "", "") + " }}");
  EXPECT_EQ(render("{% if false %}" + nested(10'000, "{% elif false %}", "x", "") + "{% endif %}"), "");
  expect_refusal("calls and blocks are nested", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_refusal("calls and blocks are nested", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_refusal("values are nested more than 100 deep",
                 "{% set n = namespace(x=[]) %}{% for i in range(10000) %}{% set n.x = [n.x] %}{% endfor %}");
  expect_refusal("bytes; expected a chat template of at most", std::string(300'000, 'x'));
  expect_refusal("words and signs", "{{ [" + nested(70'000, "1,", "", "") + "] }}");
}

TEST(ChatTemplateBounds, StepsAreBounded) {
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  expect_refusal("takes too many steps", loops);
  expect_refusal("Range too big", "{% for a in range(10**9) %}{% endfor %}");
  expect_refusal("Range too big", "{{ range(0, 2**62, 1)|length }}");
  expect_refusal(
      "takes too many steps",
      "{% set l = range(40000)|list %}{% for a in l %}{% if a in l[::-1] %}{% endif %}{% endfor %}");
  expect_refusal("takes too many steps",
                 "{% macro m(n) %}{% for i in range(10) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}{% "
                 "endmacro %}{{ m(20) }}");
}

TEST(ChatTemplateBounds, OutputAndMemoryAreBounded) {
  expect_refusal("writes more than",
                 "{% for a in range(99999) %}0123456789012345678901234567890123456789{% endfor %}");
  expect_refusal("holds too much memory", "{{ 'x' * 10**12 }}");
  expect_refusal("holds too much memory", "{{ [1] * 2**60 }}");
  expect_refusal("holds too much memory", "{{ 'x'.ljust(10**12) }}");
  expect_refusal("holds too much memory", "{{ 'x'|indent(10**15) }}");
  expect_refusal("holds too much memory", "{{ ('x' * 3000000)|replace('x', 'y' * 1000) }}");
  expect_refusal(
      "holds too much memory",
      "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}");
  expect_refusal(
      "holds too much memory",
      "{% set n = namespace(x=[0]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}");
  // Values that share parts are small until they are written.
  const std::string shared =
      "{% set n = namespace(x=[0]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}";
  EXPECT_EQ(render(shared), "");
  expect_refusal("t.jinja:1: the template", shared + "{{ n.x }}");
  expect_refusal("t.jinja:1: the template", shared + "{{ n.x|tojson }}");
  expect_refusal("takes too many steps", shared +
                                             "{% set m = namespace(x=[0]) %}{% for i in range(60) %}{% set "
                                             "m.x = [m.x, m.x] %}{% endfor %}{{ m.x == n.x }}");
}

TEST(ChatTemplateBounds, ValuesThatHoldThemselvesAreFreed) {
  // Run with a leak checker, and with a small stack for the chains.
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}x"), "x");
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in range(20000) %}{% set prev = n.c %}{% macro m() "
                   "%}{{ prev }}{% endmacro %}"
                   "{% set n.c = m %}{% endfor %}x"),
            "x");
  EXPECT_EQ(render("{% set n = namespace() %}{% macro f() %}{% set n.c = caller %}{{ caller() }}{% endmacro "
                   "%}{% for i in range(9000) %}"
                   "{% set prev = n.c %}{% call f() %}{% endcall %}{% endfor %}x"),
            "x");
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in range(20000) %}{% set prev = n.l %}{% for j in [1] "
                   "%}{% set n.l = loop %}"
                   "{% if loop.changed(loop) %}{% endif %}{% endfor %}{% endfor %}x"),
            "x");
  expect_refusal("values are nested",
                 "{% set n = namespace() %}{% for i in range(20000) %}{% for j in [n.l] %}{% set n.l = loop "
                 "%}{% endfor %}{% endfor %}");
}

TEST(ChatTemplate, SomeNamesAreNotForVariablesFromOutside) {
  EXPECT_EQ(
      wrong_variables({{"enable_thinking", false}, {"documents", Json::array()}, {"date_string", "today"}}),
      std::nullopt);
  EXPECT_EQ(wrong_variables(Json::object()), std::nullopt);
  EXPECT_EQ(wrong_variables(5), "is 5 (number); expected an object of the chat template's variables");
  for (const std::string name : {"messages", "add_generation_prompt", "tokenize", "bos_token"})
    EXPECT_THAT(wrong_variables({{"a", 1}, {name, 1}}).value(),
                testing::StartsWith("sets " + name + "; expected"));
  Json many = Json::object();
  for (int i = 0; i < 101; ++i) many[std::to_string(i)] = i;
  EXPECT_EQ(wrong_variables(many), "has 101 names; expected at most 100");
}

TEST(ChatTemplateBounds, LongConversationsAreLinear) {
  Json talk = Json::array();
  for (int i = 0; i < 20'000; ++i) {
    talk.push_back({{"role", "user"}, {"content", "question " + std::to_string(i)}});
    talk.push_back({{"role", "assistant"}, {"content", "answer " + std::to_string(i)}});
  }
  const auto spans = learned(fixture_template("chatml.jinja"), talk);
  ASSERT_EQ(spans.size(), 20'000u);
  EXPECT_EQ(spans[19'999], "answer 19999<|im_end|>");
  const std::string large(20'000'000, 'x');
  EXPECT_EQ(
      learned(fixture_template("llama3.jinja"), Json::array({{{"role", "user"}, {"content", large}},
                                                             {{"role", "assistant"}, {"content", large}}})),
      std::vector<std::string>{large + "<|eot_id|>"});
}

}  // namespace
}  // namespace snug
