#include "formats/safetensors.h"

#include <numeric>

#include "base/testing.h"

namespace snug {
namespace {

// The 8 length bytes and `json` as it stands, then the data.
std::string safetensors_bytes(const std::string& json, const std::string& data) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(json.size() >> shift & 0xFF);
  return bytes + json + data;
}

std::string counting_bytes(size_t count) {
  std::string bytes(count, '\0');
  std::iota(bytes.begin(), bytes.end(), '\1');
  return bytes;
}

std::string read_all(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::string bytes(static_cast<size_t>(entry->bytes()), '?');
  file.read(*entry, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Three tensors: a F32 [2] at [0,8), b BF16 [2,2] at [8,16), c U8 [3] at [16,19).
const std::string kHeader = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},)"
                            R"("c":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";

TEST(Safetensors, ReadsTensorsAndRanges) {
  const TemporaryDirectory directory;
  const SafetensorsFile file(directory.add("m.safetensors", safetensors_bytes(kHeader, counting_bytes(19))));
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.entries()[1], (SafetensorsEntry{"b", FileDType::kBF16, {2, 2}, 8, 16}));
  EXPECT_EQ(read_all(file, "a"), counting_bytes(8));
  EXPECT_EQ(read_all(file, "c"), "\x11\x12\x13");
  std::string part(2, '?');
  file.read(*file.find("b"), 3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "\x0c\x0d");
  EXPECT_EQ(file.find("d"), nullptr);
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_THROW(file.read(*file.find("c"), 2, std::as_writable_bytes(std::span(part))), InternalError);
  EXPECT_THROW(file.read(*file.find("c"), -1, std::as_writable_bytes(std::span(part))), InternalError);
}

TEST(Safetensors, ReadsWhateverIsLegal) {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& json, size_t bytes) {
    return SafetensorsFile(directory.add("m.safetensors", safetensors_bytes(json, counting_bytes(bytes))));
  };
  EXPECT_TRUE(open("{}", 0).entries().empty());
  EXPECT_TRUE(open("{}      ", 0).entries().empty());  // padded
  EXPECT_EQ(open(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8).entries()[0].shape, Shape());
  // Zero-size tensors stand anywhere, also in the middle of others, and whatever their other dimensions are.
  const auto zero = open(R"({"z":{"dtype":"F32","shape":[0,4],"data_offsets":[4,4]},
                             "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                             "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},
                             "y":{"dtype":"F32","shape":[9223372036854775807,4611686018427387904,0],"data_offsets":[8,8]}})",
                         8);
  EXPECT_EQ(zero.entries().size(), 4U);
  EXPECT_EQ(read_all(zero, "z"), "");
  EXPECT_EQ(read_all(zero, "b"), "\5\6\7\10");
  // The header's order is not the order of the bytes.
  const auto swapped = open(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},
                                "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"format":"pt","x":""}})",
                            2);
  EXPECT_EQ(swapped.entries()[0].name, "a");
  EXPECT_EQ(swapped.metadata().at("format"), "pt");
  for (const char* name : {"BOOL", "U8", "I8"})
    EXPECT_EQ(open(fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,3]}}}})", name), 3)
                  .entries()
                  .size(),
              1U);
}

struct BadFile {
  const char* what;
  std::string bytes;
  const char* message;
};

std::string one_tensor(const std::string& fields, size_t bytes) {
  return safetensors_bytes("{\"t\":{" + fields + "}}", counting_bytes(bytes));
}

