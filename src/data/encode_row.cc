#include "data/encode_row.h"

#include <algorithm>

#include "base/errors.h"
#include "base/json.h"

namespace snug {
namespace {

[[noreturn]] void fail(const RowPlace& place, std::string_view what) {
  throw_user(ExitCode::kBadFile, "{}:{}: {}", place.file, place.line, what);
}

bool begins_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& prefix) {
  return ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
}

void append(Sample& sample, const std::vector<int32_t>& ids, bool supervised) {
  sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
  sample.supervised.resize(sample.ids.size(), supervised);
}

// The spans of the messages that are learned.
std::vector<TextSpan> learned_spans(const ChatRow& row, const RenderedChat& chat, const RowPlace& place) {
  std::vector<bool> learned;  // of the assistant's messages
  for (size_t i = 0; i < row.messages.size(); ++i) {
    const Json& message = row.messages[i];
    if (message.at("role") != "assistant") continue;
    const auto weight = message.find("weight");
    learned.push_back(static_cast<int64_t>(i) >= row.learned_from &&
                      (weight == message.end() || *weight != 0));
  }
  if (std::find(learned.begin(), learned.end(), false) == learned.end()) return chat.assistant;
  if (learned.size() != chat.assistant.size())
    fail(place, fmt::format("has {} messages of the assistant, not all of them to learn, and the chat "
                            "template marks {} turns; expected "
                            "as many",
                            learned.size(), chat.assistant.size()));
  std::vector<TextSpan> spans;
  for (size_t i = 0; i < learned.size(); ++i)
    if (learned[i]) spans.push_back(chat.assistant[i]);
  return spans;
}

}  // namespace

RowEncoder::RowEncoder(const RowEncoding& encoding) : encoding_(encoding) {
  if (encoding_.tokenizer == nullptr) return;
  encoder_.emplace(*encoding_.tokenizer, EncodeOptions{.special_as_text = encoding_.special_as_text});
  if (encoding_.special_as_text) chat_encoder_.emplace(*encoding_.tokenizer, EncodeOptions{});
  const TokenizerSpec& spec = encoding_.tokenizer->spec();
  puts_spaces_first_ =
      std::any_of(spec.normalizer.begin(), spec.normalizer.end(),
                  [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::kPrepend; }) ||
      std::any_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(), [](const PreTokenizerStep& step) {
        return step.add_prefix_space || step.prepend != PreTokenizerStep::Prepend::kNever;
      });
}

// Of a text that another one stands before.
std::vector<int32_t> RowEncoder::continuation_ids(std::string_view text) {
  if (puts_spaces_first_) {
    // Behind these there is no space that the text does not have; behind the second one also where the text begins with a line feed.
    for (const std::string before : {"\n", "a"}) {
      const std::vector<int32_t> before_ids = encoder_->ids(before);
      std::vector<int32_t> both = encoder_->ids(before + std::string(text));
      if (!begins_with(both, before_ids)) continue;
      both.erase(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(before_ids.size()));
      return both;
    }
  }
  return encoder_->ids(text);
}

// What the tokenizer puts before a text, unless its ids begin with that.
void RowEncoder::begin_text(Sample& sample, const std::vector<int32_t>& ids) const {
  const std::vector<int32_t>& before = encoding_.tokenizer->spec().before;
  if (!begins_with(ids, before)) append(sample, before, encoding_.train_on_inputs);
}

// What the tokenizer puts behind a text, and one end of text.
void RowEncoder::end_text(Sample& sample) const {
  append(sample, encoding_.tokenizer->spec().after, true);
  if (encoding_.end_of_text && (sample.ids.empty() || sample.ids.back() != *encoding_.end_of_text))
    append(sample, {*encoding_.end_of_text}, true);
}

// Contents that spell a special token could end a turn that goes on.
void RowEncoder::refuse_special_tokens(const ChatRow& row, const RowPlace& place) {
  for (size_t i = 0; i < row.messages.size(); ++i) {
    const auto content = row.messages[i].find("content");
    if (content == row.messages[i].end() || !content->is_string()) continue;
    for (const int32_t id : chat_encoder().ids(content->get_ref<const std::string&>()))
      if (encoding_.tokenizer->is_special(id))
        fail(place, fmt::format("messages[{}].content contains {}, a special token; expected text", i,
                                quote_json(Json(std::string(*encoding_.tokenizer->id_to_token(id))))));
  }
}

