#include "data/encode_row.h"

#include <algorithm>

#include "base/errors.h"

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

}  // namespace

RowEncoder::RowEncoder(const RowEncoding& encoding) : encoding_(encoding) {
  if (encoding_.tokenizer == nullptr) return;
  encoder_.emplace(*encoding_.tokenizer,
                   EncodeOptions{.add_special_tokens = false, .special_as_text = encoding_.special_as_text});
  const TokenizerSpec& spec = encoding_.tokenizer->spec();
  puts_spaces_first_ =
      std::any_of(spec.normalizer.begin(), spec.normalizer.end(),
                  [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::kPrepend; }) ||
      std::any_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(), [](const PreTokenizerStep& step) {
        return step.add_prefix_space || step.prepend != PreTokenizerStep::Prepend::kNever;
      });
}

std::vector<int32_t> RowEncoder::ids(std::string_view text) {
  std::vector<int32_t> ids;
  encoder_->feed(text, ids);
  encoder_->finish(ids);
  return ids;
}

// Of a text that another one stands before.
std::vector<int32_t> RowEncoder::continuation_ids(std::string_view text) {
  if (puts_spaces_first_) {
    // Behind a line feed there is no space that the text does not have.
    constexpr std::string_view kBefore = "\n";
    const std::vector<int32_t> before = ids(kBefore);
    std::vector<int32_t> both = ids(std::string(kBefore) + std::string(text));
    if (begins_with(both, before)) {
      both.erase(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(before.size()));
      return both;
    }
  }
  return ids(text);
}

// What the tokenizer puts behind a text, and one end of text.
void RowEncoder::end_text(Sample& sample) const {
  append(sample, encoding_.tokenizer->spec().after, true);
  if (encoding_.end_of_text && (sample.ids.empty() || sample.ids.back() != *encoding_.end_of_text))
    append(sample, {*encoding_.end_of_text}, true);
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
  append(sample, encoding_.tokenizer->spec().before, true);
  append(sample, ids(row.text), true);
  end_text(sample);
  return sample;
}

Sample RowEncoder::encode_row(const CompletionRow& row, const RowPlace&) {
  Sample sample;
  append(sample, encoding_.tokenizer->spec().before, encoding_.train_on_inputs);
  const std::vector<int32_t> prompt = ids(row.prompt);
  std::vector<int32_t> both = ids(row.prompt + row.completion);
  if (begins_with(both, prompt)) {
    both.erase(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  } else {
    both = continuation_ids(row.completion);
  }
  append(sample, prompt, encoding_.train_on_inputs);
  append(sample, both, true);
  end_text(sample);
  return sample;
}

Sample RowEncoder::encode_row(const ChatRow&, const RowPlace& place) {
  fail(place, "is a conversation, and the model has no chat template to write it with");
}

Sample RowEncoder::encode_row(const TokenRow& row, const RowPlace&) {
  Sample sample{.ids = row.ids, .supervised = std::vector<bool>(row.ids.size(), true)};
  for (size_t i = 0; i < row.labels.size(); ++i) sample.supervised[i] = row.labels[i] >= 0;
  return sample;
}

}  // namespace snug
