#include "backends/cpu/backend.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cstdlib>

#include "backends/cpu/onednn.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

constexpr CpuRates kRates{100e9, 10e9};

// sum = a + b on [4] floats: three places of 64 bytes in an arena of 192.
Plan addition() {
  Plan plan;
  plan.memories = {{"ram", Bytes(192), Bytes(192)}};
  for (int i = 0; i < 3; ++i) {
    PlanTensor tensor;
    tensor.name = std::array{"a", "b", "sum"}[static_cast<size_t>(i)];
    tensor.shape = {4};
    tensor.place = {MemoryId(0), Bytes(64 * i)};
    plan.tensors.push_back(tensor);
  }
  PlanOp op;
  op.op = "add";
  op.name = "adding";
  op.inputs = {PlanTensorId(0), PlanTensorId(1)};
  op.outputs = {PlanTensorId(2)};
  PlanPhase phase;
  phase.name = "micro_step";
  phase.ops = {op};
  plan.phases = {phase};
  return plan;
}

std::span<const std::byte> bytes(const std::array<float, 4>& values) {
  return std::as_bytes(std::span(values));
}

TEST(CpuBackend, RunsABoundOperationOnValuesWrittenAndRead) {
  const Plan plan = addition();
  CpuBackend backend(choose_dispatch(2), kRates);
  backend.reserve(plan, MemoryId(0));
  const KernelId kernel = backend.bind(plan, plan.phases[0].ops[0]);
  backend.write(plan.tensors[0], 0, bytes({1, 2, 3, 4}));
  backend.write(plan.tensors[1], 0, bytes({10, 20, 30, 40}));
  omp_set_num_threads(1);
  backend.wait(backend.enqueue(kernel, LaneId(0), {}, 0));
  EXPECT_EQ(omp_get_max_threads(), 2) << "the run's number of threads is set on the calling thread";
  std::array<float, 4> sum{};
  backend.read(plan.tensors[2], 0, std::as_writable_bytes(std::span(sum)));
  EXPECT_EQ(sum, (std::array<float, 4>{11, 22, 33, 44}));
  EXPECT_EQ(backend.host_view(plan.tensors[2]).size(), 16u);
}

TEST(CpuBackend, RefusesRangesOutsideTensorAndArena) {
  Plan plan = addition();
  CpuBackend backend(choose_dispatch(1), kRates);
  EXPECT_THROW(backend.bind(plan, plan.phases[0].ops[0]), InternalError) << "nothing reserved yet";
  backend.reserve(plan, MemoryId(0));
  EXPECT_THROW(backend.reserve(plan, MemoryId(0)), InternalError);
  EXPECT_THROW(backend.reserve(plan, MemoryId(1)), InternalError);
  std::array<std::byte, 8> some{};
  EXPECT_NO_THROW(backend.read(plan.tensors[0], 8, some));
  EXPECT_THROW(backend.read(plan.tensors[0], 9, some), InternalError);
  EXPECT_THROW(backend.write(plan.tensors[0], -1, some), InternalError);
  EXPECT_THROW(backend.enqueue(KernelId(0), LaneId(0), {}, 0), InternalError);
  plan.tensors[2].place.offset = Bytes(180);  // 180 + 16 > 192
  EXPECT_THROW(backend.bind(plan, plan.phases[0].ops[0]), InternalError);
}

TEST(CpuBackend, RefusesAnOperationThatNoKernelTakesAndSmallScratch) {
  Plan plan = addition();
  CpuBackend backend(choose_dispatch(1), kRates);
  backend.reserve(plan, MemoryId(0));
  plan.phases[0].ops[0].op = "multiply";
  try {
    backend.bind(plan, plan.phases[0].ops[0]);
    FAIL() << "bound";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), ("adding (multiply): " + backend.target().name() +
                                " refuses: the CPU backend has no operation of this name")
                                   .c_str());
  }
}

// An addition multiplies nothing: 384 columns of slack a thread · 192 · 4 bytes, and what is packed of the other operand.
TEST(CpuBackend, KnowsWhatLibrariesTakeOutsideTheArena) {
  Plan plan = addition();
  CpuBackend backend({CpuClass::kAvx2, 2, "test"}, kRates);
  EXPECT_EQ(backend.library_bytes(plan), Bytes(2 * (384 * 192 * 4 + 96 * 1024)));
}

TEST(CpuTarget, EstimatesByTheSlowerOfProductsAndTraffic) {
  const CpuTarget target({CpuClass::kAvx2, 2, "test"}, kRates);
  EXPECT_EQ(target.name(), "cpu avx2");
  const Attributes attributes{{"weight", std::string("oi")}};
  const std::vector<OperandType> in{{DType::kF32, {64, 32}}, {DType::kF32, {16, 32}}},
      out{{DType::kF32, {64, 16}}};
  const OpQuery query{"linear", in, out, attributes};
  EXPECT_EQ(target.refusal(query), std::nullopt);
  EXPECT_DOUBLE_EQ(target.seconds(query, {.flops = 95e9, .bytes = 1e9}), 1.0);  // 95 GFLOP at 0.95 · 100 GF/s
  EXPECT_DOUBLE_EQ(target.seconds(query, {.flops = 95e9, .bytes = 30e9}), 3.0);
}

TEST(CpuTarget, WarmUpMeasuresPlausibleRates) {
  const CpuRates rates = warm_up(choose_dispatch(2));
  EXPECT_GT(rates.product_flops_per_second, 1e8);
  EXPECT_GT(rates.bytes_per_second, 1e8);
}

class DispatchLimit : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("SNUG_MAX_CPU_CLASS");
    choose_dispatch(1);
  }
};

TEST_F(DispatchLimit, HoldsTheClassDownAndSaysSo) {
  setenv("SNUG_MAX_CPU_CLASS", "avx2", 1);
  const Dispatch dispatch = choose_dispatch(3);
  EXPECT_EQ(dispatch.cpu_class, CpuClass::kAvx2);
  EXPECT_EQ(dispatch.threads, 3);
  EXPECT_FALSE(dispatch.native_bf16_products());
  const bool is_the_processors_own = dispatch.reason == "processor has avx2";
  EXPECT_TRUE(is_the_processors_own || dispatch.reason.starts_with("limited by SNUG_MAX_CPU_CLASS=avx2"))
      << dispatch.reason;
}

TEST_F(DispatchLimit, RefusesUnknownAndMissingClassesAndThreads) {
  EXPECT_THROW(choose_dispatch(0), UserError);
  setenv("SNUG_MAX_CPU_CLASS", "sse", 1);
  try {
    choose_dispatch(1);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "SNUG_MAX_CPU_CLASS: found \"sse\", expected avx2, avx512 or avx512_bf16");
  }
  if (__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this processor has every class above avx2";
  setenv("SNUG_MAX_CPU_CLASS", "avx512_bf16", 1);
  EXPECT_THROW(choose_dispatch(1), UserError);
}

}  // namespace
}  // namespace snug::cpu
