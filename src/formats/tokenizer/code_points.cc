#include "formats/tokenizer/code_points.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/errors.h"

namespace snug {

CodePointSet CodePointSet::from_runs(std::string_view runs) {
  CodePointSet set;
  char32_t at = 0;
  for (const char *text = runs.data(), *end = text + runs.size(); text < end;) {
    uint32_t length = 0;
    const auto [next, error] = std::from_chars(text, end, length);
    require(error == std::errc() && length <= kCodePointsEnd - at, "runs of code points: {}", runs);
    at += length;
    set.edges_.push_back(at);
    text = next < end ? next + 1 : end;  // past a blank
  }
  if (set.edges_.size() >= 2 && set.edges_[0] == set.edges_[1])
    set.edges_.erase(set.edges_.begin(), set.edges_.begin() + 2);
  require(set.edges_.size() % 2 == 0 && std::is_sorted(set.edges_.begin(), set.edges_.end()),
          "runs of code points: {}", runs);
  return set;
}

void CodePointSet::append(char32_t first, char32_t last) {
  require(edges_.empty() || edges_.back() <= first, "{} is appended behind {}", static_cast<uint32_t>(first),
          edges_.empty() ? 0 : static_cast<uint32_t>(edges_.back()));
  if (!edges_.empty() && edges_.back() == first)
    edges_.back() = last + 1;
  else
    edges_.insert(edges_.end(), {first, last + 1});
}

bool CodePointSet::contains(char32_t code) const {
  return (std::upper_bound(edges_.begin(), edges_.end(), code) - edges_.begin()) % 2 == 1;
}

std::vector<CodePointRange> CodePointSet::ranges() const {
  std::vector<CodePointRange> ranges;
  for (size_t i = 0; i < edges_.size(); i += 2) ranges.push_back({edges_[i], edges_[i + 1] - 1});
  return ranges;
}

template <typename Rule>
CodePointSet CodePointSet::combine(const CodePointSet& a, const CodePointSet& b, Rule rule) {
  CodePointSet made;
  bool inside = false;
  for (size_t i = 0, j = 0; i < a.edges_.size() || j < b.edges_.size();) {
    const char32_t next_a = i < a.edges_.size() ? a.edges_[i] : kCodePointsEnd + 1;
    const char32_t next_b = j < b.edges_.size() ? b.edges_[j] : kCodePointsEnd + 1;
    const char32_t at = std::min(next_a, next_b);
    if (next_a == at) ++i;
    if (next_b == at) ++j;
    if (rule(i % 2 == 1, j % 2 == 1) == inside) continue;
    inside = !inside;
    made.edges_.push_back(at);
  }
  return made;
}

CodePointSet operator|(const CodePointSet& a, const CodePointSet& b) {
  return CodePointSet::combine(a, b, [](bool in_a, bool in_b) { return in_a || in_b; });
}
CodePointSet operator&(const CodePointSet& a, const CodePointSet& b) {
  return CodePointSet::combine(a, b, [](bool in_a, bool in_b) { return in_a && in_b; });
}
CodePointSet operator-(const CodePointSet& a, const CodePointSet& b) {
  return CodePointSet::combine(a, b, [](bool in_a, bool in_b) { return in_a && !in_b; });
}
CodePointSet operator^(const CodePointSet& a, const CodePointSet& b) {
  return CodePointSet::combine(a, b, [](bool in_a, bool in_b) { return in_a != in_b; });
}
CodePointSet CodePointSet::operator~() const { return CodePointSet(0, kCodePointsEnd - 1) - *this; }

CodePointTable::CodePointTable(const CodePointSet& set) : pages_(kCodePointsEnd >> 8) {
  std::vector<Page> pages(pages_.size());
  for (const CodePointRange& range : set.ranges())
    for (char32_t code = range.first; code <= range.last; ++code)
      pages[code >> 8][(code & 0xFF) >> 6] |= uint64_t{1} << (code & 0x3F);
  std::map<Page, uint16_t> known;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto [place, is_new] = known.emplace(pages[i], static_cast<uint16_t>(bits_.size()));
    if (is_new) bits_.push_back(pages[i]);
    pages_[i] = place->second;
  }
}

}  // namespace snug
