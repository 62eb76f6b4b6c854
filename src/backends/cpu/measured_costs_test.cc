#include "backends/cpu/measured_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cost_timer.h"
#include "backends/cpu/target.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"
#include "base/testing.h"

namespace snug::cpu {
namespace {

using testing::HasSubstr;
using Source = MeasuredCosts::Source;

const Dispatch kDispatch{CpuClass::kAvx2, 2, "test"};
constexpr CpuRates kRates{.product_flops_per_second = 100e9, .bytes_per_second = 10e9};
const CostsKey kKey{.processor = "some processor 00a00f11",
                    .dispatch = "avx2",
                    .threads = 2,
                    .onednn = "2.6.3",
                    .snug = "0.1.0"};

// An operation with its own operands.
struct Operation {
  std::string op;
  std::vector<OperandType> inputs, outputs;
  Attributes attributes;
  double flops = 0;

  CostSample sample() const {
    OpCost cost{.flops = flops};
    for (const auto* operands : {&inputs, &outputs})
      for (const OperandType& type : *operands) cost.bytes += static_cast<double>(type.bytes().value);
    return cost_sample({op, inputs, outputs, attributes}, cost, kDispatch, kRates);
  }
};

Operation linear(int64_t batch, int64_t length, int64_t in, int64_t out) {
  return {"linear",
          {{DType::kF32, {batch, length, in}}, {DType::kF32, {in, out}}, {DType::kF32, {out}}},
          {{DType::kF32, {batch, length, out}}},
          {{"bias", int64_t{1}}, {"weight", std::string("io")}},
          2.0 * static_cast<double>(batch * length * in * out)};
}

Operation attention_backward(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads,
                             int64_t head_dim) {
  const OperandType q{DType::kF32, {batch, length, heads * head_dim}},
      k{DType::kF32, {batch, length, kv_heads * head_dim}};
  return {"attention_backward",
          {q, q, k, k, q, {DType::kF32, {batch, heads, length}}, {DType::kI32, {batch, length}}},
          {q, k, k},
          {{"heads", heads}, {"kv_heads", kv_heads}, {"scale", 0.125}, {"dropout", 0.0}},
          4.0 * static_cast<double>(batch * length * length * heads * head_dim)};
}

Operation adamw(Shape shape) {
  const OperandType f32{DType::kF32, shape}, four{DType::kF32, {4}};
  return {"adamw",
          {f32, f32, f32, f32, four, four, {DType::kBF16, shape}},
          {f32, f32, f32, {DType::kI32, {1}}, {DType::kBF16, shape}},
          {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"narrow", int64_t{1}}}};
}

Operation head(int64_t rows, int64_t width, int64_t vocabulary, int64_t chunk) {
  const OperandType x{DType::kF32, {1, rows, width}}, w{DType::kF32, {vocabulary, width}};
  return {"head_loss_gradient",
          {x, w, {DType::kI32, {1, rows}}, {DType::kF32, {1}}},
          {{DType::kF32, {1}}, x, w},
          {{"chunk", chunk}, {"dweight", int64_t{1}}, {"accumulate", int64_t{0}}},
          6.0 * static_cast<double>(rows * width * vocabulary)};
}

TEST(CostSample, OfAProductHasFewerRowsAndTheSameWeight) {
  const CostSample sample = linear(4, 1024, 768, 3072).sample();
  EXPECT_EQ(sample.inputs[0].shape, (Shape{1, 1024, 768}));
  EXPECT_EQ(sample.inputs[1].shape, (Shape{768, 3072}));
  EXPECT_EQ(sample.outputs[0].shape, (Shape{1, 1024, 3072}));
  EXPECT_DOUBLE_EQ(sample.cost.flops, 2.0 * 1024 * 768 * 3072);
  // Four times the rows, but the weight is read once: 4 · rows + w over rows + w.
  const double row_seconds = 2.0 * 768 * 3072 / 95e9 + 4.0 * (768 + 3072) / 10e9,
               weight_seconds = 4.0 * (768 * 3072 + 3072) / 10e9;
  EXPECT_NEAR(sample.factor, (4096 * row_seconds + weight_seconds) / (1024 * row_seconds + weight_seconds),
              1e-9);
  EXPECT_TRUE(sample.known);
}

TEST(CostSample, OfFewRowsIsTheOperationItself) {
  const CostSample sample = linear(2, 32, 16, 48).sample();
  EXPECT_EQ(sample.inputs[0].shape, (Shape{2, 32, 16}));
  EXPECT_DOUBLE_EQ(sample.factor, 1);
}

TEST(CostSample, IsSharedByBatchesAndNamesNothingElse) {
  EXPECT_EQ(linear(4, 1024, 768, 3072).sample().key, linear(16, 1024, 768, 3072).sample().key);
  EXPECT_NE(linear(4, 1024, 768, 3072).sample().key, linear(4, 1024, 768, 768).sample().key);
  Operation dropout{
      "dropout", {{DType::kF32, {2, 8, 16}}, {DType::kU32, {2, 4}}}, {{DType::kF32, {2, 8, 16}}}, {}};
  dropout.attributes = {{"probability", 0.1}, {"stream", int64_t{123}}};
  const std::string key = dropout.sample().key;
  EXPECT_EQ(key, "dropout f32[2,8,16] u32[2,4] -> f32[2,8,16] {probability=1}");
  dropout.attributes = {{"probability", 0.25}, {"stream", int64_t{-7}}};
  EXPECT_EQ(dropout.sample().key, key);
}

TEST(CostSample, OfAttentionCountsRoundsOfThreads) {
  // One sample of three kv heads keeps two threads busy for two rounds; four samples for six.
  const CostSample sample = attention_backward(4, 1024, 9, 3, 64).sample();
  EXPECT_EQ(sample.inputs[1].shape, (Shape{1, 1024, 576}));
  EXPECT_EQ(sample.inputs[2].shape, (Shape{1, 1024, 192}));
  EXPECT_EQ(sample.inputs[5].shape, (Shape{1, 9, 1024}));
  EXPECT_EQ(sample.inputs[6].shape, (Shape{1, 1024}));
  EXPECT_EQ(sample.outputs[2].shape, (Shape{1, 1024, 192}));
  EXPECT_DOUBLE_EQ(sample.factor, 3);
  // Long samples lose heads too, whole groups of them.
  const CostSample longer = attention_backward(1, 4096, 32, 8, 128).sample();
  EXPECT_EQ(longer.attributes.integer("kv_heads"), 2);
  EXPECT_EQ(longer.attributes.integer("heads"), 8);
  EXPECT_EQ(longer.inputs[1].shape, (Shape{1, 4096, 1024}));
  EXPECT_DOUBLE_EQ(longer.factor, 4);
  EXPECT_DOUBLE_EQ(longer.cost.flops, 4.0 * 4096 * 4096 * 8 * 128);
}

TEST(CostSample, OfTheHeadIsAChunkThatAddsToTheGradient) {
  const CostSample sample = head(4096, 768, 50257, 512).sample();
  EXPECT_EQ(sample.inputs[0].shape, (Shape{1, 512, 768}));
  EXPECT_EQ(sample.inputs[1].shape, (Shape{4096, 768}));
  EXPECT_EQ(sample.attributes.integer("accumulate"), 1);
  ASSERT_EQ(sample.inputs.size(), 5u);
  EXPECT_EQ(sample.inputs[4].shape, (Shape{4096, 768}));
  EXPECT_DOUBLE_EQ(sample.factor, 8.0 * 50257 / 4096);
}

// Whole chunks; all but the first add to the parameters' gradients.
TEST(CostSample, OfAnMlpHasWholeChunks) {
  const OperandType x{DType::kF32, {8, 1024, 768}}, up{DType::kF32, {768, 3072}},
      down{DType::kF32, {3072, 768}};
  const Attributes attributes{
      {"activation", "gelu_tanh"}, {"weight", "io"}, {"bias", int64_t{0}}, {"chunk", int64_t{2048}}};
  const double product = 2.0 * 8192 * 768 * 3072;
  const CostSample forward = Operation{"mlp", {x, up, down}, {x}, attributes, 2 * product}.sample();
  EXPECT_EQ(forward.inputs[0].shape, (Shape{2, 1024, 768}));
  EXPECT_EQ(forward.inputs[1].shape, (Shape{768, 3072}));
  EXPECT_EQ(forward.outputs[0].shape, (Shape{2, 1024, 768}));
  EXPECT_NEAR(forward.factor, 4, 0.1);

  Attributes all = attributes;
  all.set("gradients", int64_t{7});
  const CostSample gradient =
      Operation{"mlp_gradient", {x, x, up, down}, {x, up, down}, all, 4 * product}.sample();
  EXPECT_EQ(gradient.inputs[0].shape, (Shape{2, 1024, 768}));
  EXPECT_EQ(gradient.inputs[1].shape, (Shape{2, 1024, 768}));
  EXPECT_EQ(gradient.outputs[0].shape, (Shape{2, 1024, 768}));
  EXPECT_EQ(gradient.attributes.integer("accumulate"), 1);
  ASSERT_EQ(gradient.inputs.size(), 6u);
  EXPECT_EQ(gradient.inputs[5].shape, (Shape{3072, 768}));
  // Estimated: four needed products of the five that are made.
  EXPECT_NEAR(work_seconds(gradient.query(), {gradient.cost.flops, 0}, kDispatch, kRates),
              5.0 / 4 * gradient.cost.flops / 95e9, 1e-9);

  all.set("gradients", int64_t{6});
  const CostSample parameters =
      Operation{"mlp_gradient", {x, x, up, down}, {up, down}, all, 3 * product}.sample();
  EXPECT_EQ(parameters.inputs[0].shape, (Shape{2, 1024, 768}));
  EXPECT_EQ(parameters.outputs[0].shape, up.shape);
}

TEST(CostSample, OfAnUpdateHasNoShape) {
  EXPECT_EQ(adamw({50257, 768}).sample().key, adamw({3072, 12288}).sample().key);
  const CostSample small = adamw({768, 3}).sample();
  EXPECT_EQ(small.inputs[0].shape, (Shape{2304}));
  EXPECT_EQ(small.outputs[4].shape, (Shape{2304}));
  EXPECT_EQ(small.inputs[5].shape, (Shape{4}));
}

TEST(CostSample, OfAnUpdateWithMomentsIn8BitsKeepsAScaleABlock) {
  const auto sample_of = [](int64_t rows) {
    const OperandType f32{DType::kF32, {rows, 768}}, codes{DType::kU8, {rows, 768}},
        scales{DType::kF32, {rows * 3}}, four{DType::kF32, {4}};
    return Operation{
        "adamw",
        {f32, codes, codes, f32, four, four, scales, scales},
        {f32, codes, codes, {DType::kI32, {1}}, scales, scales},
        {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"narrow", int64_t{0}}}}
        .sample();
  };
  const CostSample large = sample_of(50257), small = sample_of(7);
  EXPECT_EQ(small.inputs[6].shape, (Shape{21}));
  EXPECT_LT(large.inputs[0].shape.elements(), 50257 * 768);
  EXPECT_EQ(large.inputs[7].shape.elements() * 256, large.inputs[0].shape.elements());
  EXPECT_EQ(large.outputs[4].shape, large.inputs[6].shape);
}

