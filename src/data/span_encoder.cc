#include "data/span_encoder.h"

#include <algorithm>
#include <string>

#include "formats/tokenizer/unicode.h"

namespace snug {
namespace {

constexpr size_t kMostEnds = 64;          // for each of which the whole text is encoded once more
constexpr std::string_view kSpace = "▁";  // SentencePiece's

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

// Bytes of text that a token of the vocabulary stands for.
int32_t token_length(std::string_view token, bool bytes) {
  if (bytes) {  // a symbol is a byte
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    return static_cast<int32_t>(token.size()) -
           static_cast<int32_t>(std::count_if(token.begin(), token.end(), continues));
  }
  if (is_byte_token(token)) return 1;
  auto length = static_cast<int32_t>(token.size());
  for (size_t at = token.find(kSpace); at != std::string_view::npos;
       at = token.find(kSpace, at + kSpace.size()))
    length -= static_cast<int32_t>(kSpace.size()) - 1;
  return length;
}

}  // namespace

SpanEncoder::SpanEncoder(const Tokenizer& tokenizer, const EncodeOptions& options)
    : tokenizer_(tokenizer),
      encoder_(tokenizer, {.add_special_tokens = false, .special_as_text = options.special_as_text}),
      lengths_(static_cast<size_t>(tokenizer.largest_id()) + 1),
      added_(lengths_.size()) {
  const TokenizerSpec& spec = tokenizer.spec();
  const bool bytes = std::any_of(
      spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(),
      [](const PreTokenizerStep& step) { return step.kind == PreTokenizerStep::Kind::kByteLevel; });
  for (int32_t id = 0; id <= tokenizer.largest_id(); ++id)
    if (const auto token = tokenizer.id_to_token(id))
      lengths_[static_cast<size_t>(id)] = token_length(*token, bytes);
  strips_ = std::any_of(spec.normalizer.begin(), spec.normalizer.end(),
                        [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::kStrip; });
  changes_nothing_ = bytes && spec.normalizer.empty();
  for (const PreTokenizerStep& step : spec.pre_tokenizer)
    changes_nothing_ = changes_nothing_ && !step.add_prefix_space && step.behavior != SplitBehavior::kRemoved;
  for (const AddedToken& token : spec.added_tokens) {
    changes_nothing_ = changes_nothing_ && !token.lstrip && !token.rstrip;
    lengths_[static_cast<size_t>(token.id)] = token_length(token.content, false);
    added_[static_cast<size_t>(token.id)] = true;
  }
}

std::vector<int32_t> SpanEncoder::ids(std::string_view text) {
  std::vector<int32_t> ids;
  encoder_.feed(text, ids);
  encoder_.finish(ids);
  return ids;
}

int64_t SpanEncoder::length(std::span<const int32_t> ids) const {
  int64_t length = 0;
  for (const int32_t id : ids) length += lengths_[static_cast<size_t>(id)];
  return length;
}

bool SpanEncoder::stands_for(std::string_view text, std::span<const int32_t> ids) const {
  return length(ids) == static_cast<int64_t>(text.size()) &&
         (changes_nothing_ || tokenizer_.decode(ids, false) == text);
}

// Lengths of the text before each end and, last, of the whole as the parts make it.
std::vector<int64_t> SpanEncoder::places_by_parts(std::string_view text, std::span<const size_t> ends) {
  std::vector<int64_t> places;
  std::vector<int32_t> part_ids;
  int64_t place = 0;
  for (size_t i = 0, begin = 0; i <= ends.size(); ++i) {
    const size_t end = i < ends.size() ? ends[i] : text.size();
    const std::string_view part = text.substr(begin, end - begin);
    if (begin == 0) {
      part_ids = ids(part);
      place = length(part_ids);
    } else {
      // Behind an added token a text may begin as at the very beginning, elsewhere it goes on.
      std::string before = "\n";
      if (!part_ids.empty() && added_[static_cast<size_t>(part_ids.back())])
        before = *tokenizer_.id_to_token(part_ids.back());
      const int64_t length_before = length(ids(before));
      part_ids = ids(before + std::string(part));
      place += length(part_ids) - length_before;
    }
    places.push_back(place);
    begin = end;
  }
  return places;
}

std::optional<Sample> SpanEncoder::encode(std::string_view text, std::span<const TextSpan> spans) {
  Sample sample{.ids = ids(text), .supervised = {}};
  sample.supervised.resize(sample.ids.size());
  std::vector<size_t> ends;
  for (const TextSpan& span : spans)
    for (const size_t end : {span.begin, span.end})
      if (ends.empty() || ends.back() < end) ends.push_back(end);
  if (ends.empty()) return sample;

  const int64_t whole = length(sample.ids);
  std::vector<int64_t> places;
  if (stands_for(text, sample.ids)) {
    places.assign(ends.begin(), ends.end());
  } else {
    if (strips_) return std::nullopt;
    places = places_by_parts(text, ends);
    if (places.back() != whole) {
      if (ends.size() > kMostEnds) return std::nullopt;
      for (size_t i = 0; i < ends.size(); ++i) {
        const std::vector<int64_t> two = places_by_parts(text, std::span(ends).subspan(i, 1));
        if (two.back() != whole) return std::nullopt;
        places[i] = two.front();
      }
    }
  }
  const auto place_of = [&](size_t end) {
    return places[static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), end) - ends.begin())];
  };
  int64_t at = 0;
  size_t token = 0;
  for (const TextSpan& span : spans) {
    if (span.begin == span.end) continue;
    const int64_t begin = place_of(span.begin), end = place_of(span.end);
    for (; token < sample.ids.size(); ++token) {
      const int64_t next = at + lengths_[static_cast<size_t>(sample.ids[token])];
      if (next > begin && at < end) sample.supervised[token] = true;
      if (next > end) break;  // it may belong to the next span, too
      at = next;
    }
  }
  return sample;
}

}  // namespace snug
