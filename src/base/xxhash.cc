#include "base/xxhash.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace snug {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;

}  // namespace

struct Xxh64::State {
  XXH64_state_t state;
};

Xxh64::Xxh64(uint64_t seed) : state_(std::make_unique<State>()) { XXH64_reset(&state_->state, seed); }

Xxh64::~Xxh64() = default;

void Xxh64::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(&state_->state, bytes.data(), bytes.size());
}

uint64_t Xxh64::value() const { return XXH64_digest(&state_->state); }

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
