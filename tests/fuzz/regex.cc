// A regular expression of a tokenizer file and a text, separated by the first byte of value 0. Matches come in order, inside the text and
// at the beginnings of characters.
#include "formats/tokenizer/regex.h"

#include "formats/tokenizer/unicode.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  const std::string_view input = fuzz::as_text(data, size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view pattern = input.substr(0, end);
  std::string text;
  repair_utf8(input.substr(std::min(end + 1, size)), text);
  const auto begins = [&](size_t at) {
    return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
  };
  fuzz::read_or_refuse([&] {
    if (!is_valid_utf8(pattern)) return;  // JSON's strings are
    Regex regex(pattern, "f");
    const Regex::Subject subject = regex.subject(text);
    for (const bool final : {true, false}) {
      for (size_t from = 0; from <= text.size();) {
        const Regex::Found found = regex.find(subject, from, final);
        if (found.result != Regex::Result::kFound) {
          fuzz::check(!final || found.result == Regex::Result::kNone, "nothing follows a whole text");
          break;
        }
        fuzz::check(from <= found.begin && found.begin <= found.end && found.end <= text.size(),
                    "matches are in the text, in order");
        fuzz::check(begins(found.begin) && begins(found.end), "matches are of whole characters");
        from = found.end > found.begin   ? found.end
               : found.end < text.size() ? found.end + decode_utf8(text, found.end).length
                                         : text.size() + 1;
      }
    }
  });
  return 0;
}