std::vector<BadFile> bad_files() {
  const std::string good = safetensors_bytes(kHeader, counting_bytes(19));
  const auto length = [&](uint64_t n) {
    std::string bytes = good;
    for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(n >> (8 * i) & 0xFF);
    return bytes;
  };
  return {
      {"minus 1 byte", good.substr(0, good.size() - 1),
       "is 1 bytes short: the tensors need 19 bytes, 18 are there"},
      {"minus a tensor", good.substr(0, good.size() - 3), "is 3 bytes short"},
      {"header and no data", safetensors_bytes(kHeader, ""), "is 19 bytes short"},
      {"8 bytes only", good.substr(0, 8), "bytes follow it (probably an interrupted download or save)"},
      {"7 bytes only", good.substr(0, 7),
       "is 7 bytes; a safetensors file begins with 8 bytes of header length"},
      {"0 bytes", "", "is 0 bytes; a safetensors file begins with 8 bytes of header length"},
      {"cut in the header", good.substr(0, 40), "but only 32 bytes follow it"},
      {"header length > file", length(good.size()), "but only"},
      {"header length above the cap", length(100'000'001),
       "header length is 100000001; expected at most 100000000"},
      {"header length of 2^64 - 1", length(~uint64_t{0}),
       "header length is 18446744073709551615; expected at most"},
      {"header length of 2^63", length(uint64_t{1} << 63),
       "header length is 9223372036854775808; expected at most"},
      {"header length 0", length(0), "header length is 0; expected at least 2"},
      {"header length 1", length(1), "header length is 1; expected at least 2"},
      {"header cut short by its length", length(kHeader.size() - 1), "not valid JSON"},
      {"+4 trailing bytes", good + "1234",
       "has 4 bytes after the last tensor; expected the file to end there"},
      {"trailing bytes without tensors", safetensors_bytes("{}", "x"), "has 1 bytes after the last tensor"},
      {"begins with a space", safetensors_bytes(" {}", ""), "the header begins with byte 0x20; expected '{'"},
      {"an array", safetensors_bytes("[]", ""), "the header begins with byte 0x5b; expected '{'"},
      {"padded with NUL", safetensors_bytes(std::string("{}\0\0", 4), ""), "not valid JSON"},
      {"two values", safetensors_bytes("{}{}", ""), "not valid JSON"},
      {"invalid UTF-8", safetensors_bytes("{\"\xff\":1}", ""), "not valid JSON"},
      {"a pickle", std::string("PK\3\4\0\0\10\10\0\0\0\0", 12), "(probably not a safetensors file)"},
      {"duplicate key",
       safetensors_bytes(
           R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           "xx"),
       "the key \"t\" occurs twice"},
      {"duplicate field", one_tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])", 1),
       "the key \"dtype\" occurs twice"},
      {"duplicate metadata", safetensors_bytes(R"({"__metadata__":{"a":"1","a":"2"}})", ""),
       "the key \"a\" occurs twice"},
      {"hole between tensors",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
           "xxxx"),
       "a hole of 2 bytes lies between tensor \"a\" and tensor \"b\""},
      {"hole at the beginning", one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2),
       "a hole of 1 bytes lies between the header and tensor \"t\""},
      {"overlap",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           "xxxx"),
       "tensor \"b\" overlaps tensor \"a\" by 1 bytes"},
      {"the same bytes twice",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
           "xxx"),
       "tensor \"b\" overlaps tensor \"a\" by 3 bytes"},
      {"offset overflow",
       one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615])", 1),
       "data_offsets is 18446744073709551615 (number); expected a non-negative integer of at most 63 bits"},
      {"offset beyond 64 bits",
       one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551617])", 1),
       "expected a non-negative integer of at most 64 bits"},
      {"offsets near 2^63",
       one_tensor(R"("dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807])", 1),
       "bytes short: the tensors need 9223372036854775807 bytes, 1 are there"},
      {"shape overflow",
       one_tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       "shape [4294967296,4294967296] of F32 exceeds 64 bits of bytes"},
      {"offsets backwards", one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1),
       "data_offsets [1, 0] end before they begin"},
      {"negative offset", one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", 1),
       "expected a non-negative integer"},
      {"negative dimension", one_tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
       "shape is -1 (number); expected a non-negative integer"},
      {"fractional dimension", one_tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1),
       "shape is 1.0 (number)"},
      {"shape × type ≠ bytes", one_tensor(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])", 20),
       "data_offsets [0, 20] are 20 bytes, but shape [2,3] of F32 takes 24 bytes"},
      {"rank 0 with 8 bytes of F32", one_tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,8])", 8),
       "shape [] of F32 takes 4 bytes"},
      {"9 dimensions", one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1),
       "shape has 9 dimensions; expected at most 8"},
      {"unknown dtype", one_tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])", 4),
       "dtype \"F33\" is unknown"},
      {"dtype in lower case", one_tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])", 4),
       "dtype \"f32\" is unknown"},
      {"8-bit floats", one_tensor(R"("dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4])", 4),
       "dtype \"F8_E4M3\" is a compressed or complex type, which cannot be trained"},
      {"4-bit floats", one_tensor(R"("dtype":"F4","shape":[8],"data_offsets":[0,4])", 4),
       "dtype \"F4\" is a compressed"},
      {"dtype is a number", one_tensor(R"("dtype":4,"shape":[1],"data_offsets":[0,4])", 4),
       "tensor \"t\": dtype is 4 (number); expected a type name"},
      {"no dtype", one_tensor(R"("shape":[1],"data_offsets":[0,4])", 4), "tensor \"t\" has no dtype"},
      {"no shape", one_tensor(R"("dtype":"F32","data_offsets":[0,4])", 4), "tensor \"t\" has no shape"},
      {"no offsets", one_tensor(R"("dtype":"F32","shape":[1])", 4), "tensor \"t\" has no data_offsets"},
      {"a fourth field", one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)", 4),
       "has 4 fields"},
      {"three offsets", one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])", 4),
       "expected two integers"},
      {"shape is a number", one_tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])", 4),
       "expected an array of integers"},
      {"tensor is a number", safetensors_bytes(R"({"t":1})", ""),
       "tensor \"t\" is 1 (number); expected an object"},
      {"empty name", safetensors_bytes(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
       "is empty"},
      {"NUL in a name",
       safetensors_bytes(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
       "has control characters"},
      {"long name",
       safetensors_bytes(
           "{\"" + std::string(4097, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
       "is longer than 4096 bytes"},
      {"metadata is a list", safetensors_bytes(R"({"__metadata__":[]})", ""),
       "__metadata__ is [] (array); expected an object of strings"},
      {"metadata holds a number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""),
       "__metadata__: a is 1 (number); expected a string"},
      {"deep nesting",
       safetensors_bytes("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", ""),
       "nested deeper than 3 levels"},
  };
}

TEST(Safetensors, RefusesEveryBrokenFileWithItsReason) {
  const TemporaryDirectory directory;
  for (const BadFile& bad : bad_files()) {
    SCOPED_TRACE(bad.what);
    const std::string path = directory.add("m.safetensors", bad.bytes);
    expect_user_error(ExitCode::kBadFile, bad.message, [&] { SafetensorsFile file(path); });
    expect_user_error(ExitCode::kBadFile, path + ": ", [&] { SafetensorsFile file(path); });
  }
}

// Whatever prefix of a file is left, or whatever byte follows it, it is refused.
TEST(Safetensors, EveryTruncationIsFound) {
  const TemporaryDirectory directory;
  const std::string good = safetensors_bytes(kHeader, counting_bytes(19));
  for (size_t size = 0; size < good.size(); ++size) {
    SCOPED_TRACE(size);
    const std::string path = directory / "m.safetensors";
    remove_all(path);
    OutputFile(path, OutputFile::Mode::kExclusive).write(good.substr(0, size));
    expect_user_error(ExitCode::kBadFile, "m.safetensors", [&] { SafetensorsFile file(path); });
  }
}

TEST(SafetensorsWriter, WritesTheReferencesBytes) {
  // Written by the reference implementation (Python safetensors 0.8.0) from {"b": F32 [2], "a": F32 [1,1], "h": BF16 [2],
  // "i": I64 [1], "m": BOOL [1]} with metadata {"format": "pt"}: larger types first, then by name.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
      R"("h":{"dtype":"BF16","shape":[2],"data_offsets":[20,24]},"m":{"dtype":"BOOL","shape":[1],"data_offsets":[24,25]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const TemporaryDirectory directory;
  SafetensorsWriter writer(directory / "m.safetensors", {{"b", FileDType::kF32, {2}},
                                                         {"a", FileDType::kF32, {1, 1}},
                                                         {"m", FileDType::kBool, {1}},
                                                         {"h", FileDType::kBF16, {2}},
                                                         {"i", FileDType::kI64, {1}}});
  const std::string data = counting_bytes(25);
  for (const SafetensorsEntry& entry : writer.entries())
    writer.write(entry, 0,
                 std::as_bytes(std::span(data))
                     .subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.bytes())));
  EXPECT_FALSE(file_exists(writer.path()));
  writer.commit();
  EXPECT_EQ(read_small_file(writer.path(), kMiB), safetensors_bytes(padded, data));
}