TEST(CostSample, OfEightBitNumbersIsWholeBlocks) {
  const OperandType x{DType::kBF16, {4, 4096, 3072}}, codes{DType::kU8, {4, 4096, 3072}},
      scales{DType::kF32, {4 * 4096 * 24}};
  const CostSample sample =
      Operation{"fp8_encode", {x}, {codes, scales}, {{"block", int64_t{128}}, {"format", "e4m3"}}}.sample();
  EXPECT_TRUE(sample.known);
  EXPECT_EQ(sample.inputs[0].shape, (Shape{int64_t{1} << 23}));  // 3.03 bytes each fill 32 MiB
  EXPECT_EQ(sample.outputs[0].shape, (Shape{int64_t{1} << 23}));
  EXPECT_EQ(sample.outputs[1].shape, (Shape{int64_t{1} << 16}));
  EXPECT_NEAR(sample.factor, 6, 1e-9);
  const CostSample few = Operation{"fp8_decode",
                                   {{DType::kU8, {3, 100}}, {DType::kF32, {3}}},
                                   {{DType::kF32, {3, 100}}},
                                   {{"block", int64_t{128}}, {"format", "e4m3"}, {"out", "f32"}}}
                             .sample();
  EXPECT_EQ(few.inputs[0].shape, (Shape{300}));
  EXPECT_EQ(few.inputs[1].shape, (Shape{3}));
  EXPECT_EQ(few.factor, 1);
}

