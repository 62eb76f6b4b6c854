// data/encode_row.h — a row of a data file → the ids of one sample, and which of them are learned
//
//   text          ids of the text with what the tokenizer puts around it, and one end of text; all are learned
//   completion    ids of the prompt, then those of the completion and one end of text, which are learned. Where the prompt's own ids
//                 begin the ids of both together, those are taken; otherwise the two are encoded apart, because a prompt alone is what
//                 the model gets when it is used. What a tokenizer puts before a text is not put there twice
//   conversation  ids of the chat template's text, with nothing around it; the assistant's turns with their end-of-turn tokens are
//                 learned: of the messages from learned_from on, without those of weight 0
//   segments      ids of each run of pieces with the same label by itself, one behind the other, with nothing around them: what is learned
//                 does not change the ids of the prompt before it
//   tokens        as given: an id is learned where its label says so
// With train_on_inputs everything is learned, but for labels that were given. Special tokens that a text spells out become these tokens;
// with special_as_text they stay text, and a conversation that spells one is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/sample.h"
#include "data/span_encoder.h"
#include "formats/chat_template/chat_template.h"
#include "formats/dataset/row.h"
#include "formats/tokenizer/tokenizer.h"

namespace snug {

struct RowEncoding {
  const Tokenizer* tokenizer = nullptr;         // outlives the encoders; none: rows of tokens alone
  const ChatTemplate* chat_template = nullptr;  // outlives them, too; none: no conversations
  Json variables = {};  // of the template, in every conversation (an object, or null); a row's go before them
  std::optional<int32_t> end_of_text;  // none: nothing is put behind a text
  int64_t vocabulary = 0;              // of the model
  bool train_on_inputs = false;
  bool special_as_text = false;
};

// What one thread encodes rows with: it keeps the tokenizer's cache. Any number of them may share a tokenizer.
class RowEncoder {
 public:
  explicit RowEncoder(const RowEncoding& encoding);

  // Throws UserError(kBadFile) that names the place: an id outside the vocabulary, a text that makes no tokens or that the tokenizer
  // cannot split, a row that needs what the model does not have (a tokenizer, a chat template).
  Sample encode(const Row& row, const RowPlace& place);

 private:
  Sample encode_row(const TextRow& row, const RowPlace& place);
  Sample encode_row(const CompletionRow& row, const RowPlace& place);
  Sample encode_row(const ChatRow& row, const RowPlace& place);
  Sample encode_row(const SegmentRow& row, const RowPlace& place);
  Sample encode_row(const TokenRow& row, const RowPlace& place);
  void begin_text(Sample& sample, const std::vector<int32_t>& ids) const;
  SpanEncoder& chat_encoder() { return chat_encoder_ ? *chat_encoder_ : *encoder_; }
  std::vector<int32_t> continuation_ids(std::string_view text);
  void end_text(Sample& sample) const;
  Json variables_of(const ChatRow& row, const RowPlace& place) const;
  void refuse_special_tokens(const ChatRow& row, const RowPlace& place);

  RowEncoding encoding_;
  std::optional<SpanEncoder> encoder_;  // without what the tokenizer puts around a text
  std::optional<SpanEncoder>
      chat_encoder_;  // the same with a template's special tokens, where encoder_ takes them for text
  bool puts_spaces_first_ = false;  // a text on its own gets a space before it
};

}  // namespace snug
