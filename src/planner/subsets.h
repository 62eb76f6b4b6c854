// planner/subsets.h — which keep/recompute subsets of one block's forward values are worth pricing
//
// Method: an item is an output of a forward operation that the backward reads (all further outputs of one
//         operation, such as mean and rstd, are one item), or a smaller value that such values can be made
//         from. Each of the 2^n subsets is estimated by walking the backward once: the operations that the
//         dropped values' chains repeat (shared ones once, each right before its first reader), their
//         seconds, and the most bytes held, with outputs that may take a dying input's place. The passes that
//         fuse are left out here, so what is left is priced again by the real ones (price.h). O(2^n ·
//         operations).
// See:    memory_planning's "all subsets priced exactly"; choose_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "planner/price.h"
#include "planner/slice.h"

namespace snug::planner {

// Values that are kept or dropped together.
struct Item {
  std::vector<size_t> values;  // positions in Anatomy::Block::values
  Bytes bytes;
};

inline constexpr size_t kMostItems = 14;

struct Savable {
  std::vector<Item> items;          // in order of the values, at most kMostItems
  std::vector<size_t> always_kept;  // values of the smallest items where a block has more than that
};
// Of a slice of one block.
Savable savable_values(const Slice& slice, const Anatomy::Block& block, OpPrices& prices);

// What the backward reads of a block, item or not: per value of the block.
std::vector<bool> read_by_backward(const Slice& slice);

// Bit i of a subset: item i is kept. All of them where there are at most `limit`. Otherwise those that no
// other is as good as in bytes, seconds and, by the widest margin that `limit` has room for, working set: of
// the three only that is an estimate. Keeping all and keeping nothing are always among them.
std::vector<uint32_t> promising_subsets(const Slice& slice, const Savable& savable, size_t limit,
                                        OpPrices& prices);

}  // namespace snug::planner
