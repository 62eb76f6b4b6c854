// layout/first_fit.h — an arena that answers: where is the lowest hole for these bytes during these moments?
//
// The packer's inner loop. Times are small integers and sizes are multiples of one unit (pack.cc maps moments
// and bytes to them), so this structure knows neither alignment nor persistence.
//
// Method: the placed boxes in order of offset, in chunks of at most 256. A chunk carries a mask of the 512
//         buckets of time that some box of it touches; a query skips chunks whose mask does not meet its own.
//         Inside a chunk, boxes that live at no common time are stepped over. O(boxes) a query at worst.
// Source: measured: bench/layout
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace snug::layout {

// Lives at the times [first, last), takes `size` > 0 units.
struct Box {
  int32_t first = 0;
  int32_t last = 0;
  int64_t size = 0;
};

class FirstFit {
 public:
  // All boxes will lie in the times [0, times).
  explicit FirstFit(int32_t times);

  // Places the box at the lowest offset where it meets no placed box, and returns that offset. Places nothing
  // and returns nothing when the box would end above `limit`.
  std::optional<int64_t> place(const Box& box, int64_t limit);

  // Puts the box at this offset >= 0, where the caller knows that it meets no placed box.
  void put(const Box& box, int64_t offset);

  void clear();

  // Boxes and chunks looked at since construction: effort that, unlike time, is the same on every machine.
  int64_t work() const { return work_; }

 private:
  static constexpr size_t kChunkBoxes = 256;
  static constexpr int32_t kBuckets = 512;
  using Mask = std::array<uint64_t, kBuckets / 64>;

  struct Chunk {
    Mask mask{};          // buckets of time that a box of the chunk touches
    int64_t max_end = 0;  // where its highest box ends
    size_t count = 0;
    std::array<int32_t, kChunkBoxes> first{}, last{};
    std::array<int64_t, kChunkBoxes> offset{}, end{};  // ascending by offset
  };

  Mask mask_of(int32_t first, int32_t last) const;
  void insert(const Box& box, int64_t offset, const Mask& mask);
  void split(size_t chunk_idx);

  int32_t times_;
  int64_t work_ = 0;
  std::vector<uint32_t> order_;  // indices into chunks_, ascending by offset
  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // chunks_[used_..) are kept for reuse
};

}  // namespace snug::layout
