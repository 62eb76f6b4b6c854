// formats/tokenizer/regex.h — regular expressions of tokenizer files
//
// They are written for Oniguruma, as the `tokenizers` library reads them, and run by PCRE2 with its JIT. The
// translation (regex_translation.h) makes a construct mean there what it means here (\s, \w, \h, \p{Script}, ^ and $
// of every line, (?m:…), possessive marks) and refuses by name what it does not know: \y, \K, recursion, …
//
// Classes are Oniguruma's, of the version in the library, whatever the version of PCRE2: what of its classes differs is
// found out once in a process, and texts that hold such a character are matched by a second expression that names them.
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
  // A text to be searched, looked at once.
  struct Subject {
    std::string_view text;
    bool unusual = false;  // has characters about which PCRE2 and Oniguruma differ
  };
  // `text` is valid UTF-8 and outlives the searches.
  Subject subject(std::string_view text) const;

  // The first match of the text that begins at `from` or later. When `final` is false more
  // text may follow: kPartial says that what follows decides, and that none begins before `begin`.
  // Uses buffers of this object: one thread at a time.
  Found find(const Subject& subject, size_t from, bool final);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace snug
