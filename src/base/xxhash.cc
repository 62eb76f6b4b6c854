#include "base/xxhash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/file.h"

namespace snug {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
constexpr int64_t kReadBytes = int64_t{1} << 20;

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

Xxh64::Xxh64(uint64_t seed)
    : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed), rest_{} {}

void Xxh64::add(std::span<const std::byte> bytes) {
  const auto stripe = [this](const std::byte* at) {
    for (size_t lane = 0; lane < 4; ++lane) lanes_[lane] = round(lanes_[lane], load<uint64_t>(at + 8 * lane));
  };
  const size_t held = size_ % rest_.size();
  size_ += bytes.size();
  if (held > 0) {
    const size_t take = std::min(bytes.size(), rest_.size() - held);
    std::copy_n(bytes.begin(), take, rest_.begin() + static_cast<ptrdiff_t>(held));
    bytes = bytes.subspan(take);
    if (held + take < rest_.size()) return;
    stripe(rest_.data());
  }
  for (; bytes.size() >= rest_.size(); bytes = bytes.subspan(rest_.size())) stripe(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

uint64_t Xxh64::value() const {
  uint64_t hash = seed_ + kPrime5;
  if (size_ >= rest_.size()) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  hash += size_;
  const std::byte* at = rest_.data();
  size_t left = size_ % rest_.size();
  for (; left >= 8; at += 8, left -= 8)
    hash = std::rotl(hash ^ round(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (left >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
    left -= 4;
  }
  for (; left > 0; ++at, --left) hash = std::rotl(hash ^ static_cast<uint64_t>(*at) * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string to_string(const Fingerprint& fingerprint) {
  return fmt::format("{:016x}{:016x}", fingerprint.high, fingerprint.low);
}

void Fingerprinter::add(std::span<const std::byte> bytes) {
  high_.add(bytes);
  low_.add(bytes);
}

void Fingerprinter::add_field(std::string_view text) {
  const uint64_t size = text.size();
  add(std::as_bytes(std::span(&size, 1)));
  add(std::as_bytes(std::span(text)));
}

void add_file(Fingerprinter& fingerprinter, const std::string& path) {
  const InputFile file(path);
  const auto size = static_cast<uint64_t>(file.size());
  fingerprinter.add(std::as_bytes(std::span(&size, 1)));
  std::vector<std::byte> part;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min(kReadBytes, file.size() - at)));
    file.read(at, part);
    fingerprinter.add(part);
  }
}

}  // namespace snug
