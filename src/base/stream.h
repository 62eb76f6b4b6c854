// base/stream.h — the random stream of a named operation
#pragma once

#include <cstdint>
#include <string_view>

namespace snug {

// 64-bit FNV-1a (Fowler, Noll & Vo) of the bytes of `text`, as the signed attribute `stream` that it is stored in
// (docs/operations.md, "Randomness").
constexpr int64_t stream_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

}  // namespace snug
