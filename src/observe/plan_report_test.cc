#include "observe/plan_report.h"

#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/errors.h"
#include "base/wrapped.h"
#include "plan/text.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Live bytes: moment 0: w 1024; moment 1: w + x 512 + scratch 300 = 1836; moment 2: w + x and y in one
// buffer 512 + grad 1024 = 2560, the peak; moment 3: w + grad.
constexpr std::string_view kPlan = R"(snug_plan 1
target null
memory ram arena=2688 lower_bound=2560
tensor w f32[256] weights state at=ram+0 moments=[0,4) buffer=0 parameter=w
tensor micro_step/x f32[128] activations value at=ram+1024 moments=[1,3) buffer=1
tensor micro_step/y f32[128] activations value at=ram+1024 moments=[2,3) buffer=1
tensor micro_step/scratch u8[300] scratch scratch at=ram+1536 moments=[1,2) buffer=2
tensor grad f32[256] gradients carried at=ram+1600 moments=[2,4) buffer=3
phase load repeats=0 first=0 peak=1024
op fill w load block=-1 () -> (w) {value=0.5} flops=0 seconds=100
phase micro_step repeats=4 first=1 peak=2560
op gelu x forward block=0 (w) -> (micro_step/x) scratch=micro_step/scratch {} flops=0 seconds=0.5
op gelu y backward block=0 (micro_step/x) -> (micro_step/y, grad) {} flops=0 seconds=0.25
phase update repeats=1 first=3 peak=2048
op adamw w update block=-1 (w, grad) -> () {} flops=0 seconds=2
)";

Reserve reserve_of(int64_t bytes) {
  Reserve reserve;
  reserve.resident = Bytes(bytes);
  return reserve;
}

TEST(PlanReport, FindsThePeakAndWhatHoldsIt) {
  const PlanPeak peak = plan_peak(parse_plan(kPlan));
  EXPECT_EQ(peak.phase, "micro_step");
  EXPECT_EQ(peak.operation, "y");
  EXPECT_EQ(peak.live, Bytes(2560));
  ASSERT_EQ(peak.categories.size(), 3u);
  EXPECT_EQ(peak.categories[0].name, "weights");
  EXPECT_EQ(peak.categories[0].bytes, Bytes(1024));
  EXPECT_EQ(peak.categories[1].name, "activations");
  EXPECT_EQ(peak.categories[1].bytes, Bytes(512));  // x and y are one buffer
  EXPECT_EQ(peak.categories[2].name, "gradients");
  EXPECT_EQ(peak.categories[2].bytes, Bytes(1024));
}

TEST(PlanReport, PrintsTheJsonOfThePlan) {
  const PlanSummary summary = summarize(parse_plan(kPlan), reserve_of(1000), Bytes(5000), 4096, 256);
  const Json json = plan_json(summary);
  EXPECT_EQ(
      json.dump(),
      R"({"format":1,"fits":true,"budget_bytes":5000,"peak_bytes":3688,"arena_bytes":2688,"reserve_bytes":1000,)"
      R"("lower_bound_bytes":2560,)"
      R"("memories":[{"name":"ram","budget_bytes":5000,"peak_bytes":3688,"arena_bytes":2688}],)"
      R"("categories":{"weights":1024,"activations":512,"gradients":1024,"unused":128,"reserve":1000},)"
      R"("phases":[{"name":"load","repeats":0,"peak_bytes":1024},{"name":"micro_step","repeats":4,"peak_bytes":2560},)"
      R"({"name":"update","repeats":1,"peak_bytes":2048}],)"
      R"("peak":{"phase":"micro_step","operation":"y"},"step_seconds":5.0,"tokens_per_step":4096,"parameters":256,)"
      R"("recompute":"",)"
      R"("choices":[{"block":0,"kept_bytes":512,"compressed_bytes":0,"recomputed_bytes":0,"recompute_seconds":0.0,"kept":["x"],"compressed":[],"recomputed":[]}],)"
      R"("slowdown":0.0,"gap":null,"smallest_budget_bytes":null,"policies":[],)"
      R"("chosen":{"update_placement":"","backward_passes":1,"micro_batch":0,"accumulation":1,"head_chunk_rows":0,"mlp_chunk_rows":0,)"
      R"("forms":[],"planned":[],"because":""},"carried_gradient_bytes":1024})");
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["categories"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json["peak_bytes"].get<int64_t>());
}