Json RowEncoder::variables_of(const ChatRow& row, const RowPlace& place) const {
  if (row.variables.is_null()) return encoding_.variables;
  if (const auto wrong = wrong_variables(row.variables))
    fail(place, fmt::format("chat_template_kwargs {}", *wrong));
  Json variables = encoding_.variables;
  if (variables.is_null()) variables = Json::object();
  variables.update(row.variables);
  return variables;
}

Sample RowEncoder::encode(const Row& row, const RowPlace& place) {
  if (!encoder_ && !std::holds_alternative<TokenRow>(row))
    fail(place, "has text, and the model's directory no tokenizer for it; expected input_ids");
  Sample sample = std::visit([&](const auto& kind) { return encode_row(kind, place); }, row);
  if (sample.ids.empty()) fail(place, "makes no tokens; expected at least one");
  for (size_t i = 0; i < sample.ids.size(); ++i)
    if (sample.ids[i] < 0 || sample.ids[i] >= encoding_.vocabulary)
      fail(place, fmt::format("token {} has id {}; expected ids below the model's vocab_size ({})", i,
                              sample.ids[i], encoding_.vocabulary));
  return sample;
}

Sample RowEncoder::encode_row(const TextRow& row, const RowPlace&) {
  Sample sample;
  const std::vector<int32_t> text = encoder_->ids(row.text);
  begin_text(sample, text);
  append(sample, text, true);
  sample.supervised.assign(sample.ids.size(), true);
  end_text(sample);
  return sample;
}

Sample RowEncoder::encode_row(const CompletionRow& row, const RowPlace&) {
  Sample sample;
  const std::vector<int32_t> prompt = encoder_->ids(row.prompt);
  std::vector<int32_t> completion = encoder_->ids(row.prompt + row.completion);
  if (begins_with(completion, prompt))
    completion.erase(completion.begin(), completion.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  else
    completion = continuation_ids(row.completion);
  begin_text(sample, prompt);
  append(sample, prompt, encoding_.train_on_inputs);
  append(sample, completion, true);
  end_text(sample);
  return sample;
}

Sample RowEncoder::encode_row(const ChatRow& row, const RowPlace& place) {
  if (encoding_.chat_template == nullptr)
    fail(place, "is a conversation, and the model has no chat template to write it with");
  if (encoding_.special_as_text) refuse_special_tokens(row, place);
  const Json variables = variables_of(row, place);
  RenderedChat chat;
  try {
    chat = encoding_.chat_template->render({.messages = row.messages,
                                            .tools = row.tools,
                                            .variables = variables,
                                            .locate_assistant = !encoding_.train_on_inputs});
  } catch (const UserError& error) {
    fail(place, error.what());
  }
  if (encoding_.train_on_inputs) {
    Sample sample;
    append(sample, chat_encoder().ids(chat.text), true);
    return sample;
  }
  std::optional<Sample> sample = chat_encoder().encode(chat.text, learned_spans(row, chat, place));
  if (!sample) fail(place, "which tokens the assistant's words are cannot be told with this tokenizer");
  return std::move(*sample);
}

Sample RowEncoder::encode_row(const SegmentRow& row, const RowPlace&) {
  Sample sample;
  for (size_t i = 0; i < row.segments.size();) {
    const bool learned = row.segments[i].learned;
    std::string text = row.segments[i].text;
    for (++i; i < row.segments.size() && row.segments[i].learned == learned; ++i)
      text += row.segments[i].text;
    append(sample, sample.ids.empty() ? encoder_->ids(text) : continuation_ids(text),
           learned || encoding_.train_on_inputs);
  }
  return sample;
}

Sample RowEncoder::encode_row(const TokenRow& row, const RowPlace&) {
  Sample sample{.ids = row.ids, .supervised = std::vector<bool>(row.ids.size(), true)};
  for (size_t i = 0; i < row.labels.size(); ++i) sample.supervised[i] = row.labels[i] >= 0;
  return sample;
}

}  // namespace snug
