#include "formats/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/json.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

// An open section is encoded in parts from this size on.
constexpr size_t kOpenSection = size_t{128} << 10;

// Of TextEncoder::state().
struct StateHeader {
  uint8_t flags[8] = {};  // begun, section open, first, mid piece
  uint64_t next_try = 0, next_split = 0;
  uint64_t sizes[3] = {};  // of tail, raw, normalized
};

std::string quote_token(std::string_view token) { return quote_json(Json(std::string(token))); }

bool uses_bytes(const TokenizerSpec& spec) {
  return std::any_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(), [](const PreTokenizerStep& step) {
    return step.kind == PreTokenizerStep::Kind::kByteLevel;
  });
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)), bytes_(uses_bytes(spec_)) {
  ids_.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) ids_.emplace(spec_.tokens[i], spec_.ids[i]);
  model_.emplace(spec_, ids_, bytes_);
  spec_.merges = {};  // the model has them
  add_tokens();
  // An id without a token might lie beyond the model's rows.
  for (const std::vector<int32_t>* ids : {&spec_.before, &spec_.after})
    for (const int32_t id : *ids)
      if (!id_to_token(id))
        throw_user(ExitCode::kBadFile,
                   "{}: post_processor puts the id {} beside a text; expected the id of a token", spec_.file,
                   id);
  // Regular expressions are refused here and not when the first text comes: what is made is thrown away. NOLINTBEGIN(bugprone-unused-raii)
  Normalizer{spec_};
  PreTokenizer{spec_};
  Decoder{spec_};
  // NOLINTEND(bugprone-unused-raii)
}

std::unique_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  return std::make_unique<const Tokenizer>(read_tokenizer(path));
}

// Gives added tokens the ids that the library gives them: the vocabulary's, else the next free one.
void Tokenizer::add_tokens() {
  const auto count = static_cast<int32_t>(spec_.ids.size());
  int32_t next = count;
  std::vector<int32_t> extra_ids;
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < spec_.added_tokens.size(); ++i) {
    const AddedToken& token = spec_.added_tokens[i];
    if (token.content.empty() || token.content.size() > TokenFinder::kLongest)
      throw_user(ExitCode::kBadFile, "{}: added_tokens[{}].content has {} bytes; expected 1 to {}",
                 spec_.file, i, token.content.size(), TokenFinder::kLongest);
    if (!seen.insert(token.content).second)
      throw_user(ExitCode::kBadFile, "{}: added_tokens[{}].content is {}, which an earlier one has",
                 spec_.file, i, quote_token(token.content));
    const auto found = ids_.find(token.content);
    const int32_t expected = found != ids_.end() ? found->second : next;
    if (token.id != expected)
      throw_user(ExitCode::kBadFile, "{}: added_tokens[{}] gives {} the id {}; expected {}: {}", spec_.file,
                 i, quote_token(token.content), token.id, expected,
                 found != ids_.end() ? "it has that in model.vocab" : "added tokens follow the vocabulary");
    next = std::max(next, token.id + 1);
    if (found == ids_.end()) {
      extra_.push_back(token.content);
      extra_ids.push_back(token.id);
    }
  }
  int32_t largest = 0;
  for (const auto* ids : {&spec_.ids, &extra_ids})
    for (const int32_t id : *ids) largest = std::max(largest, id);
  by_id_.assign(static_cast<size_t>(largest) + 1, 0);
  special_.assign(by_id_.size(), false);
  for (size_t i = 0; i < spec_.ids.size(); ++i)
    by_id_[static_cast<size_t>(spec_.ids[i])] = static_cast<uint32_t>(i + 1);
  for (size_t i = 0; i < extra_ids.size(); ++i) {
    uint32_t& place = by_id_[static_cast<size_t>(extra_ids[i])];
    if (place != 0)
      throw_user(ExitCode::kBadFile, "{}: added_tokens gives {} the id {} of {}", spec_.file,
                 quote_token(extra_[i]), extra_ids[i], quote_token(*id_to_token(extra_ids[i])));
    place = static_cast<uint32_t>(spec_.ids.size() + i + 1);
    extra_ids_.emplace(extra_[i], extra_ids[i]);
  }
  Normalizer normalizer(spec_);
  // Special tokens first: of equal contents the first counts.
  for (const bool special : {true, false})
    for (size_t i = 0; i < spec_.added_tokens.size(); ++i) {
      const AddedToken& token = spec_.added_tokens[i];
      if (token.special != special) continue;
      special_[static_cast<size_t>(token.id)] = special;
      if (!token.normalized) {
        raw_tokens_.add(token.content, static_cast<int32_t>(i));
        words_matter_ = words_matter_ || token.single_word;
        spaces_matter_ = spaces_matter_ || token.lstrip;
        continue;
      }
      const std::string content = normalizer.empty() ? token.content : normalizer.run(token.content, true);
      if (content != token.content) {
        const bool skipped =
            std::any_of(spec_.added_tokens.begin(), spec_.added_tokens.end(),
                        [&](const AddedToken& other) { return other.special && other.content == content; });
        written_[token.id] = {content, skipped};
      }
      if (content.empty() || content.size() > TokenFinder::kLongest) continue;
      normalized_tokens_.add(content, static_cast<int32_t>(i));
      if (token.single_word || token.lstrip) normalized_in_parts_ = false;
    }
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  for (const TokenIds* ids : {&ids_, &extra_ids_})
    if (const auto found = ids->find(token); found != ids->end()) return found->second;
  return std::nullopt;
}

