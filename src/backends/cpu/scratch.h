// backends/cpu/scratch.h — one operation's scratch cut into parts, each aligned for the kernels
//
// The same sequence of `take` calls with no storage behind it gives the size at plan time and with storage
// gives the addresses, so the two cannot disagree.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/errors.h"

namespace snug::cpu {

constexpr Bytes kScratchAlignment{64};

class Scratch {
 public:
  // For sizes only: every part's address is null.
  Scratch() = default;
  explicit Scratch(std::span<std::byte> storage) : storage_(storage), granted_(true) {}

  // The next part, aligned to kScratchAlignment when the storage is. Throws InternalError when the storage is
  // too small.
  std::byte* take(Bytes bytes) {
    const Bytes begin = used_;
    used_ += round_up(bytes, kScratchAlignment);
    if (!granted_ || bytes == Bytes()) return nullptr;
    require(used_.value <= static_cast<int64_t>(storage_.size()), "scratch: needs {} bytes, has {}",
            used_.value, storage_.size());
    return storage_.data() + begin.value;
  }
  template <typename T>
  T* take(int64_t elements) {
    return reinterpret_cast<T*>(take(Bytes(checked_mul(elements, sizeof(T)))));
  }
  Bytes used() const { return used_; }

 private:
  std::span<std::byte> storage_;
  bool granted_ = false;
  Bytes used_;
};

}  // namespace snug::cpu
