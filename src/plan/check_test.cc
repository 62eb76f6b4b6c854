#include "plan/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "plan/text.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// load writes w; micro_step twice: x = f(tokens, w), grad += x; update: w' = w - grad in w's storage.
//
//   offset
//    256 | . s . .
//    192 | . x x .
//    128 | . t . .      t = tokens, s = scratch
//     64 | . g g g
//      0 | w w w w
//        +---------
//          0 1 2 3  moment
constexpr std::string_view kGood = R"(snug_plan 1
target null
memory ram arena=384 lower_bound=384
tensor w f32[16] weights state at=ram+0 moments=[0,4) buffer=0 parameter=w
tensor grad f32[16] gradients carried at=ram+64 moments=[1,4) buffer=1
tensor micro_step/tokens i32[16] data input at=ram+128 moments=[1,2) buffer=2
tensor micro_step/x f32[16] activations value at=ram+192 moments=[1,3) buffer=3
tensor micro_step/x.scratch u8[128] scratch scratch at=ram+256 moments=[1,2) buffer=4
tensor micro_step/grad f32[16] gradients value at=ram+64 moments=[2,3) buffer=1
tensor update/w f32[16] weights value at=ram+0 moments=[3,4) buffer=0
phase load repeats=1 first=0 peak=64
op fill w load block=-1 () -> (w) {value=0.5} flops=0 seconds=0
phase micro_step repeats=2 first=1 peak=384
inputs micro_step/tokens
results grad
op embedding x forward block=0 (micro_step/tokens, w) -> (micro_step/x) scratch=micro_step/x.scratch {} flops=0 seconds=0
op linear_dweight grad backward block=0 (micro_step/x, grad) -> (micro_step/grad) {accumulate=1, overwrite_first=1} flops=0 seconds=0
phase update repeats=1 first=3 peak=128
op adamw w update block=-1 (w, grad) -> (update/w) {} flops=0 seconds=0
)";

Plan good_plan() { return parse_plan(kGood); }

PlanTensor& tensor(Plan& plan, std::string_view name) { return plan.tensors.at(plan.find(name).index()); }

TEST(CheckPlan, AcceptsAGoodPlan) { EXPECT_THAT(check_plan(good_plan()), IsEmpty()); }

TEST(CheckPlan, FindsAnOverlapInTimeAndSpace) {
  Plan plan = good_plan();
  tensor(plan, "micro_step/x").place.offset = Bytes(128);  // on the tokens, both alive at moment 1
  EXPECT_THAT(check_plan(plan),
              ElementsAre(AllOf(HasSubstr("overlaps"), HasSubstr("micro_step/x (64 bytes at ram+128"),
                                HasSubstr("micro_step/tokens"))));
}

TEST(CheckPlan, LetsBuffersShareBytesAtDifferentMoments) {
  Plan plan = good_plan();
  tensor(plan, "micro_step/tokens").place.offset = Bytes(128);
  tensor(plan, "micro_step/x").first =
      2;  // begins when the tokens are gone: no overlap, but moment 1 writes it
  tensor(plan, "micro_step/x").place.offset = Bytes(128);
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("does not live then")));
}

TEST(CheckPlan, FindsMisplacedTensors) {
  Plan plan = good_plan();
  tensor(plan, "micro_step/x").place.offset = Bytes(200);
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("not aligned to 64")));
  tensor(plan, "micro_step/x").place.offset = Bytes(-64);
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("begins below 0")));
  tensor(plan, "micro_step/x").place.offset = Bytes(384);
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("ends above the arena of 384 bytes")));
}

TEST(CheckPlan, FindsWrongArenaBoundAndPeaks) {
  Plan plan = good_plan();
  plan.memories[0].arena_bytes = Bytes(448);
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("the arena is 448 bytes, its tensors end at 384")));
  plan = good_plan();
  plan.memories[0].lower_bound_bytes =
      Bytes(320);  // w, grad, tokens, x and 128 of scratch: 384 live at moment 1
  EXPECT_THAT(check_plan(plan),
              ElementsAre(HasSubstr("384 bytes live at one moment, above the stated bound of 320")));
  plan = good_plan();
  plan.phases[1].peak_bytes = Bytes(383);
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("phase micro_step: 384 bytes live")));
}

