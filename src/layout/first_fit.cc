#include "layout/first_fit.h"

#include <algorithm>
#include <cstring>

namespace snug::layout {

namespace {
constexpr size_t kTogether = 16;  // divides the boxes of a chunk
}

FirstFit::FirstFit(int32_t times) : times_(std::max(times, 1)) {}

void FirstFit::clear() {
  order_.clear();
  used_ = 0;
}

FirstFit::Mask FirstFit::mask_of(int32_t first, int32_t last) const {
  const auto bucket = [&](int32_t time) { return static_cast<int32_t>(int64_t{time} * kBuckets / times_); };
  const int32_t begin = bucket(first), end = bucket(last - 1) + 1;
  Mask mask{};
  for (int32_t word = begin / 64; word <= (end - 1) / 64; ++word) {
    const int32_t low = std::max(begin - word * 64, 0), high = std::min(end - word * 64, 64);
    mask[static_cast<size_t>(word)] = (~uint64_t{0} >> (64 - (high - low))) << low;
  }
  return mask;
}

std::optional<int64_t> FirstFit::place(const Box& box, int64_t limit) {
  const Mask mask = mask_of(box.first, box.last);
  int64_t offset = 0;
  for (const uint32_t chunk_idx : order_) {
    const Chunk& chunk = chunks_[chunk_idx];
    uint64_t common = 0;
    for (size_t word = 0; word < mask.size(); ++word) common |= mask[word] & chunk.mask[word];
    ++work_;
    if (common == 0 || chunk.max_end <= offset) continue;
    // Which boxes share a time with ours: plain loops that the compiler turns into vector compares.
    alignas(kTogether) std::array<uint8_t, kChunkBoxes> shares;
    for (size_t i = 0; i < chunk.count; i += kTogether)
      for (size_t j = i; j < i + kTogether; ++j)
        shares[j] = static_cast<uint8_t>((chunk.first[j] < box.last) & (box.first < chunk.last[j]));
    bool found = false;
    size_t i = 0;
    for (; i < chunk.count && !found; i += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, &shares[i], 8);
      if (eight == 0) continue;
      for (size_t j = i; j < std::min(i + 8, chunk.count); ++j) {
        if (!shares[j]) continue;
        if (chunk.offset[j] >= offset + box.size) {
          found = true;
          break;
        }
        offset = std::max(offset, chunk.end[j]);
      }
    }
    work_ += static_cast<int64_t>(i);
    if (found) break;
    if (offset + box.size > limit) return std::nullopt;
  }
  if (offset + box.size > limit) return std::nullopt;
  insert(box, offset, mask);
  return offset;
}

void FirstFit::put(const Box& box, int64_t offset) { insert(box, offset, mask_of(box.first, box.last)); }

void FirstFit::insert(const Box& box, int64_t offset, const Mask& mask) {
  if (order_.empty()) {
    if (chunks_.empty()) chunks_.emplace_back();
    chunks_[0].count = 0;
    chunks_[0].mask = Mask{};
    chunks_[0].max_end = 0;
    used_ = 1;
    order_.push_back(0);
  }
  // The last chunk that begins at or below the offset. Only a lone first chunk can be without a box.
  const auto above = std::upper_bound(
      order_.begin() + 1, order_.end(), offset,
      [&](int64_t value, uint32_t chunk_idx) { return value < chunks_[chunk_idx].offset[0]; });
  size_t position = static_cast<size_t>(above - order_.begin()) - 1;
  if (chunks_[order_[position]].count == kChunkBoxes) {
    split(position);
    if (chunks_[order_[position + 1]].offset[0] <= offset) ++position;
  }
  Chunk& chunk = chunks_[order_[position]];
  const size_t at = static_cast<size_t>(
      std::upper_bound(chunk.offset.begin(), chunk.offset.begin() + static_cast<std::ptrdiff_t>(chunk.count),
                       offset) -
      chunk.offset.begin());
  const auto shift_in = [&](auto& values, auto value) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(chunk.count);
    std::copy_backward(begin, end, end + 1);
    *begin = value;
  };
  shift_in(chunk.first, box.first);
  shift_in(chunk.last, box.last);
  shift_in(chunk.offset, offset);
  shift_in(chunk.end, offset + box.size);
  ++chunk.count;
  for (size_t word = 0; word < mask.size(); ++word) chunk.mask[word] |= mask[word];
  chunk.max_end = std::max(chunk.max_end, offset + box.size);
}

void FirstFit::split(size_t position) {
  if (used_ == chunks_.size()) chunks_.emplace_back();
  const uint32_t new_idx = static_cast<uint32_t>(used_++);
  Chunk& lower = chunks_[order_[position]];
  Chunk& upper = chunks_[new_idx];
  const size_t half = lower.count / 2;
  const auto move_upper = [&](const auto& from, auto& to) {
    std::copy(from.begin() + static_cast<std::ptrdiff_t>(half),
              from.begin() + static_cast<std::ptrdiff_t>(lower.count), to.begin());
  };
  move_upper(lower.first, upper.first);
  move_upper(lower.last, upper.last);
  move_upper(lower.offset, upper.offset);
  move_upper(lower.end, upper.end);
  upper.count = lower.count - half;
  lower.count = half;
  for (Chunk* chunk : {&lower, &upper}) {
    chunk->mask = Mask{};
    chunk->max_end = 0;
    for (size_t i = 0; i < chunk->count; ++i) {
      const Mask mask = mask_of(chunk->first[i], chunk->last[i]);
      for (size_t word = 0; word < mask.size(); ++word) chunk->mask[word] |= mask[word];
      chunk->max_end = std::max(chunk->max_end, chunk->end[i]);
    }
  }
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(position) + 1, new_idx);
}

}  // namespace snug::layout