// Block 0 keeps h.0.up; h.0.norm dies in the forward and is made again. r and s share a buffer: counted once.
constexpr std::string_view kRecomputed = R"(snug_plan 1
target null
memory ram arena=4096 lower_bound=4096
tensor micro_step/n f32[128] activations value at=ram+0 moments=[0,2) buffer=0
tensor micro_step/u f32[128] activations value at=ram+512 moments=[1,4) buffer=1
tensor micro_step/r f32[64] activations value at=ram+1024 moments=[2,3) buffer=2
tensor micro_step/s f32[64] activations value at=ram+1024 moments=[2,5) buffer=2
tensor micro_step/n.recompute f32[128] activations value at=ram+0 moments=[3,5) buffer=3
phase micro_step repeats=1 first=0 peak=4096
op norm h.0.norm forward block=0 () -> (micro_step/n) {} flops=0 seconds=1
op linear h.0.up forward block=0 (micro_step/n) -> (micro_step/u) {} flops=0 seconds=1
op add h.1.add forward block=1 (micro_step/u) -> (micro_step/r, micro_step/s) {} flops=0 seconds=1
op norm h.0.norm.recompute recompute block=0 () -> (micro_step/n.recompute) {} flops=0 seconds=0.25
op gelu h.0.up.dx backward block=0 (micro_step/n.recompute, micro_step/s) -> () {} flops=0 seconds=1
)";

TEST(PlanReport, TellsOfEachBlockWhatItKeepsAndMakesAgain) {
  const std::vector<PlanSummary::Block> blocks = block_choices(parse_plan(kRecomputed));
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].block, 0);
  EXPECT_EQ(blocks[0].kept, Bytes(512));
  EXPECT_EQ(blocks[0].recomputed, Bytes(512));
  EXPECT_DOUBLE_EQ(blocks[0].recompute_seconds, 0.25);
  EXPECT_THAT(blocks[0].keeps, ::testing::ElementsAre("up"));
  EXPECT_THAT(blocks[0].recomputes, ::testing::ElementsAre("norm"));
  EXPECT_EQ(blocks[1].kept, Bytes(256));
  EXPECT_THAT(blocks[1].recomputes, ::testing::IsEmpty());
}

// Clipping with the update in the backward: the backward for the norm makes its own copies. What is made twice in the other pass is listed
// once.
constexpr std::string_view kTwoPasses = R"(snug_plan 1
target null
memory ram arena=4096 lower_bound=4096
tensor micro_step/n f32[128] activations value at=ram+0 moments=[0,1) buffer=0
tensor micro_step/n.norm f32[128] activations value at=ram+0 moments=[1,3) buffer=1
tensor micro_step/n.1 f32[128] activations value at=ram+0 moments=[3,4) buffer=2
tensor micro_step/n.2 f32[128] activations value at=ram+0 moments=[4,5) buffer=3
phase micro_step repeats=1 first=0 peak=4096
op norm h.0.norm forward block=0 () -> (micro_step/n) {} flops=0 seconds=1
op norm h.0.norm.recompute.norm recompute block=0 () -> (micro_step/n.norm) {} flops=0 seconds=0.25
op gelu h.0.up.dx.norm recompute block=0 (micro_step/n.norm) -> () {} flops=0 seconds=1
op norm h.0.norm.recompute recompute block=0 () -> (micro_step/n.1) {} flops=0 seconds=0.25
op norm h.0.norm.recompute.2 recompute block=0 () -> (micro_step/n.2) {} flops=0 seconds=0.25
op gelu h.0.up.dx backward block=0 (micro_step/n.2) -> () {} flops=0 seconds=1
)";

TEST(PlanReport, ListsNothingOfTheBackwardForTheNorm) {
  const std::vector<PlanSummary::Block> blocks = block_choices(parse_plan(kTwoPasses));
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_THAT(blocks[0].recomputes, ::testing::ElementsAre("norm"));
  EXPECT_EQ(blocks[0].recomputed, Bytes(1024));
  EXPECT_DOUBLE_EQ(blocks[0].recompute_seconds, 0.75);
}

