#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "base/json.h"

namespace snug {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie in the file");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeaderBytes = 100'000'000;
constexpr size_t kLargestRank = 8;
constexpr size_t kLongestName = 4096;
// Bytes of a header that a tensor takes at least: "a":{"dtype":"U8","shape":[],"data_offsets":[0,0]},
constexpr size_t kSmallestEntry = 51;

struct FileDTypeRow {
  FileDType dtype;
  std::string_view name;
  int64_t bytes;
  std::optional<DType> engine;
};

constexpr std::array<FileDTypeRow, 13> kFileDTypes = {{
    {FileDType::kBool, "BOOL", 1, std::nullopt},
    {FileDType::kU8, "U8", 1, DType::kU8},
    {FileDType::kI8, "I8", 1, std::nullopt},
    {FileDType::kI16, "I16", 2, std::nullopt},
    {FileDType::kU16, "U16", 2, std::nullopt},
    {FileDType::kF16, "F16", 2, DType::kF16},
    {FileDType::kBF16, "BF16", 2, DType::kBF16},
    {FileDType::kI32, "I32", 4, DType::kI32},
    {FileDType::kU32, "U32", 4, DType::kU32},
    {FileDType::kF32, "F32", 4, DType::kF32},
    {FileDType::kF64, "F64", 8, DType::kF64},
    {FileDType::kI64, "I64", 8, DType::kI64},
    {FileDType::kU64, "U64", 8, std::nullopt},
}};

// Types of newer files that exist but are not read: compressed weights of inference engines, and complex
// numbers.
constexpr std::array<std::string_view, 9> kRefusedDTypes = {
    "F4", "F6_E2M3", "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0", "C64", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

const FileDTypeRow& row(FileDType dtype) { return kFileDTypes.at(static_cast<size_t>(dtype)); }

// Why a tensor cannot have this name, or an empty text.
std::string_view name_fault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kLongestName) return "is longer than 4096 bytes";
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }))
    return "has control characters";
  return "";
}

// A non-negative integer of the header.
int64_t header_integer(const Json& value, const std::string& path, const std::string& where) {
  if (value.is_number_float())
    throw_unexpected(path, where, value, "a non-negative integer of at most 64 bits");
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0))
    throw_unexpected(path, where, value, "a non-negative integer");
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    throw_unexpected(path, where, value, "a non-negative integer of at most 63 bits");
  return static_cast<int64_t>(number);
}

// Bytes of shape × type, or none when that exceeds 64 bits.
std::optional<int64_t> tensor_bytes(const Shape& shape, FileDType dtype) {
  int64_t bytes = file_dtype_bytes(dtype);
  bool overflow = false;
  for (const int64_t d : shape.dims()) {
    if (d == 0) return 0;  // a zero among the dimensions wins over any overflow of the others
    overflow = overflow || __builtin_mul_overflow(bytes, d, &bytes);
  }
  return overflow ? std::nullopt : std::optional(bytes);
}

SafetensorsEntry parse_entry(const std::string& name, const Json& json, const std::string& path) {
  const std::string tensor = fmt::format("tensor \"{}\"", name);
  if (const std::string_view fault = name_fault(name); !fault.empty())
    throw_user(ExitCode::kBadFile, "{}: the name of {} {}", path, quote_json(Json(name)), fault);
  if (!json.is_object()) throw_unexpected(path, tensor, json, "an object with dtype, shape and data_offsets");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key)) throw_user(ExitCode::kBadFile, "{}: {} has no {}", path, tensor, key);
  if (json.size() != 3)
    throw_user(ExitCode::kBadFile, "{}: {} has {} fields; expected dtype, shape and data_offsets alone", path,
               tensor, json.size());

  SafetensorsEntry entry;
  entry.name = name;
  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) throw_unexpected(path, tensor + ": dtype", dtype, "a type name such as \"F32\"");
  const auto& dtype_name = dtype.get_ref<const std::string&>();
  const std::optional<FileDType> known = parse_file_dtype(dtype_name);
  if (!known && std::find(kRefusedDTypes.begin(), kRefusedDTypes.end(), dtype_name) != kRefusedDTypes.end())
    throw_user(ExitCode::kBadFile,
               "{}: {}: dtype \"{}\" is a compressed or complex type, which cannot be trained; expected F64, "
               "F32, BF16 or F16 "
               "weights",
               path, tensor, dtype_name);
  if (!known) throw_user(ExitCode::kBadFile, "{}: {}: dtype \"{}\" is unknown", path, tensor, dtype_name);
  entry.dtype = *known;

  const Json& shape = json["shape"];
  if (!shape.is_array()) throw_unexpected(path, tensor + ": shape", shape, "an array of integers");
  if (shape.size() > kLargestRank)
    throw_user(ExitCode::kBadFile, "{}: {}: shape has {} dimensions; expected at most {}", path, tensor,
               shape.size(), kLargestRank);
  std::vector<int64_t> dims;
  for (const Json& d : shape) dims.push_back(header_integer(d, path, tensor + ": shape"));
  entry.shape = Shape(std::move(dims));

  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    throw_unexpected(path, tensor + ": data_offsets", offsets, "two integers");
  entry.begin = header_integer(offsets[0], path, tensor + ": data_offsets");
  entry.end = header_integer(offsets[1], path, tensor + ": data_offsets");
  if (entry.end < entry.begin)
    throw_user(ExitCode::kBadFile, "{}: {}: data_offsets [{}, {}] end before they begin", path, tensor,
               entry.begin, entry.end);
  const std::optional<int64_t> expected = tensor_bytes(entry.shape, entry.dtype);
  if (!expected)
    throw_user(ExitCode::kBadFile, "{}: {}: shape {} of {} exceeds 64 bits of bytes", path, tensor,
               to_string(entry.shape), dtype_name);
  if (*expected != entry.bytes())
    throw_user(ExitCode::kBadFile,
               "{}: {}: data_offsets [{}, {}] are {} bytes, but shape {} of {} takes {} bytes", path, tensor,
               entry.begin, entry.end, entry.bytes(), to_string(entry.shape), dtype_name, *expected);
  return entry;
}

