#include "formats/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/errors.h"
#include "base/json.h"

namespace snug {
namespace {

constexpr char32_t kLowSymbols = 0x3000;
constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr uint32_t kEnd = ~uint32_t{0};
constexpr char32_t kWordMark = 0x2581;  // SentencePiece's space

// Pieces up to this many symbols are merged by scanning.
constexpr size_t kShortPiece = 40;
// Parts up to this many bytes are remembered, in this many bytes and slots.
constexpr size_t kLongestRemembered = 48;
constexpr size_t kCacheBytes = size_t{6} << 20, kCacheSlots = size_t{1} << 18;
// Pieces beyond this are cut where nothing joins; other than at a space only parts that are as long by themselves.
constexpr size_t kCutBeyond = 64;
// Positions are 32 bits.
constexpr size_t kLongestPart = size_t{1} << 31;

uint64_t mix(uint64_t a, uint64_t b) {
  a ^= b;
  a *= 0x9FB21C651E98DF25;
  return a ^ a >> 32;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size() * 0x9E3779B97F4A7C15;
  const char* at = text.data();
  size_t left = text.size();
  uint64_t word = 0;
  for (; left >= 8; left -= 8, at += 8) {
    std::memcpy(&word, at, 8);
    hash = mix(std::rotl(hash, 23), word);
  }
  if (left >= 4) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    hash = mix(std::rotl(hash, 23), static_cast<uint64_t>(high) << 32 | low);
  } else if (left > 0) {
    word = static_cast<unsigned char>(at[0]);
    word = word << 8 | static_cast<unsigned char>(at[left / 2]);
    word = word << 8 | static_cast<unsigned char>(at[left - 1]);
    hash = mix(std::rotl(hash, 23), word);
  }
  hash *= 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

std::string quote_token(std::string_view token) { return quote_json(Json(std::string(token))); }

// A token in GPT-2's symbols as bytes; false when it has any other character.
bool as_bytes(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < token.size();) {
    const CodePoint character = decode_utf8(token, at);
    at += character.length;
    const int byte = symbol_byte(character.value);
    if (byte < 0) return false;
    bytes += static_cast<char>(static_cast<unsigned char>(byte));
  }
  return true;
}

}  // namespace

void MergeTable::reserve(size_t count) {
  slots_.assign(std::bit_ceil(count * 2 + 2), {});
  mask_ = slots_.size() - 1;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key);
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask_;
  slots_[slot] = {key, merge};
}

