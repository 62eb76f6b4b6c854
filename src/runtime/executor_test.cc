#include "runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <new>
#include <utility>

#include "backends/null/null_backend.h"
#include "base/count_new.h"
#include "base/errors.h"
#include "plan/check.h"
#include "plan/text.h"
#include "runtime/fake_backend_test.h"

namespace snug {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// load: w by the host, bias = 10 · micro_step: y = x + bias, total (+)= y + w · update: w' = total + w ·
// save: w by the host.
constexpr std::string_view kPlan = R"(snug_plan 1
target fake
memory ram arena=384 lower_bound=384
tensor w f32[16] weights state at=ram+0 moments=[0,6) buffer=0 parameter=w
tensor bias f32[16] weights state at=ram+64 moments=[0,6) buffer=1
tensor load/staging u8[64] scratch scratch at=ram+128 moments=[0,1) buffer=2
tensor micro_step/x f32[16] data input at=ram+128 moments=[2,3) buffer=3
tensor micro_step/y f32[16] activations value at=ram+192 moments=[2,4) buffer=4
tensor total f32[16] gradients carried at=ram+256 moments=[2,5) buffer=5
tensor micro_step/total f32[16] gradients value at=ram+256 moments=[3,4) buffer=5
tensor micro_step/spare u8[64] scratch scratch at=ram+320 moments=[2,3) buffer=6
tensor update/w f32[16] weights value at=ram+0 moments=[4,5) buffer=0
phase load repeats=1 first=0 peak=192
op read_tensor w load block=-1 () -> (w) scratch=load/staging {} flops=0 seconds=0
op fill bias load block=-1 () -> (bias) {value=10.0} flops=0 seconds=0
phase micro_step repeats=2 first=2 peak=384
inputs micro_step/x
results total
op sum y forward block=0 (micro_step/x, bias) -> (micro_step/y) scratch=micro_step/spare {} flops=16 seconds=0
op sum total backward block=0 (micro_step/y, w, total) -> (micro_step/total) {overwrite_first=1} flops=32 seconds=0
phase update repeats=1 first=4 peak=192
op sum w update block=-1 (total, w) -> (update/w) {} flops=16 seconds=0
phase save repeats=1 first=5 peak=128
op write_tensor w save block=-1 (w) -> () {} flops=0 seconds=0
)";

using Floats = std::array<float, 16>;

Floats all(float value) {
  Floats floats;
  floats.fill(value);
  return floats;
}

// Loads w = 1 and remembers what was saved.
struct Host {
  Executor* executor = nullptr;
  std::vector<std::string> calls;
  Floats saved = all(0);

  Executor::HostOperation operation() {
    return [this](const PlanOp& op) {
      calls.push_back(op.op);
      if (op.op == "read_tensor") {  // in two pieces, as a stream does
        const Floats ones = all(1);
        const auto bytes = std::as_bytes(std::span(ones));
        executor->write(op.outputs[0], 0, bytes.first(20));
        executor->write(op.outputs[0], 20, bytes.subspan(20));
      } else {
        executor->read(op.inputs[0], 0, std::as_writable_bytes(std::span(saved)));
      }
    };
  }
};

void update(Executor& executor, const Floats& x) {
  for (int64_t repetition = 0; repetition < 2; ++repetition) {
    executor.write_input("micro_step/x", std::as_bytes(std::span(x)));
    executor.run_phase("micro_step", repetition);
  }
  executor.run_phase("update");
}

TEST(Executor, RunsPhasesInOrderAndComputesTheirValues) {
  const Plan plan = parse_plan(kPlan);
  ASSERT_THAT(check_plan(plan), IsEmpty());
  FakeBackend backend;
  Host host;
  Executor executor(plan, backend, host.operation());
  host.executor = &executor;
  EXPECT_EQ(backend.reserved, 1);
  EXPECT_EQ(backend.enqueued, 0u);

  executor.run_phase("load");
  update(executor, all(100));
  Floats total{};
  executor.read_result("total", std::as_writable_bytes(std::span(total)));
  EXPECT_EQ(total, all(2 * (100 + 10 + 1)));  // the first repetition overwrites, the second adds
  executor.run_phase("save");
  EXPECT_EQ(host.saved, all(222 + 1));
  update(executor, all(0));
  executor.read_result("total", std::as_writable_bytes(std::span(total)));
  EXPECT_EQ(total, all(2 * (0 + 10 + 223)));
  EXPECT_THAT(host.calls, ElementsAre("read_tensor", "write_tensor"));
  EXPECT_EQ(backend.enqueued, 1u + 2 * (2 * 2 + 1));
  EXPECT_EQ(backend.waited, backend.enqueued);
}

