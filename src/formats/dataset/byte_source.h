// formats/dataset/byte_source.h — the bytes of a data file from front to back, unpacked where it is compressed
//
// gzip and zstd are recognised by their first bytes, whatever the file is called; several streams one after the other are one text.
// Memory: one buffer of kBufferBytes, and what the decompressor keeps: 32 KiB for gzip; for zstd the window that the file asks for, up
// to kMostWindowBytes. That is what `zstd` asks for at most without --long and --ultra, and what RFC 8878 wants of every decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace snug {

class ByteSource {
 public:
  static constexpr int64_t kBufferBytes = int64_t{1} << 18;
  static constexpr int64_t kMostWindowBytes = int64_t{8} << 20;

  explicit ByteSource(std::string path) : path_(std::move(path)) {}
  virtual ~ByteSource() = default;

  // Fills `out` as far as there are bytes; 0 is the end. Throws UserError(kBadFile) for a stream that is broken, ends too early or asks for
  // a larger window.
  virtual size_t read(std::span<char> out) = 0;
  // Bytes of the file read so far, as it lies on the disk.
  virtual int64_t bytes_read() const = 0;

  // Passes over `count` bytes of what read() gives. Throws UserError(kBadFile) when there are fewer.
  virtual void skip(int64_t count);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Throws UserError(kBadFile) for a missing or unreadable file, and for one named .gz or .zst that is neither.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);
// Whether the file is compressed with one of them.
bool is_packed(const std::string& path);

}  // namespace snug