BpeModel::BpeModel(const TokenizerSpec& spec, const TokenIds& ids, bool bytes)
    : bytes_(bytes), ignore_merges_(spec.ignore_merges), fuse_unk_(spec.fuse_unk) {
  const auto id_of = [&](std::string_view token) {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  };
  if (spec.unk_token) {
    unknown_ = id_of(*spec.unk_token);
    if (unknown_ < 0)
      throw_user(ExitCode::kBadFile, "{}: model.unk_token is {}; expected a token of model.vocab", spec.file,
                 quote_token(*spec.unk_token));
  }
  if (spec.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) byte_tokens_.push_back(id_of(fmt::format("<0x{:02X}>", byte)));
    has_byte_tokens_ =
        std::any_of(byte_tokens_.begin(), byte_tokens_.end(), [](int32_t id) { return id >= 0; });
  }
  // Symbols: tokens of one character.
  low_symbols_.assign(bytes ? 256 : kLowSymbols, -1);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string_view token = spec.tokens[i];
    if (token.empty()) continue;
    const CodePoint first = decode_utf8(token, 0);
    if (first.length != token.size()) continue;
    if (bytes) {
      if (const int byte = symbol_byte(first.value); byte >= 0)
        low_symbols_[static_cast<size_t>(byte)] = spec.ids[i];
    } else if (first.value < kLowSymbols) {
      low_symbols_[first.value] = spec.ids[i];
    } else {
      symbols_[first.value] = spec.ids[i];
    }
  }
  // Merges, and which characters they join.
  low_joins_.assign(256 * 256, false);
  merges_.reserve(spec.merges.size() / 2);
  std::string made;
  for (size_t i = 0; i < spec.merges.size() / 2; ++i) {
    const std::string_view left = spec.merges[2 * i], right = spec.merges[2 * i + 1];
    made.assign(left).append(right);
    const int32_t left_id = id_of(left), right_id = id_of(right), made_id = id_of(made);
    for (const auto& [token, id] :
         {std::pair{left, left_id}, {right, right_id}, {std::string_view(made), made_id}})
      if (id < 0 || token.empty())
        throw_user(ExitCode::kBadFile, "{}: model.merges[{}] joins {} and {}; {} is not in model.vocab",
                   spec.file, i, quote_token(left), quote_token(right), quote_token(token));
    merges_.insert(left_id, right_id, {static_cast<uint32_t>(i), made_id});
    char32_t before = decode_utf8_before(left, left.size()).value, after = decode_utf8(right, 0).value;
    if (bytes) {
      const int before_byte = symbol_byte(before), after_byte = symbol_byte(after);
      if (before_byte < 0 || after_byte < 0) continue;  // never comes up: pieces are bytes
      before = static_cast<char32_t>(before_byte);
      after = static_cast<char32_t>(after_byte);
    }
    if (before < 256 && after < 256)
      low_joins_[before * 256 + after] = true;
    else
      joins_.insert(static_cast<uint64_t>(before) << 32 | after);
  }
  if (!ignore_merges_) return;
  // Whole pieces by their bytes.
  std::string piece;
  std::vector<std::pair<size_t, size_t>> places;  // in token_bytes_
  std::vector<int32_t> place_ids;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (bytes && !as_bytes(spec.tokens[i], piece)) continue;
    if (!bytes) piece = spec.tokens[i];
    places.emplace_back(token_bytes_.size(), piece.size());
    place_ids.push_back(spec.ids[i]);
    token_bytes_.insert(token_bytes_.end(), piece.begin(), piece.end());
    longest_piece_ = std::max(longest_piece_, piece.size());
  }
  pieces_.reserve(places.size());
  for (size_t i = 0; i < places.size(); ++i)
    pieces_.emplace(std::string_view(token_bytes_.data() + places[i].first, places[i].second), place_ids[i]);
}

int32_t BpeModel::symbol_of(char32_t code) const {
  if (code < low_symbols_.size()) return low_symbols_[code];
  const auto found = symbols_.find(code);
  return found == symbols_.end() ? -1 : found->second;
}

// True also where one of them has no symbol: what stands for it may merge or fuse.
bool BpeModel::may_join(char32_t left, char32_t right) const {
  if (left < 256 && right < 256 ? low_joins_[left * 256 + right]
                                : joins_.contains(static_cast<uint64_t>(left) << 32 | right))
    return true;
  return symbol_of(left) < 0 || symbol_of(right) < 0;
}

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(model), slots_(kCacheSlots, 0) {}

size_t BpeEncoder::encode(std::string_view piece, bool begins, bool final, std::vector<int32_t>& ids) {
  if (model_.ignore_merges_ && begins) {
    if (piece.size() <= model_.longest_piece_) {
      if (!final) return 0;  // it may turn out to be a token
      if (const auto found = model_.pieces_.find(piece); found != model_.pieces_.end()) {
        ids.push_back(found->second);
        return piece.size();
      }
    }
  }
  if (final && piece.size() <= kCutBeyond) {
    encode_part(piece, ids);
    return piece.size();
  }
  size_t part = 0;  // where the part that is not encoded yet begins
  char32_t before = 0;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint character =
        model_.bytes_ ? CodePoint{static_cast<unsigned char>(piece[at]), 1} : decode_utf8(piece, at);
    const bool natural = character.value == ' ' || character.value == kWordMark;
    if (at > part && (natural || at - part >= kCutBeyond) && !model_.may_join(before, character.value)) {
      encode_part(piece.substr(part, at - part), ids);
      part = at;
    }
    before = character.value;
    at += character.length;
  }
  if (!final) return part;
  encode_part(piece.substr(part), ids);
  return piece.size();
}