// u dies in the forward; its codes and scales are held, and decoded for the backward.
constexpr std::string_view kCompressed = R"(snug_plan 1
target null
memory ram arena=4096 lower_bound=4096
tensor micro_step/n f32[128] activations value at=ram+0 moments=[0,4) buffer=0
tensor micro_step/u f32[128] activations value at=ram+512 moments=[1,3) buffer=1
tensor micro_step/u.codes u8[128] activations value at=ram+1024 moments=[2,4) buffer=2
tensor micro_step/u.scales f32[1] activations value at=ram+1152 moments=[2,4) buffer=3
tensor micro_step/u.decode f32[128] activations value at=ram+512 moments=[3,5) buffer=4
phase micro_step repeats=1 first=0 peak=4096
op norm h.0.norm forward block=0 () -> (micro_step/n) {} flops=0 seconds=1
op linear h.0.up forward block=0 (micro_step/n) -> (micro_step/u) {} flops=0 seconds=1
op fp8_encode h.0.up.encode forward block=0 (micro_step/u) -> (micro_step/u.codes, micro_step/u.scales) {} flops=0 seconds=1
op fp8_decode h.0.up.decode recompute block=0 (micro_step/u.codes, micro_step/u.scales) -> (micro_step/u.decode) {} flops=0 seconds=0.5
op gelu h.0.up.dx backward block=0 (micro_step/u.decode) -> () {} flops=0 seconds=1
)";

TEST(PlanReport, TellsWhatIsHeldInEightBits) {
  PlanSummary summary = summarize(parse_plan(kCompressed), reserve_of(1000), Bytes(6000), 64, 10);
  ASSERT_EQ(summary.blocks.size(), 1u);
  EXPECT_EQ(summary.blocks[0].kept, Bytes(512));
  EXPECT_EQ(summary.blocks[0].compressed, Bytes(132));
  EXPECT_EQ(summary.blocks[0].recomputed, Bytes(0));
  EXPECT_DOUBLE_EQ(summary.blocks[0].recompute_seconds, 0.5);
  EXPECT_THAT(summary.blocks[0].compresses, ::testing::ElementsAre("up"));
  EXPECT_THAT(summary.blocks[0].recomputes, ::testing::IsEmpty());
  summary.recompute = "compress";
  EXPECT_THAT(choices_table(summary),
              StartsWith("Blocks (policy compress): # kept, + in 8 bits, . recomputed\n"
                         "  block                          kept      8 bits  recomputed  in 8 bits; computed again\n"
                         "  0      #############+++       512 B       132 B         0 B  up; nothing\n"));
}

TEST(PlanReport, TabulatesChoicesWithWhatTheyCost) {
  PlanSummary summary = summarize(parse_plan(kRecomputed), reserve_of(1000), Bytes(6000), 64, 10);
  summary.recompute = "optimal";
  summary.slowdown = 0.25;
  summary.gap = 0.006;
  summary.smallest_budget = Bytes(5000);
  summary.policies = {{"none", Bytes(7000), 4}, {"block", Bytes(5500), 5}};
  EXPECT_EQ(choices_table(summary),
            R"(Blocks (policy optimal): # kept, . recomputed
  block                          kept  recomputed  computed again
  0      ########........       512 B       512 B  norm
  1      ####                   256 B         0 B  nothing
Slowdown against keeping everything: 25.00 %; no plan of these techniques can be more than 0.60 %
  faster at these costs
Smallest budget that works: 4.88 KiB (5000 bytes)
Policies                        memory  s/update
  none                         6.84 KiB         4  does not fit
  block                        5.37 KiB         5
)");
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, characters(line));
  return widest;
}

// Blocks 0, 1, 3 and 4 do the same, in whatever order it is named; 2 keeps a part of attn; 5 differs in bytes alone.
PlanSummary of_six_blocks() {
  PlanSummary summary = summarize(parse_plan(kRecomputed), reserve_of(1000), Bytes(6000), 64, 10);
  summary.recompute = "optimal";
  summary.blocks.clear();
  const std::vector<std::string> all = {"attn.q", "attn.rope", "attn.attention", "ln_1", "mlp.gate", "mlp.up", "mlp.act"};
  for (int32_t number = 0; number < 6; ++number) {
    PlanSummary::Block block;
    block.block = number;
    block.kept = kMiB;
    block.recomputed = (number == 5 ? 4 : 3) * kMiB;
    block.recomputes = all;
    if (number == 3) std::reverse(block.recomputes.begin(), block.recomputes.end());
    if (number == 2) {
      block.recomputes.erase(block.recomputes.begin());
      block.keeps = {"attn.q"};
    }
    summary.blocks.push_back(block);
  }
  return summary;
}

