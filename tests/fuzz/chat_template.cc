// A chat template, and what it makes of two conversations: the same each time, and the assistant's turns in order inside the text.
#include "formats/chat_template/chat_template.h"

#include "fuzz_target.h"

namespace {

const snug::Json& conversation() {
  static const snug::Json messages = snug::parse_json(
      R"([{"role":"system","content":" Be brief. "},{"role":"user","content":"Hello <b>\n"},)"
      R"({"role":"assistant","content":"<think>x</think> Hi!","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":[1,null]}}}]},)"
      R"({"role":"tool","name":"f","content":"{\"r\": 1.5}"},{"role":"user","content":[{"type":"text","text":"\u00e9?"}]},)"
      R"({"role":"assistant","content":"Yes."}])",
      "messages");
  return messages;
}

const snug::Json& short_conversation() {
  static const snug::Json messages =
      snug::parse_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])", "messages");
  return messages;
}

const snug::Json& tools() {
  static const snug::Json list = snug::parse_json(
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}])",
      "tools");
  return list;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  static const Json variables = parse_json(R"({"enable_thinking":true})", "variables");
  fuzz::read_or_refuse([&] {
    const ChatTemplate chat =
        ChatTemplate::parse(std::string(fuzz::as_text(data, size)), "t.jinja",
                            parse_json(R"({"bos_token":"<s>","eos_token":"</s>"})", "t"));
    for (const ChatInput& input :
         {ChatInput{
              .messages = conversation(), .tools = tools(), .variables = variables, .locate_assistant = true},
          ChatInput{.messages = short_conversation(), .add_generation_prompt = true},
          ChatInput{.messages = short_conversation(), .locate_assistant = true}})
      fuzz::read_or_refuse([&] {
        const RenderedChat rendered = chat.render(input);
        size_t end = 0;
        for (const TextSpan& span : rendered.assistant) {
          fuzz::check(end <= span.begin && span.begin <= span.end,
                      "the assistant's turns follow one another");
          end = span.end;
        }
        fuzz::check(end <= rendered.text.size(), "the assistant's turns are in the text");
        fuzz::check(chat.render(input).text == rendered.text, "a render can be repeated");
      });
    std::string end_of_turn = chat.end_of_turn();
  });
  return 0;
}