std::optional<std::string_view> Tokenizer::id_to_token(int32_t id) const {
  if (id < 0 || id > largest_id()) return std::nullopt;
  const size_t place = by_id_[static_cast<size_t>(id)];
  if (place == 0) return std::nullopt;
  return place <= spec_.ids.size() ? spec_.tokens[place - 1] : extra_[place - 1 - spec_.ids.size()];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id <= largest_id() && special_[static_cast<size_t>(id)];
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  TextEncoder encoder(*this, {.add_special_tokens = add_special_tokens});
  std::vector<int32_t> ids;
  encoder.feed(text, ids);
  encoder.finish(ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  TextDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) decoder.push(id, text);
  decoder.finish(text);
  return text;
}

TextEncoder::TextEncoder(const Tokenizer& tokenizer, const EncodeOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      normalizer_(tokenizer.spec()),
      pre_tokenizer_(tokenizer.spec()),
      bpe_(*tokenizer.model_) {}

void TextEncoder::begin(std::vector<int32_t>& ids) {
  if (begun_) return;
  begun_ = true;
  if (options_.add_special_tokens)
    ids.insert(ids.end(), tokenizer_.spec().before.begin(), tokenizer_.spec().before.end());
}

void TextEncoder::feed(std::string_view text, std::vector<int32_t>& ids) {
  begin(ids);
  // Large parts go through in slices, so that what waits stays small.
  while (!text.empty()) {
    const std::string_view slice = text.substr(0, 2 * kOpenSection);
    text.remove_prefix(slice.size());
    if (tail_.empty()) {
      const size_t incomplete = incomplete_utf8_tail(slice);
      repair_utf8(slice.substr(0, slice.size() - incomplete), raw_);
      tail_ = slice.substr(slice.size() - incomplete);
    } else {
      tail_ += slice;
      const size_t incomplete = incomplete_utf8_tail(tail_);
      repair_utf8(std::string_view(tail_).substr(0, tail_.size() - incomplete), raw_);
      tail_.erase(0, tail_.size() - incomplete);
    }
    if (raw_.size() < std::max(next_try_, kOpenSection)) continue;
    encode_raw(false, ids);
    // What could not be taken yet is looked at again when there is twice as much.
    next_try_ = 2 * raw_.size();
  }
}

void TextEncoder::finish(std::vector<int32_t>& ids) {
  begin(ids);
  repair_utf8(tail_, raw_);
  tail_.clear();
  encode_raw(true, ids);
  if (options_.add_special_tokens)
    ids.insert(ids.end(), tokenizer_.spec().after.begin(), tokenizer_.spec().after.end());
  begun_ = false;
  raw_.clear();
  next_try_ = 0;
  first_ = true;
}

// Flags, sizes, and the three texts one behind the other.
std::string TextEncoder::state() const {
  StateHeader header{.flags = {begun_, section_open_, first_, mid_piece_},
                     .next_try = next_try_,
                     .next_split = next_split_,
                     .sizes = {tail_.size(), raw_.size(), normalized_.size()}};
  std::string state(sizeof header, '\0');
  std::memcpy(state.data(), &header, sizeof header);
  return state + tail_ + raw_ + normalized_;
}

bool TextEncoder::restore(std::string_view state) {
  StateHeader header;
  if (state.size() < sizeof header) return false;
  std::memcpy(&header, state.data(), sizeof header);
  state.remove_prefix(sizeof header);
  size_t left = state.size();
  for (const uint64_t size : header.sizes) {
    if (size > left) return false;
    left -= size;
  }
  if (left != 0) return false;
  const auto take = [&](size_t text) {
    const std::string_view taken = state.substr(0, header.sizes[text]);
    state.remove_prefix(taken.size());
    return taken;
  };
  tail_ = take(0);
  raw_ = take(1);
  normalized_ = take(2);
  begun_ = header.flags[0] != 0;
  section_open_ = header.flags[1] != 0;
  first_ = header.flags[2] != 0;
  mid_piece_ = header.flags[3] != 0;
  next_try_ = header.next_try;
  next_split_ = header.next_split;
  return true;
}

// Calls run(begin, end) for text between added tokens and token(id) for them, in order, as far as they are
// decided. Returns where the last run, which is open, begins; `undecided` is where the first token could begin
// that is not known yet, and no place before `uncuttable` may become the beginning of a search.
template <typename Run, typename Token>
size_t TextEncoder::find_tokens(const TokenFinder& finder, std::string_view text, bool final, const Run& run,
                                const Token& token, size_t& undecided, size_t& uncuttable) const {
  size_t begin = 0;  // of the run
  uncuttable = 0;
  for (size_t search = 0;;) {
    const TokenFinder::Found found = finder.find(text, search, final);
    if (found.result != TokenFinder::Result::kFound) {
      undecided = found.result == TokenFinder::Result::kPartial ? found.begin : text.size();
      return begin;
    }
    search = found.end;
    const AddedToken& added = tokenizer_.spec().added_tokens[static_cast<size_t>(found.index)];
    size_t start = found.begin, stop = found.end;
    if (options_.special_as_text && added.special) {
      uncuttable = found.end;
      continue;
    }
    // Its end depends on what follows.
    const auto waits = [&] {
      undecided = found.begin;
      return begin;
    };
    if (added.single_word) {
      if (stop == text.size() && !final) return waits();
      const bool word_before = start > 0 && is_word_character(decode_utf8_before(text, start).value);
      const bool word_after = stop < text.size() && is_word_character(decode_utf8(text, stop).value);
      if (word_before || word_after) {
        uncuttable = found.end;
        continue;
      }
    }
    if (added.lstrip) {
      size_t spaces = start;
      while (spaces > 0) {
        const CodePoint before = decode_utf8_before(text, spaces);
        if (!is_white_space(before.value)) break;
        spaces -= before.length;
      }
      start = std::max(spaces, begin);
    }
    if (added.rstrip) {
      while (stop < text.size()) {
        const CodePoint after = decode_utf8(text, stop);
        if (!is_white_space(after.value)) break;
        stop += after.length;
      }
      if (stop == text.size() && !final) return waits();
    }
    if (begin < start) run(begin, start);
    token(added.id);
    begin = stop;
    uncuttable = std::max(uncuttable, found.end);
  }
}

void TextEncoder::encode_raw(bool final, std::vector<int32_t>& ids) {
  const std::string_view raw = raw_;
  size_t undecided = 0, uncuttable = 0;
  bool closes = section_open_ || !normalized_.empty();  // a section is open
  size_t taken = find_tokens(
      tokenizer_.raw_tokens_, raw, final,
      [&](size_t begin, size_t end) {
        section(raw.substr(begin, end - begin), true, ids);
        closes = false;
      },
      [&](int32_t id) {
        if (closes) section({}, true, ids);
        closes = false;
        ids.push_back(id);
        first_ = false;
      },
      undecided, uncuttable);
  if (final) {
    if (taken < raw.size() || closes) section(raw.substr(std::min(taken, raw.size())), true, ids);
    raw_.clear();
    return;
  }
  if (normalizer_.in_parts() && undecided > taken && undecided - taken >= kOpenSection / 2) {
    const size_t cut = cut_before(raw, std::max(taken, uncuttable), undecided);
    if (cut > taken) {
      section(raw.substr(taken, cut - taken), false, ids);
      taken = cut;
    }
  }
  raw_.erase(0, taken);
}

// The last place in (begin, end] where an open section may be cut: an ASCII character follows, which composes
// with nothing before it, and what stands before it does not matter to any added token. 0 where there is none.
size_t TextEncoder::cut_before(std::string_view raw, size_t begin, size_t end) const {
  for (size_t at = std::min(end, raw.size() - 1); at > begin; --at) {
    const auto after = static_cast<unsigned char>(raw[at]), before = static_cast<unsigned char>(raw[at - 1]);
    if (after >= 0x80) continue;
    if (tokenizer_.spaces_matter_ && (before >= 0x80 || is_white_space(before))) continue;
    if (tokenizer_.words_matter_ && (before >= 0x80 || is_word_character(before))) continue;
    return at;
  }
  return 0;
}

// A run of raw text; `final`: an added token or the end of the text follows.
void TextEncoder::section(std::string_view text, bool final, std::vector<int32_t>& ids) {
  if (normalizer_.empty() && normalized_.empty() && final) {  // nothing to copy
    encode_normalized(text, true, ids);
  } else {
    if (normalizer_.empty())
      normalized_ += text;
    else
      normalized_ += normalizer_.run(text, !section_open_ && normalized_.empty());
    if (!final && normalized_.size() < next_split_) return;
    const size_t taken = encode_normalized(normalized_, final, ids);
    normalized_.erase(0, taken);
    // As in feed(): what could not be taken is looked at again when there is twice as much.
    next_split_ = final ? 0 : 2 * normalized_.size();
    if (!final) {
      section_open_ = section_open_ || taken > 0;
      return;
    }
  }
  section_open_ = false;
  mid_piece_ = false;
  first_ = false;
}

// Returns what was taken: all when final.
size_t TextEncoder::encode_normalized(std::string_view text, bool final, std::vector<int32_t>& ids) {
  if (tokenizer_.normalized_tokens_.empty())
    return split(text, {.starts = !section_open_, .first = !section_open_ && first_, .final = final}, ids);
  if (!final && !tokenizer_.normalized_in_parts_) return 0;
  size_t undecided = 0, uncuttable = 0;
  const auto context = [&](size_t begin, bool whole) {
    const bool starts = begin > 0 || !section_open_;
    return PieceContext{.starts = starts, .first = starts && begin == 0 && first_, .final = whole};
  };
  size_t taken = find_tokens(
      tokenizer_.normalized_tokens_, text, final,
      [&](size_t begin, size_t end) { split(text.substr(begin, end - begin), context(begin, true), ids); },
      [&](int32_t id) { ids.push_back(id); }, undecided, uncuttable);
  if (final) {
    if (taken < text.size()) split(text.substr(taken), context(taken, true), ids);
    return text.size();
  }
  if (uncuttable <= taken && undecided > taken)
    taken += split(text.substr(taken, undecided - taken), context(taken, false), ids);
  return taken;
}

size_t TextEncoder::split(std::string_view text, const PieceContext& context, std::vector<int32_t>& ids) {
  return pre_tokenizer_.split(text, context, [&](std::string_view piece, bool final) {
    const size_t taken = bpe_.encode(piece, !mid_piece_, final, ids);
    if (taken > 0) mid_piece_ = !final;
    return taken;
  });
}

TextDecoder::TextDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skips_special_(skip_special_tokens), decoder_(tokenizer.spec()) {}

void TextDecoder::push(int32_t id, std::string& text) {
  if (const auto written = tokenizer_.written_.find(id); written != tokenizer_.written_.end()) {
    if (!(skips_special_ && written->second.skipped)) decoder_.push(written->second.content, text);
    return;
  }
  const std::optional<std::string_view> token = tokenizer_.id_to_token(id);
  if (token && !(skips_special_ && tokenizer_.is_special(id))) decoder_.push(*token, text);
}

void TextDecoder::finish(std::string& text) { decoder_.finish(text); }

}  // namespace snug
