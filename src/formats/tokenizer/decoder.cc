#include "formats/tokenizer/decoder.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/unicode.h"

namespace snug {

using TokenSink = std::function<void(std::string_view token)>;

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(std::string_view token, const TokenSink& next) = 0;
  virtual void finish(const TokenSink&) {}
};

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// GPT-2's symbols → bytes. A token with any other character stands for itself.
class ByteLevelStep : public DecodeStep {
 public:
  void push(std::string_view token, const TokenSink& next) override {
    const size_t old = waiting_.size();
    for (size_t at = 0; at < token.size();) {
      const CodePoint character = decode_utf8(token, at);
      const int byte = symbol_byte(character.value);
      if (byte < 0) {
        waiting_.resize(old);
        waiting_ += token;
        break;
      }
      waiting_ += static_cast<char>(static_cast<unsigned char>(byte));
      at += character.length;
    }
    give(waiting_.size() - incomplete_utf8_tail(waiting_), next);
  }
  void finish(const TokenSink& next) override { give(waiting_.size(), next); }

 private:
  void give(size_t count, const TokenSink& next) {
    if (count == 0) return;
    std::string text;
    repair_utf8(std::string_view(waiting_).substr(0, count), text);
    waiting_.erase(0, count);
    next(text);
  }
  std::string waiting_;
};

// Runs of <0xNN> → their bytes, which are text when the whole run is UTF-8, else a U+FFFD each.
class ByteFallbackStep : public DecodeStep {
 public:
  void push(std::string_view token, const TokenSink& next) override {
    if (const std::optional<char> byte = byte_of(token)) {
      run_ += *byte;
      return;
    }
    finish(next);
    next(token);
  }
  void finish(const TokenSink& next) override {
    if (run_.empty()) return;
    const std::string run = std::move(run_);
    run_.clear();
    if (is_valid_utf8(run)) {
      next(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) next(kReplacement);
    }
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    int byte = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      byte = byte * 16 + digit;
    }
    return static_cast<char>(static_cast<unsigned char>(byte));
  }
  std::string run_;
};

// Takes off up to strip_start of the character in front and strip_stop behind: of each token, or after Fuse of the whole.
class StripStep : public DecodeStep {
 public:
  StripStep(const DecoderStep& spec, bool whole) : spec_(spec), whole_(whole) {}

  void push(std::string_view token, const TokenSink& next) override {
    if (!whole_) taken_ = 0;
    while (taken_ < spec_.strip_start && token.starts_with(spec_.content)) {
      token.remove_prefix(spec_.content.size());
      ++taken_;
    }
    if (!token.empty()) taken_ = spec_.strip_start;
    if (!whole_) {
      for (size_t i = 0; i < spec_.strip_stop && token.ends_with(spec_.content); ++i)
        token.remove_suffix(spec_.content.size());
      next(token);
      return;
    }
    // The last strip_stop of the character wait: they may be the end.
    std::string text = std::move(waiting_);
    waiting_.clear();
    text += token;
    size_t end = text.size();
    for (size_t i = 0; i < spec_.strip_stop && std::string_view(text).substr(0, end).ends_with(spec_.content);
         ++i)
      end -= spec_.content.size();
    waiting_ = text.substr(end);
    text.resize(end);
    next(text);
  }
  void finish(const TokenSink&) override {
    waiting_.clear();
    taken_ = 0;
  }

 private:
  DecoderStep spec_;
  bool whole_;
  size_t taken_ = 0;
  std::string waiting_;
};

// Of each token; after Fuse of the whole, which then waits for the end unless one character is looked for.
class ReplaceStep : public DecodeStep {
 public:
  ReplaceStep(const DecoderStep& spec, const std::string& file, bool whole)
      : finder_(spec.pattern, file + ": decoder"),
        content_(spec.content),
        waits_(whole && (spec.pattern.is_regex ||
                         decode_utf8(spec.pattern.text, 0).length != spec.pattern.text.size())) {}

  void push(std::string_view token, const TokenSink& next) override {
    if (waits_)
      waiting_ += token;
    else
      replace(token, next);
  }
  void finish(const TokenSink& next) override {
    if (!waits_) return;
    replace(waiting_, next);
    waiting_.clear();
  }

 private:
  void replace(std::string_view token, const TokenSink& next) {
    std::string made;
    size_t copied = 0;
    const Regex::Subject subject = finder_.subject(token);
    for (size_t at = 0; at <= token.size();) {
      const Regex::Found found = finder_.find(subject, at, true);
      if (found.result != Regex::Result::kFound) break;
      made.append(token.substr(copied, found.begin - copied)).append(content_);
      copied = found.end;
      at = found.end > found.begin    ? found.end
           : found.end < token.size() ? found.end + decode_utf8(token, found.end).length
                                      : token.size() + 1;
    }
    made.append(token.substr(copied));
    next(made);
  }
  PatternFinder finder_;
  std::string content_;
  bool waits_;
  std::string waiting_;
};

// What stands for a space → a space; in the first token (after Fuse: anywhere) nothing, where the tokenizer puts one in front.
class MetaspaceStep : public DecodeStep {
 public:
  MetaspaceStep(const DecoderStep& spec, bool whole)
      : mark_(spec.content), drops_first_(spec.drops_first), whole_(whole) {}

  void push(std::string_view token, const TokenSink& next) override {
    std::string made;
    for (size_t at = 0; at < token.size();) {
      if (token.substr(at).starts_with(mark_)) {
        if (!(first_ && drops_first_)) made += ' ';
        at += mark_.size();
      } else {
        made += token[at++];
      }
    }
    first_ = whole_;
    next(made);
  }
  void finish(const TokenSink&) override { first_ = true; }

 private:
  std::string mark_;
  bool drops_first_, whole_, first_ = true;
};

}  // namespace

Decoder::Decoder(const TokenizerSpec& spec) : joins_with_spaces_(!spec.has_decoder) {
  bool whole = false;  // the tokens are parts of one
  for (const DecoderStep& step : spec.decoder) {
    switch (step.kind) {
      case DecoderStep::Kind::kByteLevel:
        steps_.push_back(std::make_unique<ByteLevelStep>());
        whole = true;
        break;
      case DecoderStep::Kind::kByteFallback:
        steps_.push_back(std::make_unique<ByteFallbackStep>());
        break;
      case DecoderStep::Kind::kFuse:
        whole = true;
        break;
      case DecoderStep::Kind::kStrip:
        steps_.push_back(std::make_unique<StripStep>(step, whole));
        break;
      case DecoderStep::Kind::kReplace:
        steps_.push_back(std::make_unique<ReplaceStep>(step, spec.file, whole));
        break;
      case DecoderStep::Kind::kMetaspace:
        steps_.push_back(std::make_unique<MetaspaceStep>(step, whole));
        break;
    }
  }
}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;

void Decoder::push(std::string_view token, std::string& text) {
  if (joins_with_spaces_) {
    if (any_) text += ' ';
    any_ = true;
    text += token;
    return;
  }
  feed(0, token, text);
}

void Decoder::feed(size_t step, std::string_view token, std::string& text) {
  if (step == steps_.size())
    text += token;
  else
    steps_[step]->push(token, [&](std::string_view made) { feed(step + 1, made, text); });
}

void Decoder::finish(std::string& text) {
  any_ = false;
  for (size_t step = 0; step < steps_.size(); ++step)
    steps_[step]->finish([&](std::string_view made) { feed(step + 1, made, text); });
}

}  // namespace snug
