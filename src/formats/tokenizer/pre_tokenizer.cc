#include "formats/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/errors.h"

namespace snug {
namespace {

using Kind = PreTokenizerStep::Kind;

// Part of a text: a place that the pattern matches, or what lies between two.
struct Segment {
  size_t begin, end;
  bool matches;
};

// Segments of a text in order, none of them empty. With a text that goes on, the last may be open: more of the same kind
// may follow it, or nothing at all may be known of what follows.
class Segments {
 public:
  Segments(PatternFinder& finder, std::string_view text, bool final, bool invert)
      : finder_(finder), subject_(finder.subject(text)), text_(text), final_(final), invert_(invert) {}

  // False at the end: then settled() says up to where segments are known, and all_found() whether they all are.
  bool next(Segment& segment) {
    if (waiting_) {
      waiting_ = false;
      segment = match_;
      return true;
    }
    while (!done_) {
      const Regex::Found found = search_ <= text_.size() ? finder_.find(subject_, search_, final_)
                                                         : Regex::Found{Regex::Result::kNone};
      if (found.result != Regex::Result::kFound) {
        done_ = true;
        open_end_ = found.result == Regex::Result::kPartial ? found.begin : text_.size();
        break;
      }
      if (found.begin ==
          found.end) {  // an empty match splits nothing; the search goes on after the next character
        search_ =
            found.end < text_.size() ? found.end + decode_utf8(text_, found.end).length : text_.size() + 1;
        // It ends what lies before it all the same.
        if (found.begin > position_) {
          segment = {position_, found.begin, invert_};
          position_ = found.begin;
          return true;
        }
        continue;
      }
      search_ = found.end;
      match_ = {found.begin, found.end, !invert_};
      const size_t begin = position_;
      position_ = found.end;
      if (found.begin > begin) {
        waiting_ = true;
        segment = {begin, found.begin, invert_};
      } else {
        segment = match_;
      }
      return true;
    }
    return false;
  }

  // After the end: what is known to lie after the last segment and to be no match, as far as it is known.
  Segment gap() const { return {position_, open_end_, invert_}; }

 private:
  PatternFinder& finder_;
  Regex::Subject subject_;
  std::string_view text_;
  bool final_, invert_;
  bool done_ = false, waiting_ = false;
  size_t position_ = 0, search_ = 0, open_end_ = 0;
  Segment match_{};
};

}  // namespace

PatternFinder::PatternFinder(const TextPattern& pattern, std::string_view where) {
  if (pattern.is_regex)
    regex_.emplace(pattern.text, where);
  else
    literal_ = pattern.text;
}

Regex::Found PatternFinder::find(const Regex::Subject& subject, size_t from, bool final) {
  using Result = Regex::Result;
  const std::string_view text = subject.text;
  if (regex_) return regex_->find(subject, from, final);
  if (of_class_ != nullptr) {
    for (size_t at = from; at < text.size();) {
      const CodePoint character = decode_utf8(text, at);
      if (of_class_(character.value)) return {Result::kFound, at, at + character.length};
      at += character.length;
    }
    return {Result::kNone};
  }
  const size_t found = text.find(literal_, from);
  if (found != std::string_view::npos) return {Result::kFound, found, found + literal_.size()};
  // The end may be the literal's beginning.
  if (!final)
    for (size_t length = std::min(literal_.size() - 1, text.size() - from); length > 0; --length)
      if (text.ends_with(std::string_view(literal_).substr(0, length)))
        return {Result::kPartial, text.size() - length, text.size()};
  return {Result::kNone};
}

PreTokenizer::PreTokenizer(const TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.pre_tokenizer.size(); ++i) {
    const PreTokenizerStep& step = spec.pre_tokenizer[i];
    Step made{.spec = step, .finder = std::nullopt};
    switch (step.kind) {
      case Kind::kByteLevel:
        if (step.use_regex) made.finder.emplace(step.pattern, spec.file + ": pre_tokenizer");
        break;
      case Kind::kSplit:
        made.finder.emplace(step.pattern, spec.file + ": pre_tokenizer");
        break;
      case Kind::kDigits:
        made.finder.emplace(&is_numeric);
        break;
      case Kind::kMetaspace:
        made.finder.emplace(TextPattern{.text = step.replacement}, "");
        made.spec.behavior = SplitBehavior::kMergedWithNext;
        break;
      case Kind::kPunctuation:
        made.finder.emplace(&is_punctuation);
        break;
      case Kind::kWhiteSpace:
        made.finder.emplace(&is_white_space);
        break;
    }
    steps_.push_back(std::move(made));
  }
  // A piece of an earlier step comes in parts only where a later one does not mind.
  streams_.assign(steps_.size() + 1, true);
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    const bool minds_beginning =
        i > 0 && (step.spec.add_prefix_space || (step.spec.kind == Kind::kMetaspace &&
                                                 step.spec.prepend != PreTokenizerStep::Prepend::kNever));
    streams_[i] = streams_[i + 1] && !minds_beginning && !(step.finder && step.finder->looks_back());
  }
}