TEST(CostSample, OfAnUnknownOperationIsNotTimed) {
  const Operation other{"attend_elsewhere", {{DType::kF32, {8}}}, {{DType::kF32, {8}}}, {}};
  EXPECT_FALSE(other.sample().known);
}

TEST(MeasuredCosts, EstimatesByTheNearestMeasured) {
  const CostSample wide = linear(1, 64, 128, 512).sample(), narrow = linear(1, 64, 128, 128).sample(),
                   update = adamw({64, 64}).sample();
  MeasuredCosts costs(kRates);
  const double roofline = roofline_seconds(narrow.query(), narrow.cost, kDispatch, kRates);
  EXPECT_NEAR(costs.sample_seconds(narrow, kDispatch), roofline, 0.005 * roofline);
  costs.set(wide.key, {.seconds = 3e-4, .roofline_seconds = 1e-4, .source = Source::kMeasured});
  EXPECT_EQ(costs.sample_seconds(wide, kDispatch), 3e-4);
  EXPECT_NEAR(costs.sample_seconds(narrow, kDispatch), 3 * roofline, 0.01 * 3 * roofline);
  const double bytes = roofline_seconds(update.query(), update.cost, kDispatch, kRates);
  EXPECT_NEAR(costs.sample_seconds(update, kDispatch), bytes, 0.005 * bytes);  // another family
}

