// formats/tokenizer/normalizer.h — what is done to a section of text before it is split
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

// Not for several threads at once.
class Normalizer {
 public:
  explicit Normalizer(const TokenizerSpec& spec);

  bool empty() const { return steps_.empty(); }
  // Whether a section may be normalised in parts, each but the first beginning with a character of ASCII.
  bool in_parts() const { return in_parts_; }

  // Normalises a section, or its part; `starts`: nothing of the section stands before it.
  std::string run(std::string_view text, bool starts);

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<PatternFinder> finder;
  };
  std::vector<Step> steps_;
  bool in_parts_ = true;
};

}  // namespace snug
