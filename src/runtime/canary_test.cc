#include "runtime/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/errors.h"
#include "plan/check.h"
#include "plan/text.h"
#include "runtime/fake_backend_test.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// micro_step twice: a = x + w; b = a + a; total (+)= b, with 16 KiB of nothing that the guards do not
// reach. update: w += total.
constexpr std::string_view kPlan = R"(snug_plan 1
target fake
memory ram arena=16768 lower_bound=16768
tensor w f32[16] weights state at=ram+0 moments=[0,5) buffer=0 parameter=w
tensor micro_step/x f32[16] data input at=ram+64 moments=[0,1) buffer=1
tensor micro_step/a f32[16] activations value at=ram+128 moments=[0,2) buffer=2
tensor micro_step/b f32[16] activations value at=ram+192 moments=[1,4) buffer=3
tensor total f32[16] gradients carried at=ram+256 moments=[0,5) buffer=4
tensor micro_step/total f32[16] gradients value at=ram+256 moments=[3,4) buffer=4
tensor micro_step/c f32[16] activations value at=ram+16704 moments=[2,3) buffer=5
tensor micro_step/far u8[16384] scratch scratch at=ram+320 moments=[2,3) buffer=6
tensor update/w f32[16] weights value at=ram+0 moments=[4,5) buffer=0
phase micro_step repeats=2 first=0 peak=16768
inputs micro_step/x
results total
op sum a forward block=0 (micro_step/x, w) -> (micro_step/a) {} flops=0 seconds=0
op sum b forward block=0 (micro_step/a, micro_step/a) -> (micro_step/b) {} flops=0 seconds=0
op sum c forward block=0 (w) -> (micro_step/c) scratch=micro_step/far {} flops=0 seconds=0
op sum total backward block=0 (micro_step/b, total) -> (micro_step/total) {overwrite_first=1} flops=0 seconds=0
phase update repeats=1 first=4 peak=16768
op sum w update block=-1 (w, total) -> (update/w) {} flops=0 seconds=0
)";

using Floats = std::array<float, 16>;

class CanaryTest : public ::testing::Test {
 protected:
  CanaryTest() : plan_(parse_plan(kPlan)), executor_(plan_, backend_), canary_(plan_, backend_) {
    plan_.memories[0].lower_bound_bytes = plan_.memories[0].arena_bytes;
    executor_.observe(&canary_);
  }

  void set(std::string_view name, float value) {
    Floats floats;
    floats.fill(value);
    executor_.write(executor_.tensor(name), 0, std::as_bytes(std::span(floats)));
  }
  float get(std::string_view name) {
    Floats floats{};
    executor_.read(executor_.tensor(name), 0, std::as_writable_bytes(std::span(floats)));
    return floats[0];
  }
  void update() {
    for (int64_t repetition = 0; repetition < 2; ++repetition) {
      set("micro_step/x", 1);
      executor_.run_phase("micro_step", repetition);
    }
    executor_.run_phase("update");
  }
  // Adds 1 to the byte at `offset` whenever operation `name` has run.
  void damage(std::string name, size_t offset) {
    backend_.fault = [=](const PlanOp& op, std::span<std::byte> arena) {
      if (op.name == name) arena[offset] = static_cast<std::byte>(static_cast<int>(arena[offset]) + 1);
    };
  }
  void expect_violation(const std::string& first, const std::string& second) {
    try {
      set("w", 1);
      update();
      ADD_FAILURE() << "no violation was found";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("memory check"), HasSubstr(first), HasSubstr(second)));
    }
  }

  Plan plan_;
  FakeBackend backend_;
  Executor executor_;
  Canary canary_;
};

TEST_F(CanaryTest, LetsARightRunPassAndChangesNothing) {
  ASSERT_THAT(check_plan(plan_), IsEmpty());
  set("w", 1);
  update();  // total = 2 · 2 · (1 + 1) = 8
  EXPECT_EQ(get("total"), 8);
  EXPECT_EQ(get("w"), 9);
  update();
  EXPECT_EQ(get("w"), 9 + 2 * 2 * 10);
  set("w", 0);  // a write by the host is no damage
  update();
  EXPECT_EQ(get("w"), 4);
}

TEST_F(CanaryTest, FindsAWriteBesideAnOutputAtOnce) {
  damage("b", 128 + 63);  // the last byte of a, right before b
  expect_violation("sum b of phase micro_step changed byte 191 of memory ram", "outside its outputs");
}

TEST_F(CanaryTest, FindsAWriteBehindAnOutput) {
  damage("a", 192);
  expect_violation("sum a of phase micro_step changed byte 192 of memory ram", "outside its outputs");
}

TEST_F(CanaryTest, FindsAWriteBesideAScratch) {
  damage("c", 200);  // b lies 120 bytes before the scratch of c
  expect_violation("sum c of phase micro_step changed byte 200 of memory ram", "outside its outputs");
}

TEST_F(CanaryTest, FindsADamagedValueAtItsNextUse) {
  plan_.phases[0].ops[2].scratch = PlanTensorId();
  damage("c", 200);  // b, 16 KiB before c
  expect_violation(
      "at total of phase micro_step (moment 3), micro_step/b no longer holds what b of phase micro_step",
      "(moment 1) wrote");
}

TEST_F(CanaryTest, FindsDamagedStateAtTheEndOfThePhase) {
  plan_.phases[0].ops[2].scratch = PlanTensorId();
  damage("c", 5);  // w, which nobody reads after c in this phase
  expect_violation("at the end of phase micro_step", "w no longer holds what the host wrote");
}

TEST_F(CanaryTest, MakesDeadBytesNaN) {
  set("w", 1);
  set("micro_step/x", 1);
  std::vector<float> seen;
  backend_.fault = [&](const PlanOp& op, std::span<std::byte> arena) {
    float a = 0;
    std::memcpy(&a, arena.data() + 128, 4);
    if (op.name == "b" || op.name == "c") seen.push_back(a);
  };
  executor_.run_phase("micro_step", 0);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], 2);             // a lives while b is computed from it
  EXPECT_TRUE(std::isnan(seen[1]));  // and is gone afterwards
}

}  // namespace
}  // namespace snug
