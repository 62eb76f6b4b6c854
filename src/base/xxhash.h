// base/xxhash.h — XXH64, and 128 bits of two of them as the name of a content
//
// Tells contents apart, in caches and checks of files; no protection against somebody who makes a collision on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace snug {

// Bytes in as many parts as one likes.
class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  ~Xxh64();
  void add(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  uint64_t value() const;

 private:
  struct State;  // the library's
  std::unique_ptr<State> state_;
};

inline uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0) {
  Xxh64 hash(seed);
  hash.add(bytes);
  return hash.value();
}

struct Fingerprint {
  uint64_t high = 0, low = 0;
  bool operator==(const Fingerprint&) const = default;
};
// 32 hexadecimal digits.
std::string to_string(const Fingerprint& fingerprint);

class Fingerprinter {
 public:
  void add(std::span<const std::byte> bytes);
  // A field: its size, then its bytes, so that no two lists of fields are the same bytes.
  void add_field(std::string_view text);
  Fingerprint value() const { return {high_.value(), low_.value()}; }

 private:
  Xxh64 high_{0}, low_{1};
};

// Adds a whole file as one field, read in parts. Throws UserError(kBadFile).
void add_file(Fingerprinter& fingerprinter, const std::string& path);

}  // namespace snug
