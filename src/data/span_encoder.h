// data/span_encoder.h — the ids of a text, and which of them lie in given spans of it
//
// Ids are those of the whole text, without what the tokenizer puts around it. A token belongs to a span when it has a byte of it, as
// with transformers' return_assistant_tokens_mask: one that crosses a span's end belongs to it.
//
// Method: every token has a length, the bytes of text that it stands for, so that tokens have places as soon as the lengths add up to
//   the text and its decoding is the text. Where they do not (a normalizer changed it, spaces were put before it or swallowed by an
//   added token), the parts between the spans' ends are encoded one by one, each behind what stands before it; their lengths, which
//   must add up to that of the whole, are the places. As a last resort this is done with two parts for each end by itself, for 64 ends at
//   most. What is still not told is refused. Time O(n log n).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/sample.h"
#include "formats/chat_template/chat_template.h"
#include "formats/tokenizer/tokenizer.h"

namespace snug {

class SpanEncoder {
 public:
  explicit SpanEncoder(const Tokenizer& tokenizer, const EncodeOptions& options);

  // Spans are in order and do not overlap. None when their tokens cannot be told.
  std::optional<Sample> encode(std::string_view text, std::span<const TextSpan> spans);
  std::vector<int32_t> ids(std::string_view text);

 private:
  int64_t length(std::span<const int32_t> ids) const;
  bool stands_for(std::string_view text, std::span<const int32_t> ids) const;
  std::vector<int64_t> places_by_parts(std::string_view text, std::span<const size_t> ends);

  const Tokenizer& tokenizer_;
  TextEncoder encoder_;
  std::vector<int32_t> lengths_;  // by id
  std::vector<bool> added_;       // by id
  bool strips_ = false;           // a part's ends would be stripped, too
  bool changes_nothing_ = false;  // tokens stand for the bytes of the text, one behind the other
};

}  // namespace snug
