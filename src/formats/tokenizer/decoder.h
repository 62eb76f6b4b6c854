// formats/tokenizer/decoder.h — tokens → text, one after the other
//
// Each step of a file's decoder is a small machine that takes tokens and gives tokens; what is still undecided
// (the beginning of a character, a run of byte tokens, characters that the end may strip) waits inside it. So
// decoding a list is pushing its tokens and finishing, and a stream gives exactly the same text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

class DecodeStep;

// Not for several threads at once.
class Decoder {
 public:
  explicit Decoder(const TokenizerSpec& spec);
  ~Decoder();
  Decoder(Decoder&&) noexcept;

  // Appends the text that `token` completes: whole characters only.
  void push(std::string_view token, std::string& text);
  // Appends what was still waiting; afterwards another text may begin.
  void finish(std::string& text);

 private:
  void feed(size_t step, std::string_view token, std::string& text);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  bool joins_with_spaces_ = false;  // without a decoder
  bool any_ = false;
};

}  // namespace snug
