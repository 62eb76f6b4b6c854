// formats/safetensors.h — strict, streamed reading and writing of one safetensors file
//
// Layout:   u64 little-endian header length n, n bytes of JSON header (padded with spaces), then the tensors'
// bytes, row-major
//           and little-endian. data_offsets count from the first byte after the header.
// Strict:   everything the reference implementation refuses is refused with its own message: n above
// 100,000,000 or beyond the
//           file, a header that does not begin with '{', invalid or duplicate keys, unknown types, offsets
//           that leave a hole, overlap, do not match shape times type, or do not end at the end of the file;
//           metadata that is not text. Beyond the reference: at most 8 dimensions, names of 1 to 4096 bytes
//           without control characters.
// Memory:   the header, and the caller's buffers. Nothing of the size of a tensor is held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"

namespace snug {

// Element types of the format, in the reference's order of alignment, which is also the order of tensors in a
// written file (largest first). Types of less than a byte a value and the 8-bit floats are refused by name.
enum class FileDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};

int64_t file_dtype_bytes(FileDType dtype);
// "BOOL", "U8", …: the name in the file.
std::string_view file_dtype_name(FileDType dtype);
std::optional<FileDType> parse_file_dtype(std::string_view name);
// The engine's type with the same bytes; none for those it does not compute with (BOOL, I8, I16, U16, U64).
std::optional<DType> engine_dtype(FileDType dtype);
FileDType file_dtype(DType dtype);

// A tensor to be written.
struct TensorSpec {
  std::string name;
  FileDType dtype = FileDType::kF32;
  Shape shape;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// A tensor with its place: the half-open byte range [begin, end) of the data section.
struct SafetensorsEntry {
  std::string name;
  FileDType dtype = FileDType::kF32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
  friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

// The checked header of a file as read. Safe to read from several threads at once.
class SafetensorsFile {
 public:
  // Opens and validates. Throws UserError(kBadFile).
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // None when there is no tensor of the name.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Fills `destination` with bytes [first, first + destination.size()) of the tensor. InternalError outside
  // of it.
  void read(const SafetensorsEntry& entry, int64_t first, std::span<std::byte> destination) const;

 private:
  InputFile file_;
  int64_t data_start_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::vector<uint32_t> by_name_;  // entries in the order of their names
  std::map<std::string, std::string> metadata_;
};

// Orders the tensors as the reference writer does (type, larger first, then name) and lays them out without
// gaps. InternalError for a duplicate or refused name.
std::vector<SafetensorsEntry> lay_out_tensors(std::vector<TensorSpec> tensors);

// The 8 length bytes and the padded header of a file with these entries and metadata {"format":"pt"}.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries);

// Writes one file tensor after tensor, in the order of entries(), through an AtomicFile: it appears whole at
// commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // Appends bytes of the tensor `entry` that begin at its byte `first`. The bytes of a file come in order and
  // completely; anything else is an InternalError.
  void write(const SafetensorsEntry& entry, int64_t first, std::span<const std::byte> bytes);

  // See AtomicFile. All bytes must have been written.
  void prepare();
  void commit();

 private:
  std::vector<SafetensorsEntry> entries_;
  AtomicFile file_;
  int64_t data_start_ = 0;
};

}  // namespace snug
