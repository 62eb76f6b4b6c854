// formats/tokenizer/tokenizer.h — a trained tokenizer: text → ids and ids → text, as the `tokenizers` library does
//
//   const auto tokenizer = Tokenizer::load("models/SmolLM2-135M");
//   std::vector<int32_t> ids = tokenizer->encode("Hello, world");
//   std::string text = tokenizer->decode(ids);
//
// Ids are those of the library for the same tokenizer.json and text. Text that is not UTF-8 is read as Python's
// errors="replace" reads it. TextEncoder and TextDecoder do the same for texts of any length, part by part, in
// bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/bpe.h"
#include "formats/tokenizer/decoder.h"
#include "formats/tokenizer/normalizer.h"
#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/token_finder.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

// Immutable, for any number of threads.
class Tokenizer {
 public:
  // Throws UserError(kBadFile) for what spec alone does not show: merges and added tokens that do not go with the
  // vocabulary, regular expressions that Snug does not read.
  explicit Tokenizer(TokenizerSpec spec);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // A tokenizer.json, or the tokenizer of a model directory (read_tokenizer, tokenizer_json.h).
  static std::unique_ptr<const Tokenizer> load(const std::string& path);

  const TokenizerSpec& spec() const { return spec_; }
  // None for a text that is no token as a whole.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // None for an id that no token has.
  std::optional<std::string_view> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  int32_t largest_id() const { return static_cast<int32_t>(by_id_.size()) - 1; }

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  // Ids without a token give nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

 private:
  friend class TextEncoder;
  friend class TextDecoder;
  void add_tokens();

  TokenizerSpec spec_;
  bool bytes_;        // ByteLevel: pieces are bytes
  StringList extra_;  // added tokens outside the vocabulary
  TokenIds ids_;      // of the vocabulary
  TokenIds extra_ids_;
  std::vector<uint32_t> by_id_;  // 1 + place in spec_.tokens, and behind it in extra_; 0: no token
  std::vector<bool> special_;    // by id
  // Added tokens that the normalizer writes in another way are decoded in that way, as the library does it; and it leaves out special ones
  // by what is written, so that these stay.
  struct Written {
    std::string content;
    bool skipped;  // where special tokens are
  };
  std::unordered_map<int32_t, Written> written_;
  std::optional<BpeModel> model_;
  TokenFinder raw_tokens_;                             // index: in spec_.added_tokens
  TokenFinder normalized_tokens_;                      // the same, found in normalised text
  bool words_matter_ = false, spaces_matter_ = false;  // some raw token has single_word; lstrip
  bool normalized_in_parts_ = true;                    // no token of normalized_tokens_ has either
};

struct EncodeOptions {
  bool add_special_tokens = true;  // what the post-processor puts around a text
  bool special_as_text = false;    // special tokens that are written out in the text are ordinary text
};

// One text after another, each in as many parts as one likes: feed … feed, finish. Holds what is not decided
// yet: a few hundred KB, more only where nothing splits the text. One thread at a time; the tokenizer outlives it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer, const EncodeOptions& options = {});

  // Appends ids that no later text can change.
  void feed(std::string_view text, std::vector<int32_t>& ids);
  // Ends the text; the next feed begins another.
  void finish(std::vector<int32_t>& ids);

  // What later ids follow from beside later text, as bytes: mostly a few. An encoder of the same tokenizer and options that is given them
  // goes on as this one would, in another process too.
  std::string state() const;
  // False, and nothing is changed, for bytes that are no state.
  bool restore(std::string_view state);

 private:
  void begin(std::vector<int32_t>& ids);
  void encode_raw(bool final, std::vector<int32_t>& ids);
  size_t cut_before(std::string_view raw, size_t begin, size_t end) const;
  void section(std::string_view text, bool final, std::vector<int32_t>& ids);
  size_t encode_normalized(std::string_view text, bool final, std::vector<int32_t>& ids);
  size_t split(std::string_view text, const PieceContext& context, std::vector<int32_t>& ids);
  template <typename Run, typename Token>
  size_t find_tokens(const TokenFinder& finder, std::string_view text, bool final, const Run& run,
                     const Token& token, size_t& undecided, size_t& uncuttable) const;

  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeEncoder bpe_;

  bool begun_ = false;
  std::string tail_;           // bytes of a character that is not whole yet
  std::string raw_;            // text that is not encoded yet
  size_t next_try_ = 0;        // encode_raw waits until raw_ has as much
  std::string normalized_;     // of an open section: what is normalised and not encoded yet
  size_t next_split_ = 0;      // it waits until it has as much
  bool section_open_ = false;  // part of the section was taken
  bool first_ = true;          // nothing was taken of the text
  bool mid_piece_ = false;     // part of a piece was encoded
};

// Ids one after the other → text as it becomes whole.
class TextDecoder {
 public:
  explicit TextDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);

  // Appends the characters that `id` completes.
  void push(int32_t id, std::string& text);
  void finish(std::string& text);

 private:
  const Tokenizer& tokenizer_;
  bool skips_special_;
  Decoder decoder_;
};

}  // namespace snug