size_t PreTokenizer::split(std::string_view text, const PieceContext& context, const Sink& sink) {
  if (!context.final && !streams_[0]) return 0;
  return run(0, text, context, sink);
}

size_t PreTokenizer::run(size_t step, std::string_view text, const PieceContext& context, const Sink& sink) {
  if (text.empty()) return 0;
  if (step == steps_.size()) return sink(text, context.final);
  const PreTokenizerStep& spec = steps_[step].spec;
  if (spec.kind == Kind::kMetaspace) return run_metaspace(step, text, context, sink);
  if (spec.kind == Kind::kByteLevel && spec.add_prefix_space && context.starts && !text.starts_with(' ')) {
    std::string with_space = " ";
    with_space += text;
    const size_t done = run_prefixed(step, with_space, 1, context, sink);
    return done == 0 ? 0 : done - 1;
  }
  return run_split(step, text, context, sink);
}

size_t PreTokenizer::run_split(size_t step, std::string_view text, const PieceContext& context,
                               const Sink& sink) {
  Step& self = steps_[step];
  if (!self.finder || (self.spec.kind == Kind::kByteLevel && !self.spec.use_regex) ||
      (self.spec.kind == Kind::kMetaspace && !self.spec.split))
    return run(step + 1, text, context, sink);
  const SplitBehavior behavior = self.spec.behavior;
  const auto piece = [&](size_t begin, size_t end) {
    const PieceContext whole{
        .starts = begin > 0 || context.starts, .first = begin == 0 && context.first, .final = true};
    run(step + 1, text.substr(begin, end - begin), whole, sink);
  };
  // A piece that goes on; `end` is as far as it is known.
  const auto open_piece = [&](size_t begin, size_t end) {
    if (!streams_[step + 1] || end == begin) return begin;
    const PieceContext part{
        .starts = begin > 0 || context.starts, .first = begin == 0 && context.first, .final = false};
    return begin + run(step + 1, text.substr(begin, end - begin), part, sink);
  };

  Segments segments(*self.finder, text, context.final, self.spec.invert);
  Segment segment{};
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    const bool removes = behavior == SplitBehavior::kRemoved;
    while (segments.next(segment))
      if (!(removes && segment.matches)) piece(segment.begin, segment.end);
    const Segment gap = segments.gap();
    if (context.final) {
      if (gap.end > gap.begin && !(removes && gap.matches)) piece(gap.begin, gap.end);
      return text.size();
    }
    return removes && gap.matches ? gap.end : open_piece(gap.begin, gap.end);
  }

  if (behavior == SplitBehavior::kMergedWithNext) {
    // A match and what follows it, up to the next match.
    Segment match{};
    bool open = false;  // a match waits for what follows it
    while (segments.next(segment)) {
      if (segment.matches) {
        if (open) piece(match.begin, match.end);
        match = segment;
      } else {
        piece(open ? match.begin : segment.begin, segment.end);
      }
      open = segment.matches;
    }
    const Segment gap = segments.gap();
    if (gap.matches && gap.end > gap.begin) {  // inverted: what is not found matches
      if (open) piece(match.begin, match.end);
      match = gap;
      open = true;
    } else if (gap.end > gap.begin || open) {
      const size_t begin = open ? match.begin : gap.begin;
      if (!context.final) return open_piece(begin, gap.end);
      piece(begin, gap.end);
      return text.size();
    }
    if (!context.final) return open ? match.begin : gap.begin;
    if (open) piece(match.begin, match.end);
    return text.size();
  }

  // The two others are gathered: a piece may still grow when the next segment comes.
  std::vector<Segment> known;
  while (segments.next(segment)) known.push_back(segment);
  size_t count = known.size();
  if (const Segment gap = segments.gap(); context.final && gap.end > gap.begin) {
    known.push_back(gap);
    count = known.size();
  } else if (!context.final) {
    // Everything before the last segment that begins a piece whatever stood before it: one that differs from its
    // neighbour (contiguous), one that is no match (merged with the previous).
    while (count > 0 && (count == known.size() || (behavior == SplitBehavior::kContiguous
                                                       ? known[count].matches == known[count - 1].matches
                                                       : known[count].matches)))
      --count;
  }
  Segment growing{};  // matches: of its last segment
  bool previous_match = false;
  for (size_t i = 0; i < count; ++i) {
    const Segment& next = known[i];
    const bool grows = i > 0 && (behavior == SplitBehavior::kContiguous ? growing.matches == next.matches
                                                                        : next.matches && !previous_match);
    if (grows) {
      growing.end = next.end;
    } else {
      if (i > 0) piece(growing.begin, growing.end);
      growing = next;
    }
    previous_match = next.matches;
  }
  if (count > 0) piece(growing.begin, growing.end);
  return context.final ? text.size() : count > 0 ? growing.end : 0;
}