TEST(SafetensorsWriter, OrdersAllTypesByAlignment) {
  std::vector<TensorSpec> specs;
  for (const char* name :
       {"BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"})
    specs.push_back({name, *parse_file_dtype(name), {1}});
  std::string order;
  for (const SafetensorsEntry& entry : lay_out_tensors(specs)) order += entry.name + " ";
  EXPECT_EQ(order, "U64 I64 F64 F32 U32 I32 BF16 F16 U16 I16 I8 U8 BOOL ");
  for (const TensorSpec& spec : specs) {
    EXPECT_EQ(file_dtype_name(spec.dtype), spec.name);
    if (const auto engine = engine_dtype(spec.dtype)) {
      EXPECT_EQ(file_dtype(*engine), spec.dtype);
      EXPECT_EQ(dtype_bytes(*engine), file_dtype_bytes(spec.dtype));
    }
  }
}

TEST(SafetensorsWriter, RoundTripIsByteIdentical) {
  const TemporaryDirectory directory;
  const SafetensorsFile before(
      directory.add("a.safetensors", safetensors_bytes(kHeader, counting_bytes(19))));
  std::vector<TensorSpec> specs;
  for (const SafetensorsEntry& entry : before.entries())
    specs.push_back({entry.name, entry.dtype, entry.shape});
  specs.push_back({"empty", FileDType::kF32, {0, 3}});
  specs.push_back({"quote\" \\ é", FileDType::kU8, {}});
  SafetensorsWriter writer(directory / "b.safetensors", specs);
  for (const SafetensorsEntry& entry : writer.entries()) {
    std::string bytes(static_cast<size_t>(entry.bytes()), 'e');
    if (const SafetensorsEntry* source = before.find(entry.name))
      before.read(*source, 0, std::as_writable_bytes(std::span(bytes)));
    // In two parts: a tensor is streamed.
    const size_t half = bytes.size() / 2;
    writer.write(entry, 0, std::as_bytes(std::span(bytes)).first(half));
    writer.write(entry, static_cast<int64_t>(half), std::as_bytes(std::span(bytes)).subspan(half));
  }
  writer.commit();
  const SafetensorsFile after(directory / "b.safetensors");
  EXPECT_EQ(after.entries().size(), 5U);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(read_all(after, name), read_all(before, name));
    EXPECT_EQ(after.find(name)->shape, before.find(name)->shape);
    EXPECT_EQ(after.find(name)->dtype, before.find(name)->dtype);
  }
  EXPECT_EQ(read_all(after, "quote\" \\ é"), "e");
  EXPECT_EQ(after.metadata().at("format"), "pt");
}