TEST(Executor, KeepsToThePlan) {
  const Plan plan = parse_plan(kPlan);
  NullBackend backend;
  Host host;
  Executor executor(plan, backend, host.operation());
  host.executor = &executor;
  executor.run_phase("load");
  for (int i = 0; i < 3; ++i) update(executor, all(0));
  executor.run_phase("save");
}

TEST(Executor, AllocatesNothingAfterItsConstruction) {
  const Plan plan = parse_plan(kPlan);
  const Floats x = all(1);
  Floats total{};
  FakeBackend fake;
  NullBackend null;
  for (Backend* backend : {static_cast<Backend*>(&fake), static_cast<Backend*>(&null)}) {
    Host host;
    const int64_t at_start = allocations();
    Executor executor(plan, *backend, host.operation());
    host.executor = &executor;
    EXPECT_GT(allocations(), at_start);  // else nothing is counted and the test proves nothing
    executor.run_phase("load");
    executor.measure(true);

    const int64_t before = allocations();
    for (int i = 0; i < 10; ++i) {
      update(executor, x);
      executor.read_result("total", std::as_writable_bytes(std::span(total)));
    }
    EXPECT_EQ(allocations(), before);
  }
}

TEST(Executor, MeasuresEachKindOfOperation) {
  const Plan plan = parse_plan(kPlan);
  FakeBackend backend;
  Host host;
  Executor executor(plan, backend, host.operation());
  host.executor = &executor;
  executor.run_phase("load");
  executor.measure(true);
  update(executor, all(0));
  ASSERT_EQ(executor.times().size(), 4u);
  EXPECT_EQ(executor.times()[0].op, "read_tensor");
  EXPECT_EQ(executor.times()[0].count, 0);
  EXPECT_EQ(executor.times()[2].op, "sum");
  EXPECT_EQ(executor.times()[2].count, 5);
  EXPECT_EQ(executor.times()[2].flops, 2 * (16 + 32) + 16);
  EXPECT_GE(executor.times()[2].seconds, 0);
  executor.reset_times();
  EXPECT_EQ(executor.times()[2].count, 0);
  EXPECT_EQ(executor.times()[2].seconds, 0);
}

template <typename F>
void expect_internal_error(F&& f, const std::string& text) {
  try {
    f();
    ADD_FAILURE() << "expected: " << text;
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(Executor, RefusesWhatThePlanDoesNotHave) {
  const Plan plan = parse_plan(kPlan);
  FakeBackend backend;
  Executor executor(plan, backend);
  Floats floats{};
  const auto bytes = std::as_writable_bytes(std::span(floats));
  expect_internal_error([&] { executor.run_phase("evaluate"); }, "no phase evaluate");
  expect_internal_error([&] { executor.write_input("x", bytes); }, "no tensor x");
  expect_internal_error([&] { executor.write_input("w", bytes); }, "w is an input of no phase");
  expect_internal_error([&] { executor.read_result("micro_step/y", bytes); },
                        "micro_step/y is a result of no phase");
  expect_internal_error([&] { executor.write_input("micro_step/x", bytes.first(60)); },
                        "60 bytes for input micro_step/x of 64");
  expect_internal_error([&] { executor.read_result("total", bytes.first(60)); },
                        "60 bytes for result total of 64");
  expect_internal_error([&] { executor.run_phase("load"); }, "nobody carries out read_tensor w");
  expect_internal_error([&] { executor.write(executor.tensor("w"), 4, bytes); }, "outside w");
}

TEST(Executor, PassesOnWhatTheBackendRefuses) {
  Plan plan = parse_plan(kPlan);
  plan.phases[1].ops[0].op = "convolution";
  FakeBackend backend;
  expect_internal_error([&] { Executor(plan, backend); }, "convolution is not supported");
}

// The forms of operator new that return nullptr are counted like the others.
TEST(CountNew, CountsEveryForm) {
  const auto counted = [](auto&& make) {
    const int64_t before = allocations();
    void* volatile memory = make();
    const int64_t taken = allocations() - before;
    return std::pair<void*, int64_t>(memory, taken);
  };
  constexpr std::align_val_t kAligned{64};
  const auto [plain, one] = counted([] { return ::operator new(8); });
  const auto [null, two] = counted([] { return ::operator new(8, std::nothrow); });
  const auto [array, three] = counted([] { return ::operator new[](8, std::nothrow); });
  const auto [aligned, four] = counted([] { return ::operator new(8, kAligned, std::nothrow); });
  EXPECT_EQ((std::array{one, two, three, four}), (std::array<int64_t, 4>{1, 1, 1, 1}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 64, 0u);
  ::operator delete(plain);
  ::operator delete(null, std::nothrow);
  ::operator delete[](array, std::nothrow);
  ::operator delete(aligned, kAligned);
}

}  // namespace
}  // namespace snug
