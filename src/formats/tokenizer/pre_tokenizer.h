// formats/tokenizer/pre_tokenizer.h — text → pieces that are encoded each by itself
//
// Steps follow one another: each splits every piece of the one before it. A text may be given in parts: what
// could still change with more text is left for the next call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/regex.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

// The first place of a pattern at `from` or later, as Regex::find says it of the subject that subject() made of a text.
class PatternFinder {
 public:
  PatternFinder(const TextPattern& pattern, std::string_view where);
  explicit PatternFinder(bool (*of_class)(char32_t)) : of_class_(of_class) {}

  Regex::Subject subject(std::string_view text) const {
    return regex_ ? regex_->subject(text) : Regex::Subject{text};
  }
  Regex::Found find(const Regex::Subject& subject, size_t from, bool final);
  bool looks_back() const { return regex_ && regex_->looks_back(); }

 private:
  bool (*of_class_)(char32_t) = nullptr;
  std::optional<Regex> regex_;
  std::string literal_;
};

// Where a range of text stands.
struct PieceContext {
  bool starts = true;  // nothing of the section (the text between two added tokens) stands before it
  bool first = true;   // nor does anything of the whole text
  bool final = true;   // no more text of the section follows
};

// Not for several threads at once.
class PreTokenizer {
 public:
  // Takes a piece that ends the splitting; returns how many of its bytes were taken: all when `final`.
  using Sink = std::function<size_t(std::string_view piece, bool final)>;

  explicit PreTokenizer(const TokenizerSpec& spec);

  // Splits `text` and hands its pieces to `sink`, each final but perhaps the last. Returns how many bytes are
  // done with: all when context.final.
  size_t split(std::string_view text, const PieceContext& context, const Sink& sink);

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<PatternFinder> finder;
  };

  size_t run(size_t step, std::string_view text, const PieceContext& context, const Sink& sink);
  size_t run_split(size_t step, std::string_view text, const PieceContext& context, const Sink& sink);
  size_t run_prefixed(size_t step, std::string_view text, size_t prefix, const PieceContext& context,
                      const Sink& sink);
  size_t run_metaspace(size_t step, std::string_view text, const PieceContext& context, const Sink& sink);

  std::vector<Step> steps_;
  // Steps from this one on may be given a piece in parts.
  std::vector<bool> streams_;
};

}  // namespace snug
