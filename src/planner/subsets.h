// planner/subsets.h — which ways to keep, compress and make again one block's forward values are worth pricing
//
// Method: an item is an output of a forward operation that the backward reads (all further outputs of one
//         operation, such as mean and rstd, are one item), or a smaller value that such values can be made
//         from. Each of the 2^n subsets that are kept is estimated by walking the backward once: the
//         operations that the dropped values' chains repeat (shared ones once, each right before its first
//         reader), their seconds, and the most bytes held, with outputs that may take a dying input's place.
//         The passes that fuse are left out here, so what is left is priced again by the real ones (price.h).
//         O(2^n · operations).
//         What compression saves and costs adds up over the items, whatever else is kept. So of each subset
//         that is left, those items are compressed that cost the fewest seconds for each byte saved: the
//         cheapest, the two cheapest, …; they are estimated in the same way. Every point of the lower hull
//         over bytes and seconds of one subset's compressions is among them. O(subsets · n · operations).
//         Where nothing is made again, all 2^n ways to compress are estimated, for the policies that do so.
// See:    memory_planning's "all subsets priced exactly, other options merged on"; choose_test.cc
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "planner/price.h"
#include "planner/slice.h"

namespace snug::planner {

// Values that are kept, compressed or dropped together.
struct Item {
  std::vector<size_t> values;  // positions in Anatomy::Block::values
  Bytes bytes;
  Bytes code_bytes;  // held of it when it is compressed; 0: it cannot be
  double encode_seconds = 0, decode_seconds = 0;
};

inline constexpr size_t kMostItems = 14;

struct Savable {
  std::vector<Item> items;          // in order of the values, at most kMostItems
  std::vector<size_t> always_kept;  // values of the smallest items where a block has more than that
};
// Of a slice of one block. Items can be compressed only with `compresses`.
Savable savable_values(const Slice& slice, const Anatomy::Block& block, OpPrices& prices,
                       bool compresses = false);

// What the backward reads of a block, item or not: per value of the block.
std::vector<bool> read_by_backward(const Slice& slice);

// What becomes of the items: bit i is item i's. No item is in both; one in neither is made again.
struct Subset {
  uint32_t kept = 0, compressed = 0;
  friend auto operator<=>(const Subset&, const Subset&) = default;
};

// Without compression: all of them where there are at most `limit`. Otherwise those that no other is as good
// as in bytes, seconds and, by the widest margin that `limit` has room for, working set: of the three only
// that is an estimate. Keeping all and keeping nothing are always among them.
std::vector<Subset> promising_subsets(const Slice& slice, const Savable& savable, size_t limit,
                                      OpPrices& prices);
// Those of `exact` with some items compressed instead of kept, reduced to `limit` in the same way. Empty where
// no item can be compressed.
std::vector<Subset> promising_compressions(const Slice& slice, const Savable& savable,
                                           const std::vector<Subset>& exact, size_t limit, OpPrices& prices);

}  // namespace snug::planner