[[noreturn]] void throw_twice(const std::string& path, std::string_view name) {
  throw_user(ExitCode::kBadFile, "{}: header: the key \"{}\" occurs twice in one object", path, name);
}

// Reads the header's JSON text; the length is checked against the file before anything is allocated.
std::string read_header(const InputFile& file) {
  const std::string& path = file.path();
  refuse_git_lfs_pointer(path);
  if (file.size() < kLengthBytes)
    throw_user(ExitCode::kBadFile,
               "{}: is {} bytes; a safetensors file begins with 8 bytes of header length (probably an "
               "interrupted download or "
               "save)",
               path, file.size());
  std::array<unsigned char, kLengthBytes> bytes{};
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  uint64_t length = 0;
  for (size_t i = bytes.size(); i-- > 0;) length = length << 8 | bytes[i];
  if (length > kLargestHeaderBytes)
    throw_user(ExitCode::kBadFile,
               "{}: header length is {}; expected at most {} (probably not a safetensors file)", path, length,
               kLargestHeaderBytes);
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file.size() - kLengthBytes)
    throw_user(
        ExitCode::kBadFile,
        "{}: header length is {}, but only {} bytes follow it (probably an interrupted download or save)",
        path, length, file.size() - kLengthBytes);
  if (header_bytes < 2)
    throw_user(ExitCode::kBadFile, "{}: header length is {}; expected at least 2", path, length);
  std::string text(static_cast<size_t>(header_bytes), '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.front() != '{')
    throw_user(ExitCode::kBadFile, "{}: the header begins with byte 0x{:02x}; expected '{{'", path,
               static_cast<unsigned char>(text.front()));
  return text;
}

}  // namespace

int64_t file_dtype_bytes(FileDType dtype) { return row(dtype).bytes; }
std::string_view file_dtype_name(FileDType dtype) { return row(dtype).name; }

std::optional<FileDType> parse_file_dtype(std::string_view name) {
  for (const FileDTypeRow& r : kFileDTypes)
    if (r.name == name) return r.dtype;
  return std::nullopt;
}

std::optional<DType> engine_dtype(FileDType dtype) { return row(dtype).engine; }