TEST(PlanReport, TellsEqualBlocksInOneRow) {
  EXPECT_THAT(choices_table(of_six_blocks()), StartsWith(R"(Blocks (policy optimal): # kept, . recomputed
  block                             kept  recomputed  computed again
  0–1, 3–4  ###..........       1.00 MiB    3.00 MiB  attn.* ln_1 mlp.*
  2         ###..........       1.00 MiB    3.00 MiB  attn.rope attn.attention ln_1 mlp.*
  5         ###.............    1.00 MiB    4.00 MiB  attn.* ln_1 mlp.*
Slowdown)"));
}

PlanSummary::Chosen chosen_in_backward() {
  PlanSummary::Chosen chosen;
  chosen.update_placement = "in_backward";
  chosen.backward_passes = 2;
  chosen.micro_batch = 4;
  chosen.head_chunk_rows = 256;
  chosen.because = "with the update after the backward the run needs at least 9 MiB";
  return chosen;
}

TEST(PlanReport, FitsTheColumnsThereAre) {
  PlanSummary summary = of_six_blocks();
  // No two of a hundred blocks beside each other are equal: their numbers take several lines.
  for (int32_t number = 6; number < 100; ++number) {
    summary.blocks.push_back(summary.blocks[number % 2 == 0 ? 2 : 5]);
    summary.blocks.back().block = number;
  }
  summary.gap = 0.006;
  summary.chosen = chosen_in_backward();
  summary.alternatives = {{.option = "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradients fp32",
                           .terms = {{"weights", Bytes(-512)},
                                     {"master_weights", 999 * kMiB},
                                     {"optimizer_state", Bytes() - 999 * kMiB},
                                     {"activations", 999 * kMiB},
                                     {"gradients", 999 * kMiB}},
                           .peak = Bytes(3072),
                           .step_seconds = 4.5,
                           .fits = true}};
  for (const size_t columns : {size_t{100}, size_t{90}}) {
    EXPECT_LE(widest_line(choices_table(summary, columns)), columns);
    EXPECT_LE(widest_line(alternatives_table(summary, columns)), columns);
    EXPECT_LE(widest_line(plan_table(summary, columns)), columns);
  }
  EXPECT_THAT(choices_table(summary, 70), Not(HasSubstr("###.")));  // the bars go first
  EXPECT_LE(widest_line(choices_table(summary, 72)), 72u);
}

TEST(PlanReport, SaysWhatWasChosenAndWhy) {
  PlanSummary::Chosen chosen = chosen_in_backward();
  EXPECT_EQ(describe(chosen), "update in_backward (two passes), micro-batch 4 × 1");
  PlanSummary summary = summarize(parse_plan(kRecomputed), reserve_of(1000), Bytes(6000), 64, 10);
  summary.chosen = chosen;
  EXPECT_THAT(
      plan_table(summary),
      HasSubstr(
          "Chosen: update in_backward (two passes), micro-batch 4 × 1, because with the update after the\n"
          "  backward the run needs at least 9 MiB\n"));
  chosen = {};
  chosen.update_placement = "after";
  chosen.micro_batch = 2;
  chosen.accumulation = 3;
  chosen.head_chunk_rows = 256;
  chosen.forms = {"reassociation", "bf16_optimizer"};
  EXPECT_EQ(describe(chosen), "update after the backward, micro-batch 2 × 3, head of 256 rows, bf16_optimizer");
  chosen.mlp_chunk_rows = 512;
  EXPECT_EQ(
      describe(chosen),
      "update after the backward, micro-batch 2 × 3, head of 256 rows, MLP of 512 rows, bf16_optimizer");
  EXPECT_EQ(plan_json(summary)["chosen"]["mlp_chunk_rows"], 0);
}

// Gradients of the plan with 4 micro-steps stay from one to the next (A18); with one there is nothing to say.
TEST(PlanReport, SaysThatAccumulationHoldsAllGradients) {
  const PlanSummary summary = summarize(parse_plan(kPlan), reserve_of(1000), Bytes(5000), 4096, 256);
  EXPECT_EQ(summary.carried_gradients, Bytes(1024));
  EXPECT_THAT(plan_table(summary),
              HasSubstr("4 micro-steps an update: all gradients (1.00 KiB) are held through each of them\n"));
  const PlanSummary once = summarize(parse_plan(kRecomputed), reserve_of(1000), Bytes(6000), 64, 10);
  EXPECT_EQ(once.carried_gradients, Bytes());
  EXPECT_THAT(plan_table(once), Not(HasSubstr("micro-steps an update")));
}

TEST(PlanReport, TabulatesWhatAnOptionWouldChange) {
  PlanSummary summary = summarize(parse_plan(kPlan), reserve_of(1000), Bytes(5000), 4096, 256);
  EXPECT_EQ(alternatives_table(summary), "");
  EXPECT_FALSE(plan_json(summary).contains("alternatives"));
  summary.alternatives = {{.option = "--precision bf16",
                           .terms = {{"weights", Bytes(-512)}, {"master_weights", Bytes(512)}},
                           .peak = Bytes(3072),
                           .step_seconds = 4.5,
                           .fits = true},
                          {.option = "--allow x", .terms = {}, .peak = Bytes(6144), .step_seconds = 5, .fits = false}};
  EXPECT_EQ(alternatives_table(summary),
            R"(What one more option would change, estimated: in this budget, and of the most that each term holds
  with everything kept
  option                  peak  s/update  fits  terms
  --precision bf16    3.00 KiB       4.5  yes   weights -512 B, master_weights +512 B
  --allow x           6.00 KiB         5  no    no term changes
)");
  const Json row = plan_json(summary)["alternatives"][0];
  EXPECT_EQ(row["option"], "--precision bf16");
  EXPECT_EQ(row["terms"]["weights"], -512);
  EXPECT_EQ(row["peak_bytes"], 3072);
  EXPECT_EQ(row["estimated"], true);
}

TEST(PlanReport, CountsAPeakBeforeTheArenaAsReserve) {
  Reserve reserve = reserve_of(1000);
  reserve.peak_so_far = Bytes(10000);
  const PlanSummary summary = summarize(parse_plan(kPlan), reserve, Bytes(9999), 0, 0);
  EXPECT_EQ(summary.peak, Bytes(10000));
  EXPECT_EQ(summary.reserve, Bytes(10000 - 2688));
  EXPECT_FALSE(summary.fits);
}

TEST(PlanReport, PrintsTheTable) {
  EXPECT_EQ(plan_table(summarize(parse_plan(kPlan), reserve_of(1000), Bytes(5000), 4096, 1234567)),
            R"(Memory at the peak (phase micro_step, operation y)
  weights            1.00 KiB  27.8 %  ########
  activations           512 B  13.9 %  ####
  gradients          1.00 KiB  27.8 %  ########
  unused                128 B   3.5 %  #
  reserve              1000 B  27.1 %  ########
  process peak       3.60 KiB
  budget             4.88 KiB
  left               1.28 KiB
Arena 2,688 bytes, 5.0 % above the lower bound
Phases            repeats   live bytes
  load                  -     1.00 KiB  ###########
  micro_step            4     2.50 KiB  #############################
  update                1     2.00 KiB  #######################
1,234,567 parameters; estimated 5 s an update of 4,096 tokens
4 micro-steps an update: all gradients (1.00 KiB) are held through each of them
)");
}

TEST(PlanReport, SaysWhatIsMissing) {
  const PlanSummary summary = summarize(parse_plan(kPlan), reserve_of(1000), Bytes(2000), 4096, 256);
  EXPECT_FALSE(plan_json(summary)["fits"].get<bool>());
  EXPECT_THAT(plan_table(summary),
              AllOf(HasSubstr("missing"), HasSubstr("does not fit: 1,688 bytes more are needed")));
}

TEST(PlanReport, NeedsAMemory) { EXPECT_THROW(summarize(Plan(), Reserve(), Bytes(), 0, 0), InternalError); }

}  // namespace
}  // namespace snug