void BpeEncoder::encode_part(std::string_view part, std::vector<int32_t>& ids) {
  if (part.empty()) return;
  if (part.size() > kLongestPart)
    throw_user(ExitCode::kBadFile, "a text has {} bytes that nothing splits; expected at most {}",
               part.size(), kLongestPart);
  const bool short_enough = part.size() <= kLongestRemembered;
  uint64_t hash = 0;
  if (short_enough) {
    hash = hash_of(part);
    if (cached(part, hash, ids)) return;
  }
  const size_t first = ids.size();
  start_symbols(part);
  if (start_.size() <= kShortPiece)
    merge_short(ids);
  else
    merge_long(ids);
  if (short_enough) remember(part, hash, std::span(ids).subspan(first));
  if (start_.capacity() > (size_t{1} << 20)) {  // a very long piece: its buffers go back
    start_ = {};
    symbols_ = {};
    heap_ = {};
  }
}

void BpeEncoder::start_symbols(std::string_view part) {
  start_.clear();
  if (model_.bytes_) start_.reserve(part.size());
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) start_.push_back(model_.unknown_);
    unknown_waits = false;
  };
  for (size_t at = 0; at < part.size();) {
    const CodePoint character =
        model_.bytes_ ? CodePoint{static_cast<unsigned char>(part[at]), 1} : decode_utf8(part, at);
    const std::string_view bytes = part.substr(at, character.length);
    at += character.length;
    if (const int32_t id = model_.symbol_of(character.value); id >= 0) {
      flush();
      start_.push_back(id);
      continue;
    }
    if (model_.has_byte_tokens_) {
      // With GPT-2's symbols the bytes that fall back are those of the symbol.
      std::string symbol;
      if (model_.bytes_) append_utf8(symbol, byte_symbol(static_cast<uint8_t>(character.value)));
      const std::string_view fallback = model_.bytes_ ? std::string_view(symbol) : bytes;
      const auto token = [&](char c) { return model_.byte_tokens_[static_cast<unsigned char>(c)]; };
      if (std::all_of(fallback.begin(), fallback.end(), [&](char c) { return token(c) >= 0; })) {
        for (const char c : fallback) start_.push_back(token(c));
        continue;
      }
    }
    if (model_.unknown_ < 0) continue;  // left out, as the library does
    if (!model_.fuse_unk_) flush();
    unknown_waits = true;
  }
  flush();
}

void BpeEncoder::merge_short(std::vector<int32_t>& ids) {
  const auto pair_at = [&](size_t i) {
    const MergeTable::Merge* merge = model_.merges_.find(start_[i], start_[i + 1]);
    return merge != nullptr ? *merge : MergeTable::Merge{kNoRank, 0};
  };
  pairs_.clear();
  for (size_t i = 0; i + 1 < start_.size(); ++i) pairs_.push_back(pair_at(i));
  while (!pairs_.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pairs_.size(); ++i)
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    if (pairs_[best].rank == kNoRank) break;
    start_[best] = pairs_[best].made;
    const auto offset = static_cast<std::ptrdiff_t>(best);
    start_.erase(start_.begin() + offset + 1);
    pairs_.erase(pairs_.begin() + offset);
    if (best > 0) pairs_[best - 1] = pair_at(best - 1);
    if (best < pairs_.size()) pairs_[best] = pair_at(best);
  }
  ids.insert(ids.end(), start_.begin(), start_.end());
}

