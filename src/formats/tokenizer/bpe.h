// formats/tokenizer/bpe.h — byte-pair encoding of one piece of text
//
// Of all neighbours that merge, the pair of the lowest rank is joined first, of equal ones the leftmost, until
// none is left. Short pieces are scanned; long ones go through a heap, so that n bytes cost O(n log n) time and
// at most 60 bytes of memory each. Pieces seen before come from a cache of bounded size.
//
// Where no merge joins the character before a place to the one after it, no merge ever crosses it: long pieces
// are cut there, which changes no id, keeps the cache useful where nothing splits the text before (Llama 2), and
// lets a text that never ends be encoded part by part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

// The vocabulary by token. The views are into the specification's list, which outlives it.
using TokenIds = std::unordered_map<std::string_view, int32_t>;

// Pairs of ids and what becomes of them. Immutable once built.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t made;
  };
  void reserve(size_t count);
  void insert(int32_t left, int32_t right, Merge merge);  // a pair that is there gets the new merge
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].merge;
      if (slots_[slot].key == kFree) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge = {};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15) >> 32 & mask_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// The model of a tokenizer: immutable, for any number of threads.
class BpeModel {
 public:
  // `bytes`: pieces are bytes, tokens are written in GPT-2's symbols. Otherwise pieces are UTF-8.
  // Throws UserError(kBadFile) for a merge or an unk_token outside the vocabulary.
  BpeModel(const TokenizerSpec& spec, const TokenIds& ids, bool bytes);

 private:
  friend class BpeEncoder;

  // Symbol of a character (of a byte with bytes_), or -1.
  int32_t symbol_of(char32_t code) const;
  bool may_join(char32_t left, char32_t right) const;

  bool bytes_, ignore_merges_, fuse_unk_, has_byte_tokens_ = false;
  int32_t unknown_ = -1;
  MergeTable merges_;
  std::vector<int32_t> low_symbols_;                      // below kLowSymbols
  std::unordered_map<char32_t, int32_t> symbols_;         // the others
  std::vector<int32_t> byte_tokens_;                      // <0x00> … <0xFF>, or -1
  std::vector<bool> low_joins_;                           // left·256 + right, both below 256
  std::unordered_set<uint64_t> joins_;                    // the others
  std::vector<char> token_bytes_;                         // with bytes_ and ignore_merges_: tokens as bytes
  std::unordered_map<std::string_view, int32_t> pieces_;  // with ignore_merges_: whole pieces
  size_t longest_piece_ = 0;
};

// What one thread encodes with: a cache and buffers.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);

  // Appends the ids of `piece`. Returns the bytes that were encoded: all of them when `final`; otherwise more of
  // this piece may follow, and the rest is to be given again with it. `begins` is false for such a rest.
  size_t encode(std::string_view piece, bool begins, bool final, std::vector<int32_t>& ids);

 private:
  struct Symbol {
    int32_t id;
    uint32_t previous, next;  // kEnd at both ends
  };
  struct Candidate {
    uint32_t rank, at;
  };

  void encode_part(std::string_view part, std::vector<int32_t>& ids);
  void start_symbols(std::string_view part);
  void merge_short(std::vector<int32_t>& ids);
  void merge_long(std::vector<int32_t>& ids);
  bool cached(std::string_view part, uint64_t hash, std::vector<int32_t>& ids) const;
  void remember(std::string_view part, uint64_t hash, std::span<const int32_t> ids);

  const BpeModel& model_;
  std::vector<int32_t> start_;  // symbols before any merge
  std::vector<MergeTable::Merge> pairs_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  // Entries lie one after the other: length, number of ids, bytes, ids. A slot holds 1 + an entry's place and
  // bits of its hash; 0 is free.
  std::vector<uint64_t> slots_;
  std::vector<char> entries_;
  size_t remembered_ = 0;
};

}  // namespace snug