TEST(MeasuredCosts, AnEstimateThatIsStoredStaysWhatItWas) {
  const CostSample one = linear(1, 64, 128, 512).sample(), two = linear(1, 64, 128, 128).sample();
  MeasuredCosts costs(kRates);
  const double estimate = costs.sample_seconds(two, kDispatch);
  costs.set(two.key, {.seconds = estimate, .roofline_seconds = 1e-4, .source = Source::kNoTime});
  costs.set(one.key, {.seconds = 1, .roofline_seconds = 1e-4, .source = Source::kMeasured});
  EXPECT_EQ(costs.sample_seconds(two, kDispatch), estimate);
}

TEST(MeasuredCosts, TargetMultipliesTheSample) {
  const Operation op = linear(4, 1024, 768, 3072);
  const CostSample sample = op.sample();
  auto costs = std::make_shared<MeasuredCosts>(kRates);
  costs->set(sample.key, {.seconds = 0.05, .roofline_seconds = 0.04, .source = Source::kMeasured});
  CpuTarget target(kDispatch, {1e9, 1e9});
  const OpQuery query{op.op, op.inputs, op.outputs, op.attributes};
  const OpCost cost{.flops = op.flops, .bytes = 4.0 * (4096 * (768 + 3072) + 768 * 3072 + 3072)};
  EXPECT_DOUBLE_EQ(target.seconds(query, cost), op.flops / 0.95e9);
  target.set_costs(costs);
  EXPECT_DOUBLE_EQ(target.seconds(query, cost), 0.05 * sample.factor);
}