FileDType file_dtype(DType dtype) {
  for (const FileDTypeRow& r : kFileDTypes)
    if (r.engine == dtype) return r.dtype;
  throw_internal("no file type for {}", dtype_name(dtype));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string text = read_header(file_);
  data_start_ = kLengthBytes + static_cast<int64_t>(text.size());
  entries_.reserve(text.size() / kSmallestEntry);  // growing or shrinking would hold them twice
  const JsonLimits limits{.size = Bytes(kLargestHeaderBytes), .depth = 3, .values = 100'000};
  bool has_metadata = false;
  parse_json_members(text, path + ": header", limits, "", [&](std::string&& name, Json&& value) {
    if (name != "__metadata__") {
      entries_.push_back(parse_entry(name, value, path));
      return;
    }
    if (has_metadata) throw_twice(path, name);
    has_metadata = true;
    if (!value.is_object()) throw_unexpected(path, "__metadata__", value, "an object of strings");
    for (const auto& [key, item] : value.items()) {
      if (!item.is_string()) throw_unexpected(path, "__metadata__: " + key, item, "a string");
      metadata_.emplace(key, item.get<std::string>());
    }
  });

  // Zero-size tensors share their begin with the next one, so the end decides among equals.
  std::sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return entries_[a].name < entries_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i)
    if (entries_[by_name_[i]].name == entries_[by_name_[i - 1]].name)
      throw_twice(path, entries_[by_name_[i]].name);
  int64_t reached = 0;
  const std::string* before = nullptr;
  for (const SafetensorsEntry& entry : entries_) {
    if (entry.begin != reached) {
      const std::string neighbour = before != nullptr ? fmt::format("tensor \"{}\"", *before) : "the header";
      if (entry.begin > reached)
        throw_user(ExitCode::kBadFile, "{}: a hole of {} bytes lies between {} and tensor \"{}\"", path,
                   entry.begin - reached, neighbour, entry.name);
      throw_user(ExitCode::kBadFile, "{}: tensor \"{}\" overlaps {} by {} bytes", path, entry.name, neighbour,
                 reached - entry.begin);
    }
    reached = entry.end;
    before = &entry.name;
  }
  const int64_t present = file_.size() - data_start_;
  if (present < reached)
    throw_user(ExitCode::kBadFile,
               "{}: is {} bytes short: the tensors need {} bytes, {} are there (probably an interrupted "
               "download or save)",
               path, reached - present, reached, present);
  if (present > reached)
    throw_user(ExitCode::kBadFile, "{}: has {} bytes after the last tensor; expected the file to end there",
               path, present - reached);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  return found == by_name_.end() || entries_[*found].name != name ? nullptr : &entries_[*found];
}

void SafetensorsFile::read(const SafetensorsEntry& entry, int64_t first,
                           std::span<std::byte> destination) const {
  const auto count = static_cast<int64_t>(destination.size());
  require(first >= 0 && first <= entry.bytes() && count <= entry.bytes() - first,
          "{}: bytes [{}, +{}) of tensor \"{}\" of {}", path(), first, count, entry.name, entry.bytes());
  if (count > 0) file_.read(data_start_ + entry.begin + first, destination);
}

std::vector<SafetensorsEntry> lay_out_tensors(std::vector<TensorSpec> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  int64_t place = 0;
  for (TensorSpec& tensor : tensors) {
    const std::string_view fault = name_fault(tensor.name);
    require(fault.empty() && tensor.name != "__metadata__",
            "a tensor named \"{}\" cannot be written: its name {}", tensor.name,
            fault.empty() ? "is reserved" : fault);
    const std::optional<int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
    require(bytes.has_value(), "tensor \"{}\" {} exceeds 64 bits", tensor.name, to_string(tensor.shape));
    const int64_t end = checked_add(place, *bytes);
    entries.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), place, end});
    place = end;
  }
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : entries)
    require(names.insert(entry.name).second, "tensor \"{}\" is to be written twice", entry.name);
  return entries;
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries) {
  // Assembled as text: the ordered object searches linearly at each insertion.
  std::string json = R"({"__metadata__":{"format":"pt"})";
  for (const SafetensorsEntry& entry : entries) {
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", Json(entry.name).dump(),
                        file_dtype_name(entry.dtype), to_string(entry.shape), entry.begin, entry.end);
  }
  json += '}';
  json.resize(static_cast<size_t>(round_up(static_cast<int64_t>(json.size()), kLengthBytes)), ' ');
  if (static_cast<int64_t>(json.size()) > kLargestHeaderBytes)
    throw_internal("a safetensors header of {} bytes for {} tensors", json.size(), entries.size());
  std::string header;
  for (int shift = 0; shift < 64; shift += 8)
    header += static_cast<char>(static_cast<unsigned char>(json.size() >> shift & 0xFF));
  return header + json;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors)
    : entries_(lay_out_tensors(std::move(tensors))), file_(std::move(path)) {
  const std::string header = safetensors_header(entries_);
  data_start_ = static_cast<int64_t>(header.size());
  file_.preallocate(Bytes(checked_add(data_start_, entries_.empty() ? 0 : entries_.back().end)));
  file_.write(header);
}

void SafetensorsWriter::write(const SafetensorsEntry& entry, int64_t first,
                              std::span<const std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  require(first >= 0 && first <= entry.bytes() && count <= entry.bytes() - first,
          "{}: bytes [{}, +{}) of tensor \"{}\" of {}", path(), first, count, entry.name, entry.bytes());
  require(file_.position() == data_start_ + entry.begin + first, "{}: tensor \"{}\" is written out of order",
          path(), entry.name);
  file_.write(bytes);
}

void SafetensorsWriter::prepare() {
  const int64_t end = data_start_ + (entries_.empty() ? 0 : entries_.back().end);
  require(file_.position() == end, "{}: {} of {} bytes were written", path(), file_.position(), end);
  file_.prepare();
}

void SafetensorsWriter::commit() {
  prepare();
  file_.commit();
}

}  // namespace snug
