// formats/tokenizer/regex.h — regular expressions of tokenizer files
//
// They are written for Oniguruma, as the `tokenizers` library reads them, and run by PCRE2 with its JIT. The
// translation makes a construct mean there what it means here (\s, \w, \h, \p{Script}, ^ and $ of every line,
// (?m:…), possessive marks) and refuses by name what it does not know: \y, \K, recursion, nested or
// intersected classes, …
//
// A file's expression is untrusted. One attempt at a match takes a bounded number of steps, and a search that
// goes on and on without finding anything is bounded in time: both end in UserError(kBadFile) that names the
// expression.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace snug {

// PCRE2's form of an Oniguruma pattern. `where` begins messages: "tokenizer.json: pre_tokenizer.pattern".
struct TranslatedRegex {
  std::string pattern;
  bool looks_back = false;  // may depend on what stands before the place where a search begins
};
TranslatedRegex translate_regex(std::string_view pattern, std::string_view where);

// Every character by itself.
std::string escape_regex(std::string_view literal);

class Regex {
 public:
  Regex(std::string_view pattern, std::string_view where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  bool looks_back() const;

  enum class Result { kFound, kNone, kPartial };
  struct Found {
    Result result;
    size_t begin = 0, end = 0;  // of the match; with kPartial, begin is where it would begin
  };
  // The first match of `text`, which is valid UTF-8, that begins at `from` or later. When `final` is false more
  // text may follow: kPartial says that what follows decides, and that none begins before `begin`.
  // Uses buffers of this object: one thread at a time.
  Found find(std::string_view text, size_t from, bool final);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace snug
