// formats/tokenizer/tokenizer_spec.h — what a tokenizer file says, checked, as plain data
//
// Nested sequences of the file are laid out flat, in order. Only what Snug runs can be said here: everything
// else was refused by name while the file was read (tokenizer_json.h).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tokenizer/unicode.h"

namespace snug {

// What is looked for in a text: a literal, or a regular expression as Oniguruma reads it.
struct TextPattern {
  bool is_regex = false;
  std::string text;
};

struct NormalizerStep {
  enum class Kind : uint8_t { kForm, kPrepend, kReplace, kLowercase, kStrip };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNFC;            // kForm
  TextPattern pattern = {};                      // kReplace
  std::string content = {};                      // kPrepend, kReplace
  bool strip_left = false, strip_right = false;  // kStrip
};

// What becomes of the places that a pre-tokenizer finds.
enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum class Kind : uint8_t { kByteLevel, kSplit, kDigits, kMetaspace, kPunctuation, kWhiteSpace };
  Kind kind = Kind::kSplit;
  TextPattern pattern = {};                           // kSplit; kByteLevel's when use_regex
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kSplit, kPunctuation; kDigits: isolated or contiguous
  bool invert = false;                                // kSplit
  bool add_prefix_space = false, use_regex = false;   // kByteLevel
  // kMetaspace
  std::string replacement = {};
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  Prepend prepend = Prepend::kNever;
  bool split = true;
};

struct DecoderStep {
  enum class Kind : uint8_t { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace };
  Kind kind = Kind::kByteLevel;
  TextPattern pattern = {};  // kReplace
  std::string content = {};  // kReplace; kStrip: one character; kMetaspace: what stands for a space
  size_t strip_start = 0, strip_stop = 0;
  bool drops_first = false;  // kMetaspace: spaces of the first token are left out
};

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false, normalized = false, lstrip = false, rstrip = false, single_word = false;
  std::string from = {};  // file and field that named it, where that is not the tokenizer's own file
};

// Strings one after the other in one buffer. Grows without ever holding all of it twice: files of short tokens are mostly ends.
class StringList {
 public:
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  void push_back(std::string_view text) {
    bytes_ += text;
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::deque<uint32_t> ends_;  // files are far below 4 GiB
};

struct TokenizerSpec {
  std::string file;  // for messages

  // The vocabulary of the model: tokens[i] has ids[i]. Tokens and ids are each unique; ids are 0 to kMostIds − 1.
  StringList tokens;
  std::vector<int32_t> ids;
  // Pairs of tokens, 2·i and 2·i+1, in order of rank; both and what they make together are in the vocabulary.
  StringList merges;
  bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
  std::optional<std::string> unk_token;

  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<int32_t> before, after;  // ids that the post-processor puts around a text
  bool has_decoder = false;
  std::vector<DecoderStep> decoder;

  // What a user should know: what the file holds and Snug passes over, tokens that only files beside it have. A sentence each.
  std::vector<std::string> notices;
};

inline constexpr int32_t kMostIds = 1 << 24;

}  // namespace snug