// `text` has a prefix that the file's text has not. Of a text that goes on, nothing is taken unless more than the
// prefix can be: found out with pieces that go nowhere.
size_t PreTokenizer::run_prefixed(size_t step, std::string_view text, size_t prefix,
                                  const PieceContext& context, const Sink& sink) {
  if (!context.final && prefix > 0) {
    const Sink nowhere = [](std::string_view piece, bool final) { return final ? piece.size() : 0; };
    if (run_split(step, text, context, nowhere) == prefix) return 0;
  }
  return run_split(step, text, context, sink);
}

size_t PreTokenizer::run_metaspace(size_t step, std::string_view text, const PieceContext& context,
                                   const Sink& sink) {
  using Prepend = PreTokenizerStep::Prepend;
  const PreTokenizerStep& spec = steps_[step].spec;
  std::string replaced;
  replaced.reserve(text.size() + text.size() / 2 + spec.replacement.size());
  const bool may_prepend = context.starts && (spec.prepend == Prepend::kAlways ||
                                              (spec.prepend == Prepend::kFirst && context.first));
  const bool prepends = may_prepend && !text.starts_with(' ') && !text.starts_with(spec.replacement);
  if (prepends) replaced += spec.replacement;
  for (const char c : text) {
    if (c == ' ')
      replaced += spec.replacement;
    else
      replaced += c;
  }
  const size_t prefix = prepends ? spec.replacement.size() : 0;
  size_t done = run_prefixed(step, replaced, prefix, context, sink);
  if (context.final || done == 0) return context.final ? text.size() : 0;
  done -= prefix;  // back to bytes of `text`
  size_t taken = 0;
  while (done > 0) {
    done -= text[taken] == ' ' ? spec.replacement.size() : 1;
    ++taken;
  }
  return taken;
}

}  // namespace snug