void BpeEncoder::merge_long(std::vector<int32_t>& ids) {
  const auto count = static_cast<uint32_t>(start_.size());
  symbols_.clear();
  symbols_.reserve(count);
  for (uint32_t i = 0; i < count; ++i)
    symbols_.push_back({start_[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1});
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  // What the symbol at `at` and the next one become, if they merge.
  const auto merge_at = [&](uint32_t at) -> const MergeTable::Merge* {
    const Symbol& symbol = symbols_[at];
    if (symbol.id < 0 || symbol.next == kEnd) return nullptr;
    return model_.merges_.find(symbol.id, symbols_[symbol.next].id);
  };
  // Its pair may have changed since.
  const auto is_live = [&](const Candidate& candidate) {
    const MergeTable::Merge* merge = merge_at(candidate.at);
    return merge != nullptr && merge->rank == candidate.rank;
  };
  // At most one candidate is live for each symbol but the last. A merge takes one out and puts at most two in: those that are not live
  // go when a quarter more than the symbols has gathered, so that this happens a few times in all.
  heap_.clear();
  heap_.reserve(size_t{count} + count / 4 + 2);
  for (uint32_t i = 0; i < count; ++i)
    if (const MergeTable::Merge* merge = merge_at(i)) heap_.push_back({merge->rank, i});
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto push = [&](uint32_t at) {
    if (at == kEnd) return;
    const MergeTable::Merge* merge = merge_at(at);
    if (merge == nullptr) return;
    if (heap_.size() == heap_.capacity()) {
      std::erase_if(heap_, [&](const Candidate& candidate) { return !is_live(candidate); });
      std::make_heap(heap_.begin(), heap_.end(), later);
    }
    heap_.push_back({merge->rank, at});
    std::push_heap(heap_.begin(), heap_.end(), later);
  };
  uint32_t left = count;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate top = heap_.back();
    heap_.pop_back();
    if (!is_live(top)) continue;
    Symbol& symbol = symbols_[top.at];
    Symbol& gone = symbols_[symbol.next];
    symbol.id = merge_at(top.at)->made;
    symbol.next = gone.next;
    gone.id = -1;
    if (symbol.next != kEnd) symbols_[symbol.next].previous = top.at;
    --left;
    push(symbol.previous);
    push(top.at);
  }
  if (left > ids.size()) {  // at least as much again: growing step by step would hold it twice
    start_ = {};
    heap_ = {};
    ids.reserve(ids.size() + left);
  }
  for (uint32_t i = 0; i != kEnd && count > 0; i = symbols_[i].next) ids.push_back(symbols_[i].id);
}

bool BpeEncoder::cached(std::string_view part, uint64_t hash, std::vector<int32_t>& ids) const {
  for (size_t slot = hash & (kCacheSlots - 1); slots_[slot] != 0; slot = (slot + 1) & (kCacheSlots - 1)) {
    const uint64_t found = slots_[slot];
    if ((found ^ hash) >> 32 != 0) continue;
    const char* entry = entries_.data() + (static_cast<uint32_t>(found) - 1);
    if (static_cast<unsigned char>(entry[0]) != part.size() ||
        std::memcmp(entry + 2, part.data(), part.size()) != 0)
      continue;
    const size_t count = static_cast<unsigned char>(entry[1]), old = ids.size();
    if (count == 0) return true;  // of symbols without a token, all left out
    ids.resize(old + count);
    std::memcpy(ids.data() + old, entry + 2 + part.size(), count * sizeof(int32_t));
    return true;
  }
  return false;
}

void BpeEncoder::remember(std::string_view part, uint64_t hash, std::span<const int32_t> ids) {
  const size_t size = 2 + part.size() + ids.size_bytes();
  if (entries_.size() + size > kCacheBytes || remembered_ >= kCacheSlots / 2) {
    std::fill(slots_.begin(), slots_.end(), 0);
    entries_.clear();
    remembered_ = 0;
  }
  size_t slot = hash & (kCacheSlots - 1);
  while (slots_[slot] != 0) slot = (slot + 1) & (kCacheSlots - 1);
  slots_[slot] = (hash >> 32) << 32 | static_cast<uint32_t>(entries_.size() + 1);
  entries_.push_back(static_cast<char>(part.size()));
  entries_.push_back(static_cast<char>(ids.size()));
  entries_.insert(entries_.end(), part.begin(), part.end());
  const auto* bytes = reinterpret_cast<const char*>(ids.data());
  entries_.insert(entries_.end(), bytes, bytes + ids.size_bytes());
  ++remembered_;
}

}  // namespace snug
