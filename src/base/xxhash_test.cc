#include "base/xxhash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace snug {
namespace {

uint64_t hash_of(std::string_view text, uint64_t seed = 0) {
  return xxh64(std::as_bytes(std::span(text)), seed);
}

// Values of the reference implementation, python-xxhash 3.
TEST(Xxh64, IsTheReferenceImplementation) {
  EXPECT_EQ(hash_of(""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(hash_of("abc"), 0x44BC2CF5AD770999u);
  EXPECT_EQ(hash_of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1u);
  EXPECT_EQ(hash_of("xxhash", 20141025), 0xB559B98D844E0635u);
}

TEST(Xxh64, PartsMakeNoDifference) {
  std::vector<std::byte> bytes(211);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const uint64_t whole = xxh64(bytes);
  for (size_t part = 1; part < 80; part += 6) {
    Xxh64 hash;
    for (size_t at = 0; at < bytes.size(); at += part)
      hash.add(std::span(bytes).subspan(at, std::min(part, bytes.size() - at)));
    EXPECT_EQ(hash.value(), whole) << part;
  }
}

TEST(Fingerprinter, FieldsHaveEnds) {
  Fingerprinter a, b;
  a.add_field("ab");
  a.add_field("c");
  b.add_field("a");
  b.add_field("bc");
  EXPECT_NE(a.value(), b.value());
  EXPECT_EQ(to_string(a.value()).size(), 32u);
}

}  // namespace
}  // namespace snug
