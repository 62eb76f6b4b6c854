// formats/tokenizer/token_finder.h — added tokens in a text: the first, and of those that begin there the longest
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace snug {

class TokenFinder {
 public:
  // The longest content it takes: a search costs at most this many steps a byte.
  static constexpr size_t kLongest = 4096;

  TokenFinder();
  // `content` is not empty and at most kLongest bytes; of equal ones the first added counts.
  void add(std::string_view content, int32_t index);
  bool empty() const { return nodes_.size() == 1; }

  enum class Result { kFound, kNone, kPartial };
  struct Found {
    Result result;
    size_t begin = 0, end = 0;
    int32_t index = 0;
  };
  // The first token that begins at `from` or later. When `final` is false more text may follow: kPartial says
  // that what follows decides, and that none begins before `begin`.
  Found find(std::string_view text, size_t from, bool final) const;

 private:
  struct Node {
    int32_t index = -1;  // of the token that ends here
    uint32_t child = 0, sibling = 0;
    unsigned char byte = 0;
  };
  uint32_t child_of(uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;               // nodes_[0] is the root
  std::array<uint32_t, 256> first_ = {};  // children of the root
};

}  // namespace snug