TEST(CostsFile, KeepsEveryNumber) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a/b/costs.json";
  MeasuredCosts costs(kRates);
  costs.set("linear f32[1] -> f32[1] {}",
            {.seconds = 0.0123456, .roofline_seconds = 1.0 / 3, .source = Source::kMeasured});
  costs.set("adamw", {.seconds = 1e-7, .roofline_seconds = 2e-7, .source = Source::kNoMemory});
  costs.set("gelu", {.seconds = 2, .roofline_seconds = 3, .source = Source::kNoTime});
  costs.set("add", {.seconds = 2, .roofline_seconds = 3, .source = Source::kDoubted});
  costs.set("mlp", {.seconds = 2, .roofline_seconds = 3, .source = Source::kConfirmed});
  costs.write(path, kKey);
  const MeasuredCosts read = MeasuredCosts::read(path, kKey);
  EXPECT_EQ(read.rates(), kRates);
  EXPECT_EQ(read.size(), 5u);
  EXPECT_EQ(read.find("linear f32[1] -> f32[1] {}")->seconds, 0.0123);
  EXPECT_EQ(read.find("linear f32[1] -> f32[1] {}")->roofline_seconds, 0.333);
  EXPECT_EQ(read.find("adamw")->source, Source::kNoMemory);
  EXPECT_EQ(read.find("gelu")->source, Source::kNoTime);
  EXPECT_EQ(read.find("add")->source, Source::kDoubted);
  EXPECT_EQ(read.find("mlp")->source, Source::kConfirmed);
  EXPECT_EQ(read.to_json(kKey), costs.to_json(kKey));
}

TEST(CostsFile, ForgetsTheOldest) {
  MeasuredCosts costs(kRates);
  for (size_t i = 0; i < MeasuredCosts::kMostEntries + 10; ++i)
    costs.set(fmt::format("op {}", i), {.seconds = 1, .roofline_seconds = 1});
  costs.touch("op 3");
  const TemporaryDirectory directory;
  costs.write(directory / "costs.json", kKey);
  const MeasuredCosts read = MeasuredCosts::read(directory / "costs.json", kKey);
  EXPECT_EQ(read.size(), MeasuredCosts::kMostEntries);
  EXPECT_NE(read.find("op 3"), nullptr);
  EXPECT_EQ(read.find("op 10"), nullptr);
  EXPECT_NE(read.find("op 11"), nullptr);
}

TEST(MeasuredCosts, AddsWhatIsMissing) {
  MeasuredCosts mine(kRates), others(kRates);
  mine.set("gelu", {.seconds = 1, .roofline_seconds = 1});
  others.set("gelu", {.seconds = 2, .roofline_seconds = 1});
  others.set("add", {.seconds = 3, .roofline_seconds = 1});
  mine.add_missing(others);
  EXPECT_EQ(mine.find("gelu")->seconds, 1);
  EXPECT_EQ(mine.find("add")->seconds, 3);
}

// What a run puts in doubt, and what measuring again makes of it.
TEST(MeasuredCosts, InDoubtAreMeasuredAgainUntilTwoTimesAgree) {
  const std::vector<std::string> all = {"gelu", "add", "mlp", "gone"};
  MeasuredCosts costs(kRates);
  costs.set_timed("gelu", 2, 1);
  costs.set_timed("add", 2, 1);
  costs.set_timed("other run's", 2, 1);
  costs.set("mlp", {.seconds = 2, .roofline_seconds = 1, .source = Source::kNoTime});
  EXPECT_TRUE(costs.doubt(all));
  EXPECT_EQ(costs.find("gelu")->source, Source::kDoubted);
  EXPECT_EQ(costs.find("gelu")->seconds, 2);  // until it is known better
  EXPECT_EQ(costs.find("other run's")->source, Source::kMeasured);
  EXPECT_EQ(costs.find("mlp"), nullptr);  // estimated from what is in doubt
  EXPECT_FALSE(costs.doubt(all));

  costs.set_timed("gelu", 1, 1);
  EXPECT_EQ(costs.find("gelu")->seconds, 1);
  EXPECT_EQ(costs.find("gelu")->source, Source::kMeasured);
  costs.set_timed("add", 5, 1);  // disturbed even more
  EXPECT_EQ(costs.find("add")->seconds, 2);
  EXPECT_EQ(costs.find("add")->source, Source::kMeasured);

  EXPECT_TRUE(costs.doubt(all));
  costs.set_timed("gelu", 1.1, 1);
  costs.set_timed("add", 1.8, 1);
  EXPECT_EQ(costs.find("gelu")->seconds, 1);
  EXPECT_EQ(costs.find("gelu")->source, Source::kConfirmed);
  EXPECT_EQ(costs.find("add")->seconds, 1.8);
  EXPECT_EQ(costs.find("add")->source, Source::kConfirmed);
  EXPECT_FALSE(costs.doubt(all));
}

