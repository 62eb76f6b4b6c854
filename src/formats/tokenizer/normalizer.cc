#include "formats/tokenizer/normalizer.h"

#include <algorithm>

namespace snug {
namespace {

using Kind = NormalizerStep::Kind;

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint first = decode_utf8(text, 0);
    if (!is_white_space(first.value)) break;
    text.remove_prefix(first.length);
  }
  while (right && !text.empty()) {
    const CodePoint last = decode_utf8_before(text, text.size());
    if (!is_white_space(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

}  // namespace

Normalizer::Normalizer(const TokenizerSpec& spec) {
  bool replaced = false;
  for (const NormalizerStep& step : spec.normalizer) {
    Step made{.spec = step, .finder = std::nullopt};
    if (step.kind == Kind::kReplace) {
      made.finder.emplace(step.pattern, spec.file + ": normalizer");
      const bool one_character =
          !step.pattern.is_regex && decode_utf8(step.pattern.text, 0).length == step.pattern.text.size();
      in_parts_ = in_parts_ && one_character;
      replaced = true;
    }
    // After a replacement the first character of a part may be any.
    if (step.kind == Kind::kForm || step.kind == Kind::kPrepend) in_parts_ = in_parts_ && !replaced;
    if (step.kind == Kind::kPrepend) in_parts_ = in_parts_ && !step.content.empty();
    if (step.kind == Kind::kStrip) in_parts_ = false;
    steps_.push_back(std::move(made));
  }
}

std::string Normalizer::run(std::string_view text, bool starts) {
  std::string now(text);
  for (Step& step : steps_) {
    switch (step.spec.kind) {
      case Kind::kForm:
        now = normalize(step.spec.form, now);
        break;
      case Kind::kPrepend:
        if (starts && !now.empty()) now.insert(0, step.spec.content);
        break;
      case Kind::kLowercase:
        now = lowercase_utf8(now);
        break;
      case Kind::kStrip:
        now = std::string(strip(now, step.spec.strip_left, step.spec.strip_right));
        break;
      case Kind::kReplace: {
        std::string made;
        made.reserve(now.size() + now.size() / 4);
        size_t copied = 0;
        const Regex::Subject subject = step.finder->subject(now);
        for (size_t at = 0; at <= now.size();) {
          const Regex::Found found = step.finder->find(subject, at, true);
          if (found.result != Regex::Result::kFound) break;
          made.append(now, copied, found.begin - copied).append(step.spec.content);
          copied = found.end;
          at = found.end > found.begin  ? found.end
               : found.end < now.size() ? found.end + decode_utf8(now, found.end).length
                                        : now.size() + 1;
        }
        if (copied == 0 && made.empty()) break;
        made.append(now, copied);
        now = std::move(made);
        break;
      }
    }
  }
  return now;
}

}  // namespace snug
