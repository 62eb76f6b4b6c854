#include "formats/weights.h"

#include <cerrno>
#include <numeric>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

// The bytes that tensor `name` has in these tests: its name over and over.
std::string tensor_bytes(const std::string& name, int64_t count) {
  std::string bytes;
  while (static_cast<int64_t>(bytes.size()) < count) bytes += name + ".";
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

void write_all(WeightSink& sink) {
  for (const TensorSpec& tensor : sink.order()) {
    const std::string bytes =
        tensor_bytes(tensor.name, tensor.shape.elements() * file_dtype_bytes(tensor.dtype));
    sink.write(tensor.name, 0, std::as_bytes(std::span(bytes)));
  }
}

void save(const std::string& directory, const std::vector<TensorSpec>& tensors,
          Bytes shard = kDefaultShardBytes) {
  WeightSink sink(directory, tensors, shard);
  write_all(sink);
  sink.commit();
}

void expect_intact(const std::string& directory, const std::vector<TensorSpec>& tensors) {
  const WeightSource source = WeightSource::open(directory);
  EXPECT_EQ(source.tensors().size(), tensors.size());
  for (const TensorSpec& tensor : tensors) {
    const WeightEntry* entry = source.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    std::string bytes(static_cast<size_t>(entry->bytes), '?');
    source.read(*entry, 0, std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(bytes, tensor_bytes(tensor.name, entry->bytes));
  }
}

const std::vector<TensorSpec> kTensors = {{"wte", FileDType::kF32, {8, 4}},     // 128 bytes
                                          {"h.0.w", FileDType::kBF16, {4, 4}},  // 32
                                          {"h.0.b", FileDType::kBF16, {4}},     // 8
                                          {"mask", FileDType::kBool, {3}},      // 3
                                          {"none", FileDType::kF32, {0}},
                                          {"ln_f", FileDType::kF32, {}}};  // 4

TEST(Weights, OneFileRoundTrip) {
  const TemporaryDirectory directory;
  save(directory.path(), kTensors);
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("model.safetensors"));
  EXPECT_TRUE(WeightSource::present(directory.path()));
  expect_intact(directory.path(), kTensors);
  EXPECT_EQ(WeightSource::open(directory.path()).total_bytes(), Bytes(128 + 32 + 8 + 3 + 4));
}

TEST(Weights, ShardsFillInTheGivenOrder) {
  const TemporaryDirectory directory;
  save(directory.path(), kTensors, Bytes(40));
  // wte alone exceeds 40; h.0.w + h.0.b = 40; the rest.
  EXPECT_THAT(list_directory(directory.path()),
              testing::ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                   "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  const Json index = read_json_object(directory / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 175);
  EXPECT_EQ(index["weight_map"].size(), 6U);
  EXPECT_EQ(index["weight_map"]["h.0.b"], "model-00002-of-00003.safetensors");
  expect_intact(directory.path(), kTensors);
  const WeightSource source = WeightSource::open(directory.path());
  EXPECT_THAT(source.file_of(*source.find("wte")), testing::EndsWith("/model-00001-of-00003.safetensors"));
}

TEST(Weights, ANewSaveRemovesTheFilesOfAnOlderOne) {
  const TemporaryDirectory directory;
  directory.add("config.json", "{}");
  save(directory.path(), kTensors, Bytes(40));
  save(directory.path(), kTensors, Bytes(130));
  EXPECT_THAT(list_directory(directory.path()),
              testing::ElementsAre("config.json", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  expect_intact(directory.path(), kTensors);
  save(directory.path(), kTensors);
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("config.json", "model.safetensors"));
  expect_intact(directory.path(), kTensors);
}

TEST(Weights, AFailedSaveLeavesTheOldFiles) {
  const TemporaryDirectory directory;
  save(directory.path(), kTensors, Bytes(40));
  const auto before = list_directory(directory.path());
  for (int64_t nth = 1; nth < 6; ++nth) {
    SCOPED_TRACE(nth);
    const ScopedFileFault fault({.operation = FileOperation::kWrite,
                                 .nth = nth,
                                 .fault = {.error_number = ENOSPC},
                                 .persistent = true});
    expect_user_error(ExitCode::kIo, "No space left on device",
                      [&] { save(directory.path(), kTensors, Bytes(40)); });
  }
  EXPECT_EQ(list_directory(directory.path()), before);
  expect_intact(directory.path(), kTensors);
}

TEST(Weights, TheSinkRefusesDisorderAndOmissions) {
  const TemporaryDirectory directory;
  const std::string bytes = tensor_bytes("x", 128);
  const auto span = std::as_bytes(std::span(bytes));
  WeightSink sink(directory.path(), kTensors);
  ASSERT_EQ(sink.order()[0].name, "ln_f");  // F32, first by name
  EXPECT_THROW(sink.write("wte", 0, span), InternalError);
  WeightSink second(directory.path(), kTensors);
  second.write("ln_f", 0, span.first(4));
  EXPECT_THROW(second.commit(), InternalError);
  WeightSink third(directory.path(), kTensors, Bytes(40));
  EXPECT_THROW(third.commit(), InternalError);
}

TEST(Weights, RefusesDirectoriesWithoutUsableWeights) {
  const TemporaryDirectory directory;
  const auto open = [&] { WeightSource::open(directory.path()); };
  expect_user_error(ExitCode::kBadFile,
                    "has no weights; expected model.safetensors or model.safetensors.index.json", open);
  directory.add("pytorch_model.bin", "PK");
  expect_user_error(ExitCode::kBadFile, "has weights only as pytorch_model.bin; convert to safetensors",
                    open);
  EXPECT_FALSE(WeightSource::present(directory.path()));
  save(directory.path(), kTensors);
  EXPECT_NO_THROW(open());  // the pickled copy beside safetensors is of no matter
  directory.add("model.safetensors.index.json", "{}");
  expect_user_error(ExitCode::kBadFile, "has both model.safetensors and model.safetensors.index.json", open);
}

TEST(Weights, RefusesShardedPicklesByName) {
  const TemporaryDirectory directory;
  directory.add("pytorch_model-00001-of-00002.bin", "PK");
  expect_user_error(ExitCode::kBadFile, "pytorch_model-00001-of-00002.bin; convert to safetensors",
                    [&] { WeightSource::open(directory.path()); });
}

TEST(Weights, RefusesEveryBrokenIndex) {
  const TemporaryDirectory directory;
  save(directory.path(), {{"a", FileDType::kU8, {1}}, {"b", FileDType::kU8, {1}}}, Bytes(1));
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  const auto index = [](const std::string& map) {
    return R"({"metadata":{"total_size":2},"weight_map":)" + map + "}";
  };
  struct Case {
    std::string index;
    std::string message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"{}", "index.json: weight_map is missing; expected an object"},
           {index("[]"), "weight_map is [] (array); expected an object"},
           {index("{}"), "weight_map is empty"},
           {index(R"({"a":1})"),
            "weight_map: \"a\" is 1 (number); expected the name of a file in the same directory"},
           {index(R"({"a":"../x.safetensors"})"), "expected the name of a file in the same directory"},
           {index(R"({"a":"/etc/passwd"})"), "expected the name of a file in the same directory"},
           {index(R"({"a":".."})"), "expected the name of a file in the same directory"},
           {index(R"({"a":""})"), "expected the name of a file in the same directory"},
           {index(R"({"a":"x\u0000"})"), "expected the name of a file in the same directory"},
           {index(R"({"a":"gone.safetensors"})"),
            "gone.safetensors: is missing; model.safetensors.index.json lists 1 tensors in it"},
           {index("{\"a\":\"" + first + "\",\"c\":\"" + first + "\",\"b\":\"" + second + "\"}"),
            first + ": has no tensor \"c\", which model.safetensors.index.json lists in it"},
           {index("{\"b\":\"" + second + "\",\"a\":\"" + second + "\"}"), second + ": has no tensor \"a\""},
           {index("{\"a\":\"" + first + "\",\"a\":\"" + second + "\"}"), "the key \"a\" occurs twice"},
           {"{", "not valid JSON"}}) {
    SCOPED_TRACE(c.index);
    directory.add("model.safetensors.index.json", c.index);
    expect_user_error(ExitCode::kBadFile, c.message, [&] { WeightSource::open(directory.path()); });
  }
  // A tensor that a shard has and the index does not list, or lists elsewhere.
  save(directory.path(), {{"a", FileDType::kU8, {1}}, {"b", FileDType::kU8, {1}}, {"c", FileDType::kU8, {2}}},
       Bytes(2));
  directory.add("model.safetensors.index.json", index("{\"a\":\"" + first + "\",\"c\":\"" + second + "\"}"));
  expect_user_error(ExitCode::kBadFile,
                    first + ": has tensor \"b\", which model.safetensors.index.json does not list",
                    [&] { WeightSource::open(directory.path()); });
}

TEST(Weights, ABrokenShardIsNamed) {
  const TemporaryDirectory directory;
  save(directory.path(), kTensors, Bytes(40));
  const std::string shard = directory / "model-00002-of-00003.safetensors";
  directory.add("model-00002-of-00003.safetensors", read_small_file(shard, kMiB).substr(1));
  expect_user_error(ExitCode::kBadFile, "model-00002-of-00003.safetensors: header length is",
                    [&] { WeightSource::open(directory.path()); });
}

}  // namespace
}  // namespace snug
