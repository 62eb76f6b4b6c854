// What reading a model's files takes: 4 bytes for each byte of JSON at most, the text itself among them, however it is made.
#include "base/peak_new.h"
#include "base/testing.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

namespace snug {
namespace {

using peak_new::peak_of;

constexpr int64_t kConstant = int64_t{1} << 20;

// `count` pieces with commas between them.
std::string joined(int count, const std::function<std::string(int)>& piece) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + piece(i);
  return text;
}

std::string safetensors(const std::string& header) {
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(header.size() >> shift & 0xFF);
  return length + header;
}

TEST(FileMemory, ASafetensorsHeaderOfTheSmallestTensors) {
  const TemporaryDirectory directory;
  constexpr int kTensors = 100'000;
  const std::string header =
      "{" +
      joined(
          kTensors,
          [](int i) { return fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i); }) +
      "}";
  const std::string path = directory.add("model.safetensors", safetensors(header));
  size_t read = 0;
  const int64_t peak = peak_of([&] { read = SafetensorsFile(path).entries().size(); });
  EXPECT_EQ(read, size_t{kTensors});
  EXPECT_LE(peak, 4 * static_cast<int64_t>(header.size()) + kConstant);
}

TEST(FileMemory, ASafetensorsHeaderThatIsManyEmptyObjects) {
  const TemporaryDirectory directory;
  const std::string header =
      "{" + joined(300'000, [](int i) { return fmt::format(R"("{}":{{}})", i); }) + "}";
  const std::string path = directory.add("model.safetensors", safetensors(header));
  const int64_t peak = peak_of([&] {
    expect_user_error(ExitCode::kBadFile, "tensor \"0\" has no dtype", [&] { SafetensorsFile file(path); });
  });
  EXPECT_LE(peak, 4 * static_cast<int64_t>(header.size()) + kConstant);
}

TEST(FileMemory, AnIndexOfManyTensors) {
  const TemporaryDirectory directory;
  const std::string index =
      R"({"weight_map":{)" + joined(400'000, [](int i) { return fmt::format(R"("{}":"f")", i); }) + "}}";
  directory.add("model.safetensors.index.json", index);
  const int64_t peak = peak_of([&] {
    expect_user_error(ExitCode::kBadFile,
                      "f: is missing; model.safetensors.index.json lists 400000 tensors in it",
                      [&] { WeightSource::open(directory.path()); });
  });
  EXPECT_LE(peak, 4 * static_cast<int64_t>(index.size()) + kConstant);
}

}  // namespace
}  // namespace snug