TEST(SafetensorsWriter, RefusesGapsDisorderAndRepeatedNames) {
  const TemporaryDirectory directory;
  const std::string data = counting_bytes(8);
  const auto bytes = std::as_bytes(std::span(data));
  const std::vector<TensorSpec> specs = {{"a", FileDType::kU8, {4}}, {"b", FileDType::kU8, {4}}};
  {
    SafetensorsWriter writer(directory / "m", specs);
    EXPECT_THROW(writer.write(writer.entries()[1], 0, bytes.first(4)), InternalError);
    writer.write(writer.entries()[0], 0, bytes.first(2));
    EXPECT_THROW(writer.write(writer.entries()[0], 3, bytes.first(1)), InternalError);
    EXPECT_THROW(writer.write(writer.entries()[0], 2, bytes.first(3)), InternalError);
    EXPECT_THROW(writer.commit(), InternalError);
  }
  EXPECT_THAT(list_directory(directory.path()), testing::IsEmpty());
  EXPECT_THROW(lay_out_tensors({{"a", FileDType::kU8, {1}}, {"a", FileDType::kF32, {1}}}), InternalError);
  EXPECT_THROW(lay_out_tensors({{"__metadata__", FileDType::kU8, {1}}}), InternalError);
  EXPECT_THROW(lay_out_tensors({{"", FileDType::kU8, {1}}}), InternalError);
}

}  // namespace
}  // namespace snug
