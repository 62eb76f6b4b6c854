// base/ids.h — strong indices: a TensorId cannot be used where an OpId is meant
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace snug {

// A dense index into one kind of list. Default constructed it is "none" (-1).
template <typename Tag>
struct Id {
  int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr explicit Id(size_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace snug

template <typename Tag>
struct std::hash<snug::Id<Tag>> {
  size_t operator()(snug::Id<Tag> id) const noexcept { return std::hash<int32_t>{}(id.value); }
};
