// formats/tokenizer/code_points.h — sets of code points
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace snug {

// One past the last code point.
inline constexpr char32_t kCodePointsEnd = 0x110000;

struct CodePointRange {
  char32_t first, last;
  bool operator==(const CodePointRange&) const = default;
};

// Held as the places where membership changes: small for what Unicode's classes are made of, and every operation is one walk.
class CodePointSet {
 public:
  CodePointSet() = default;
  // first <= last < kCodePointsEnd.
  CodePointSet(char32_t first, char32_t last) : edges_{first, last + 1} {}
  // Lengths of what lies outside and inside in turns, from 0 on: "65 26" is A to Z.
  static CodePointSet from_runs(std::string_view runs);

  // first lies beyond all that is in it.
  void append(char32_t first, char32_t last);

  bool empty() const { return edges_.empty(); }
  bool contains(char32_t code) const;
  std::vector<CodePointRange> ranges() const;

  // Of all code points.
  CodePointSet operator~() const;
  friend CodePointSet operator|(const CodePointSet& a, const CodePointSet& b);
  friend CodePointSet operator&(const CodePointSet& a, const CodePointSet& b);
  friend CodePointSet operator-(const CodePointSet& a, const CodePointSet& b);
  friend CodePointSet operator^(const CodePointSet& a, const CodePointSet& b);
  CodePointSet& operator|=(const CodePointSet& other) { return *this = *this | other; }
  bool operator==(const CodePointSet&) const = default;

 private:
  template <typename Rule>
  static CodePointSet combine(const CodePointSet& a, const CodePointSet& b, Rule rule);

  std::vector<char32_t> edges_;  // ascending: in from the first on, out from the second on, …
};

// The same for what is asked about every character of a text.
class CodePointTable {
 public:
  CodePointTable() = default;
  explicit CodePointTable(const CodePointSet& set);
  // Any value.
  bool contains(char32_t code) const {
    const size_t page = code >> 8;
    if (page >= pages_.size()) return false;
    return (bits_[pages_[page]][(code & 0xFF) >> 6] >> (code & 0x3F) & 1) != 0;
  }

 private:
  using Page = std::array<uint64_t, 4>;
  std::vector<uint16_t> pages_;  // in bits_; equal pages stand once
  std::vector<Page> bits_;
};

}  // namespace snug
