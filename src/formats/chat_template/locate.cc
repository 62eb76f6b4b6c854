#include "formats/chat_template/locate.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/errors.h"
#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

template <typename... Args>
[[noreturn]] void refuse(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  throw_user(ExitCode::kBadFile,
             "{}: the assistant's turns cannot be located: {}. Expected {{% generation %}} … {{% "
             "endgeneration %}} around them, or "
             "another template",
             file, fmt::format(format, std::forward<Args>(args)...));
}

std::string excerpt(std::string_view text) {
  return repr(text.size() > 60 ? std::string(text.substr(0, character_offset(text, 40))) + "…"
                               : std::string(text));
}

// Without the white space behind the end-of-turn token.
TextSpan trimmed(std::string_view text, TextSpan span) {
  span.end =
      span.begin + strip(text.substr(span.begin, span.end - span.begin), std::nullopt, false, true).size();
  return span;
}

std::vector<TextSpan> generation_spans(const std::string& file, const Rendered& whole) {
  if (whole.generation_is_hidden)
    refuse(file, "{{% generation %}} stands inside a macro, filter or set block");
  std::vector<TextSpan> spans = whole.generation;
  std::sort(spans.begin(), spans.end(),
            [](const TextSpan& a, const TextSpan& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].begin < spans[i - 1].end) refuse(file, "{{% generation %}} blocks lie in one another");
  return spans;
}

// The one turn of each message; none when a message wrote in several places or in none.
std::optional<std::vector<TextSpan>> turns_of(const Rendered& rendered, const std::vector<size_t>& messages) {
  std::vector<TextSpan> turns;
  for (const size_t message : messages) {
    const auto is_it = [&](const Turn& turn) { return turn.message == message; };
    if (std::count_if(rendered.turns.begin(), rendered.turns.end(), is_it) != 1) return std::nullopt;
    turns.push_back(std::find_if(rendered.turns.begin(), rendered.turns.end(), is_it)->text);
  }
  for (size_t i = 1; i < turns.size(); ++i)
    if (turns[i].begin < turns[i - 1].end) return std::nullopt;
  return turns;
}

// What the template writes behind the first `count` messages to ask for the assistant's words; none when that cannot be told.
std::optional<std::string> generation_prompt(Conversation& conversation, size_t count) {
  Rendered asked = conversation.render(count, true);
  const auto last = turns_of(asked, {count - 1});
  if (last && asked.turns.back().text == last->front()) return asked.text.substr(last->front().end);
  const Rendered unasked = conversation.render(count, false);
  if (!asked.text.starts_with(unasked.text)) return std::nullopt;
  return asked.text.substr(unasked.text.size());
}

// Whether what others say behind a turn of the assistant's stands within it, as results of tools do with some templates: such a message
// wrote nothing while it was the loop's item itself. More than kMaxPrefixTurns of them are not looked for: then it may be.
bool hold_words_of_others(const std::vector<TextSpan>& turns, const std::vector<size_t>& assistant,
                          const Conversation& conversation, const Rendered& whole) {
  std::vector<bool> wrote(conversation.size());
  for (const Turn& turn : whole.turns) wrote[turn.message] = true;
  size_t searches = 0;
  for (size_t i = 0; i < assistant.size(); ++i) {
    const size_t end = i + 1 < assistant.size() ? assistant[i + 1] : conversation.size();
    for (size_t message = assistant[i] + 1; message < end; ++message) {
      const std::string_view words = strip(conversation.content(message));
      if (wrote[message] || words.empty()) continue;
      if (++searches > kMaxPrefixTurns) return true;
      // In linear time, which std::string_view::find does not promise.
      if (::memmem(whole.text.data() + turns[i].begin, turns[i].end - turns[i].begin, words.data(),
                   words.size()) != nullptr)
        return true;
    }
  }
  return false;
}

std::vector<TextSpan> prefix_spans(Conversation& conversation, const std::string& file, const Rendered& whole,
                                   const std::vector<size_t>& assistant) {
  if (assistant.size() > kMaxPrefixTurns)
    refuse(file, "{} turns would have to be rendered one after the other, at most {} are", assistant.size(),
           kMaxPrefixTurns);
  std::vector<TextSpan> spans;
  for (const size_t message : assistant) {
    if (message == 0) refuse(file, "the conversation begins with one");
    const std::string before = conversation.render(message, true).text;
    if (!whole.text.starts_with(before))
      refuse(file,
             "what it writes for the {} messages before a turn (ending in {}) is not what the whole "
             "conversation begins with",
             message,
             excerpt(std::string_view(before).substr(before.size() - std::min<size_t>(before.size(), 40))));
    const std::string up_to = conversation.render(message + 1, false).text;
    if (!whole.text.starts_with(up_to) || up_to.size() < before.size())
      refuse(file,
             "what it writes for the {} messages up to a turn is not what the whole conversation begins with",
             message + 1);
    // Nothing could be learned of it, and no count of samples would say why.
    if (up_to.size() == before.size()) refuse(file, "it writes nothing for message {}", message);
    spans.push_back(trimmed(whole.text, {before.size(), up_to.size()}));
  }
  return spans;
}

}  // namespace

std::vector<TextSpan> locate_assistant(Conversation& conversation, const Template& source,
                                       const std::string& file, const Rendered& whole) {
  if (source.has_generation) return generation_spans(file, whole);
  std::vector<size_t> assistant;
  for (size_t i = 0; i < conversation.size(); ++i)
    if (conversation.is_assistant(i)) assistant.push_back(i);
  if (assistant.empty()) return {};
  const size_t asked = assistant.front() > 0 ? assistant.front() : assistant.size() > 1 ? assistant[1] : 0;
  if (asked == 0) refuse(file, "the conversation begins with one");

  auto turns = turns_of(whole, assistant);
  if (turns && hold_words_of_others(*turns, assistant, conversation, whole)) turns.reset();
  const auto prompt = turns ? generation_prompt(conversation, asked) : std::nullopt;
  if (!prompt) return prefix_spans(conversation, file, whole, assistant);
  std::vector<TextSpan> spans;
  for (size_t i = 0; i < assistant.size(); ++i) {
    TextSpan turn = (*turns)[i];
    const std::string_view text = std::string_view(whole.text).substr(turn.begin, turn.end - turn.begin);
    if (!text.starts_with(*prompt))
      refuse(file, "the turn of message {} begins with {} and not with the generation prompt {}",
             assistant[i], excerpt(text), excerpt(*prompt));
    turn.begin += prompt->size();
    spans.push_back(trimmed(whole.text, turn));
  }
  return spans;
}

}  // namespace snug::jinja
