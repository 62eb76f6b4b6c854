#include "formats/tokenizer/token_finder.h"

#include "base/errors.h"

namespace snug {

TokenFinder::TokenFinder() : nodes_(1) {}

uint32_t TokenFinder::child_of(uint32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void TokenFinder::add(std::string_view content, int32_t index) {
  require(!content.empty() && content.size() <= kLongest, "an added token of {} bytes", content.size());
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .byte = byte});
      nodes_[node].child = child;
      if (node == 0) first_[byte] = child;
    }
    node = child;
  }
  if (nodes_[node].index < 0) nodes_[node].index = index;
}

TokenFinder::Found TokenFinder::find(std::string_view text, size_t from, bool final) const {
  if (empty()) return {Result::kNone};
  for (size_t begin = from; begin < text.size(); ++begin) {
    uint32_t node = first_[static_cast<unsigned char>(text[begin])];
    if (node == 0) continue;
    Found longest{Result::kNone};
    size_t at = begin + 1;
    while (true) {
      if (nodes_[node].index >= 0) longest = {Result::kFound, begin, at, nodes_[node].index};
      if (at == text.size()) {
        if (!final && nodes_[node].child != 0) return {Result::kPartial, begin};
        break;
      }
      node = child_of(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      ++at;
    }
    if (longest.result == Result::kFound) return longest;
  }
  return {Result::kNone};
}

}  // namespace snug