TEST(CostsFile, IsRefusedWhenItIsBrokenOrForeign) {
  MeasuredCosts costs(kRates);
  costs.set("gelu", {.seconds = 2, .roofline_seconds = 3});
  const Json good = parse_json(costs.to_json(kKey), "costs");
  const auto refusal = [&](const std::string& text) -> std::string {
    const TemporaryDirectory directory;
    directory.add("costs.json", text);
    try {
      MeasuredCosts::read(directory / "costs.json", kKey);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadFile);
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal(good.dump()), "none");
  const std::string text = good.dump();
  for (size_t length : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1})
    EXPECT_NE(refusal(text.substr(0, length)), "none");
  const auto with = [&](const char* pointer, const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = value;
    return refusal(changed.dump());
  };
  EXPECT_THAT(with("/format", 2), HasSubstr("format is 2; expected 1"));
  EXPECT_THAT(with("/processor", "another"), HasSubstr("measured on another"));
  EXPECT_THAT(with("/threads", 4), HasSubstr("4 threads"));
  EXPECT_THAT(with("/onednn", "3.0"), HasSubstr("oneDNN 3.0"));
  EXPECT_THAT(with("/snug", "9"), HasSubstr("Snug 9"));
  EXPECT_THAT(with("/bytes_per_second", 0), HasSubstr("bytes_per_second"));
  EXPECT_THAT(with("/operations", 1), HasSubstr("operations"));
  EXPECT_THAT(with("/operations/gelu", 1), HasSubstr("gelu"));
  EXPECT_THAT(with("/operations/gelu/seconds", -1), HasSubstr("seconds"));
  EXPECT_THAT(with("/operations/gelu/seconds", 1e300), HasSubstr("seconds"));
  EXPECT_THAT(with("/operations/gelu/source", "guessed"),
              HasSubstr("\"guessed\"; expected one of measured, doubted,"));
}

TEST(CostsFile, IsNeverHalfWritten) {
  const TemporaryDirectory directory;
  const std::string path = directory / "costs.json";
  MeasuredCosts old(kRates), young(kRates);
  old.set("gelu", {.seconds = 2, .roofline_seconds = 3});
  young.set("gelu", {.seconds = 5, .roofline_seconds = 3});
  old.write(path, kKey);
  for (int64_t nth = 1; nth < 40; ++nth) {
    ScopedFileFault fault({.nth = nth, .fault = {.error_number = EIO}});
    bool failed = false;
    try {
      young.write(path, kKey);
    } catch (const UserError&) {
      failed = true;
    }
    if (!failed && !fault.fired()) break;
    // The fault may have struck after the new name was given.
    const double seconds = MeasuredCosts::read(path, kKey).find("gelu")->seconds;
    EXPECT_TRUE(seconds == 2 || seconds == 5) << nth;
  }
  EXPECT_EQ(MeasuredCosts::read(path, kKey).find("gelu")->seconds, 5);
}

TEST(CostsFile, HasANamePerKey) {
  const std::string name = costs_file_name(kKey);
  EXPECT_THAT(name, testing::MatchesRegex("costs-avx2-2-[0-9a-f]+\\.json"));
  for (const auto& change : std::vector<std::function<void(CostsKey&)>>{
           [](CostsKey& k) { k.processor = "another"; }, [](CostsKey& k) { k.dispatch = "avx512"; },
           [](CostsKey& k) { k.threads = 3; }, [](CostsKey& k) { k.onednn = "3"; },
           [](CostsKey& k) { k.snug = "1"; }}) {
    CostsKey other = kKey;
    change(other);
    EXPECT_NE(costs_file_name(other), name);
  }
  EXPECT_EQ(costs_key(kDispatch).threads, 2);
  EXPECT_EQ(costs_key(kDispatch).dispatch, "avx2");
  EXPECT_EQ(costs_key(kDispatch), costs_key(kDispatch));
}

}  // namespace
}  // namespace snug::cpu