TEST(CheckPlan, FindsWrongMoments) {
  Plan plan = good_plan();
  plan.phases[2].first_moment = 4;
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("phase update begins at moment 4, expected 3")));
  plan = good_plan();
  tensor(plan, "w").last = 3;
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("does not live at every moment")));
  plan = good_plan();
  tensor(plan, "micro_step/x.scratch").last = 3;
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("scratch and lives for more than one moment")));
  plan = good_plan();
  tensor(plan, "grad").first =
      2;  // carried by a repeated phase: moment 1 of the second repetition may overwrite it
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("does not live through [1, 3)")));
}

TEST(CheckPlan, FindsUseBeforeWriting) {
  Plan plan = good_plan();
  plan.phases[1].ops[1].attributes.set("overwrite_first", int64_t{0});
  EXPECT_THAT(check_plan(plan),
              ElementsAre(AllOf(HasSubstr("grad at moment 2"), HasSubstr("which nothing has written"))));
  plan = good_plan();
  plan.phases[0].ops[0].outputs.clear();  // the weight is never loaded
  EXPECT_THAT(check_plan(plan),
              Contains(AllOf(HasSubstr("reads w "), HasSubstr("which nothing has written"))));
}

TEST(CheckPlan, FindsAReadOfAReplacedValue) {
  Plan plan = good_plan();
  PlanOp again = plan.phases[2].ops[0];
  again.name = "w.again";
  plan.phases[2].ops.push_back(again);  // reads w after update/w has replaced it
  for (const char* name : {"w", "grad", "update/w"}) tensor(plan, name).last = 5;
  EXPECT_THAT(check_plan(plan),
              ElementsAre(AllOf(HasSubstr("w.again"), HasSubstr("whose buffer holds update/w"))));
}

TEST(CheckPlan, FindsOutputsInOneBuffer) {
  Plan plan = good_plan();
  plan.phases[2].ops[0].outputs.push_back(plan.find("w"));
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("to one buffer")));
}

TEST(CheckPlan, FindsABufferInTwoPlaces) {
  Plan plan = good_plan();
  tensor(plan, "update/w").place.offset = Bytes(128);
  EXPECT_THAT(check_plan(plan), ElementsAre(HasSubstr("share a buffer and begin at different places")));
}

TEST(CheckPlan, ListsBrokenReferencesAlone) {
  Plan plan = good_plan();
  plan.phases[1].ops[0].inputs[0] = PlanTensorId(int32_t{99});
  tensor(plan, "w").storage = "wood";
  EXPECT_THAT(check_plan(plan),
              ElementsAre(HasSubstr("\"wood\" is not a storage"), HasSubstr("refers to tensor 99")));
}

// A tensor of 64 bytes in a buffer of its own.
PlanTensor value(int32_t number, int64_t first, int64_t last, int64_t offset) {
  PlanTensor made;
  made.name = std::to_string(number);
  made.shape = {16};
  made.storage = "value";
  made.first = first;
  made.last = last;
  made.place = {MemoryId(int32_t{0}), Bytes(offset)};
  made.buffer = number;
  return made;
}

TEST(CheckPlan, CountsWhatItDoesNotList) {
  Plan plan;
  plan.memories.push_back({"ram", Bytes(64), Bytes(64)});
  plan.phases.resize(1);
  plan.phases[0].peak_bytes = Bytes(64);
  plan.phases[0].ops.resize(1);
  for (int i = 0; i < 20;
       ++i)  // 20 tensors in one place: 190 pairs, and 20 × 64 bytes live above the two stated 64
    plan.tensors.push_back(value(i, 0, 1, 0));
  const auto found = check_plan(plan);
  ASSERT_EQ(found.size(), 101u);
  EXPECT_EQ(found.back(), "… and 92 more");
}

TEST(CheckPlan, JudgesAPlanOfTwentyThousandTensors) {
  Plan plan;
  constexpr int kCount = 20000;
  plan.memories.push_back({"ram", Bytes(192), Bytes(192)});
  PlanPhase phase;
  phase.peak_bytes = Bytes(192);
  for (int i = 0; i < kCount;
       ++i) {  // a chain: op i reads tensor i-1 and writes tensor i, three places in turn
    plan.tensors.push_back(value(i, i, std::min(i + 2, kCount), i % 3 * 64));
    PlanOp op;
    op.outputs = {PlanTensorId(i)};
    if (i > 0) op.inputs = {PlanTensorId(i - 1)};
    phase.ops.push_back(op);
  }
  plan.phases.push_back(phase);
  EXPECT_THAT(check_plan(plan), IsEmpty());
  plan.tensors[15000].place.offset = plan.tensors[14999].place.offset;
  EXPECT_THAT(check_plan(plan), Contains(HasSubstr("overlaps")));
}

}  // namespace
}  // namespace snug
