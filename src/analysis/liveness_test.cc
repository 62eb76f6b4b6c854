#include "analysis/liveness.h"

#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/peak.h"
#include "base/errors.h"
#include "ir/text.h"

namespace snug {
namespace {

// Supports everything; gelu needs 32 bytes of scratch, everything takes a second.
class DescribedTarget : public Target {
 public:
  std::string name() const override { return "described"; }
  std::optional<std::string> refusal(const OpQuery&) const override { return std::nullopt; }
  Bytes scratch_bytes(const OpQuery& query) const override { return Bytes(query.op == "gelu" ? 32 : 0); }
  Bytes alignment() const override { return Bytes(64); }
  double seconds(const OpQuery&, const OpCost&) const override { return 1; }
};

// moment   0    1    2    3  | 4    5
// table    ================================  state: all moments
// tokens   ====              |               input: from the phase's first moment to its last use
// late     =============     |
// u        =========         |               made at 0, read last at 1
// h             ===========  |               takes u's storage
// x                  ======================  a result that the second phase carries
// y                       =  |               read by nobody
// a                          | =========
// b                          |      ====
constexpr std::string_view kTwoPhases = R"(phase repeats=1
graph first
input %tokens : i32[1,4] data
input %late : i32[1,4] data
state %table : f32[8,4] weights parameter=wte.weight
%u : f32[1,4,4] activations = embedding(%tokens, %table) @forward name=u
%h : f32[1,4,4] activations = gelu(%u) {approximate=tanh} @forward name=h alias=0:0
%x : f32[1,4,4] activations = embedding(%late, %table) @forward name=x
%y : f32[1,4,4] activations = add(%h, %x) @forward name=y
results %x
phase repeats=0
graph second
state %table : f32[8,4] weights parameter=wte.weight
carried %x : f32[1,4,4] activations
%a : f32[1,4,4] activations = gelu(%x) {approximate=tanh} @forward name=a
%b : f32[1,4,4] activations = add(%x, %a) @forward name=b
results %b
)";

TimelineBuffer buffer_of(const Program& program, const Timeline& timeline, size_t phase,
                         std::string_view name) {
  const TensorId id = program.phases[phase].graph.find(name);
  return timeline.buffers.at(static_cast<size_t>(timeline.buffer_of.at(phase).at(id.index())));
}

TEST(Liveness, IntervalsOfEveryKindOfTensor) {
  const Program program = parse_program(kTwoPhases);
  const Timeline timeline = liveness(program, DescribedTarget(), kMiB);
  EXPECT_EQ(timeline.moments, 6);
  EXPECT_EQ(timeline.first_moment, (std::vector<int64_t>{0, 4}));
  const auto interval = [&](size_t phase, std::string_view name) {
    const TimelineBuffer buffer = buffer_of(program, timeline, phase, name);
    return std::pair(buffer.first, buffer.last);
  };
  using Interval = std::pair<int64_t, int64_t>;
  EXPECT_EQ(interval(0, "table"), Interval(0, 6));
  EXPECT_EQ(interval(1, "table"), Interval(0, 6));
  EXPECT_EQ(interval(0, "tokens"), Interval(0, 1));
  EXPECT_EQ(interval(0, "late"),
            Interval(0, 3));  // written before the phase, although read at its third operation
  EXPECT_EQ(interval(0, "u"), Interval(0, 4));  // one buffer with h
  EXPECT_EQ(interval(0, "h"), Interval(0, 4));
  EXPECT_EQ(interval(0, "x"),
            Interval(2, 6));  // a result that the second phase carries, to its last use there
  EXPECT_EQ(interval(1, "x"), Interval(2, 6));
  EXPECT_EQ(interval(0, "y"), Interval(3, 4));  // read by nobody: one moment
  EXPECT_EQ(interval(1, "b"), Interval(5, 6));

  const TimelineBuffer table = buffer_of(program, timeline, 0, "table");
  EXPECT_TRUE(table.persistent);
  EXPECT_EQ(table.bytes, Bytes(8 * 4 * 4));
  EXPECT_EQ(table.tensors.size(), 2u);
  const Lifetime u = timeline.lifetimes[0][program.phases[0].graph.find("u").index()];
  EXPECT_EQ(u, (Lifetime{0, 2}));  // the tensor alone, inside its buffer's

  // Scratch: gelu at moments 1 and 4.
  ASSERT_GE(timeline.scratch_of[0][1], 0);
  const TimelineBuffer& scratch = timeline.buffers[static_cast<size_t>(timeline.scratch_of[0][1])];
  EXPECT_EQ(std::pair(scratch.first, scratch.last), Interval(1, 2));
  EXPECT_EQ(scratch.bytes, Bytes(32));
  EXPECT_EQ(timeline.scratch_of[0][0], -1);
  EXPECT_GE(timeline.scratch_of[1][0], 0);
}

// Every tensor but the table (128 bytes) takes 64 bytes, rounded; so does gelu's scratch of 32.
//   phase first   moment 0: table, tokens, late, u = 320; 1: table, late, u and h, scratch = 320;
//                 2: table, late, h, x = 320; 3: table, h, x, y = 320. The earliest counts.
//   phase second  moment 4: table, x, a, scratch = 320; 5: table, x, a, b = 320.
TEST(Peak, CountsRoundedBytesByCategory) {
  const Program program = parse_program(kTwoPhases);
  const DescribedTarget target;
  const std::vector<PhasePeak> peaks = phase_peaks(program, liveness(program, target, kMiB), Bytes(64));
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].bytes, Bytes(320));
  EXPECT_EQ(peaks[0].operation, "u");
  EXPECT_EQ(peaks[0].categories[static_cast<size_t>(Category::kWeights)], Bytes(128));
  EXPECT_EQ(peaks[0].categories[static_cast<size_t>(Category::kData)], Bytes(128));
  EXPECT_EQ(peaks[0].categories[static_cast<size_t>(Category::kActivations)], Bytes(64));
  EXPECT_EQ(peaks[1].bytes, Bytes(320));
  EXPECT_EQ(peaks[1].operation, "a");
  EXPECT_EQ(peaks[1].categories[static_cast<size_t>(Category::kScratch)], Bytes(64));
  EXPECT_EQ(largest_peak(peaks).phase, "first");
}

TEST(Liveness, AnAccumulatorLivesThroughItsWholePhase) {
  const Program program = parse_program(R"(phase repeats=4
graph micro_step
input %tokens : i32[1,4] data
state %table : f32[8,4] weights parameter=wte.weight trainable
carried %d.wte.weight : f32[8,4] gradients
%x : f32[1,4,4] activations = embedding(%tokens, %table) @forward name=x
%d.wte.weight.next : f32[8,4] gradients = embedding_dtable(%tokens, %x, %d.wte.weight) {accumulate=1, overwrite_first=1, rows=8} @backward name=d alias=0:2
results %d.wte.weight.next
phase repeats=1
graph update
carried %d.wte.weight : f32[8,4] gradients
%s : f64[1] data = sum_squares(%d.wte.weight) @update name=s
results %s
)");
  const Timeline timeline = liveness(program, DescribedTarget(), kMiB);
  const TimelineBuffer gradient = buffer_of(program, timeline, 0, "d.wte.weight");
  EXPECT_EQ(gradient.first, 0);  // an earlier repetition made it, although this one writes it at moment 1
  EXPECT_EQ(gradient.last, 3);
  EXPECT_EQ(gradient.tensors.size(), 3u);  // carried, .next, and carried of the update
  EXPECT_EQ(gradient.category, Category::kGradients);
}

TEST(Liveness, RefusesWhatNoPhaseMakes) {
  const Program orphan = parse_program(R"(phase repeats=1
graph update
carried %g : f32[8] gradients
%s : f64[1] data = sum_squares(%g) @update name=s
)");
  EXPECT_THROW(liveness(orphan, DescribedTarget(), kMiB), InternalError);
  const Program unequal = parse_program(R"(phase repeats=1
graph first
state %g : f32[8] weights parameter=g
%s : f64[1] data = sum_squares(%g) @update name=s
phase repeats=1
graph second
state %g : f32[9] weights parameter=g
%s : f64[1] data = sum_squares(%g) @update name=s
)");
  EXPECT_THROW(liveness(unequal, DescribedTarget(), kMiB), InternalError);
}

// A product of 4 rows, 4 inputs, 6 outputs: 2 · 4 · 4 · 6 = 192 FLOPs; 64 + 96 + 96 bytes.
TEST(Cost, CountsNeededWorkAndBytes) {
  const Program program = parse_program(R"(phase repeats=3
graph micro_step
input %tokens : i32[1,4] data
state %table : f32[8,4] weights parameter=wte.weight
state %w : f32[6,4] weights parameter=fc.weight
%x : f32[1,4,4] activations = embedding(%tokens, %table) @forward name=x
%y : f32[1,4,6] activations = linear(%x, %w) {bias=0, weight=oi} @forward name=y
%z : f32[1,4,6] activations = linear(%x, %w) {bias=0, weight=oi} @recompute name=z
)");
  const DescribedTarget target;
  const Graph& graph = program.phases[0].graph;
  const Cost product = cost(graph, graph.ops[1], target);
  EXPECT_EQ(product.flops, 192);
  EXPECT_EQ(product.bytes, 64 + 96 + 96);
  EXPECT_EQ(product.seconds, 1);
  EXPECT_EQ(cost(graph, target).seconds, 3);
  const UpdateFlops flops = update_flops(program);
  EXPECT_EQ(flops.needed, 3 * 192);
  EXPECT_EQ(flops.repeated, 3 * 192);
}

// 4 rows, 4 features, 6 inside: a product is 192 FLOPs. The backward needs four and makes `up` again.
TEST(Cost, CountsWhatABackwardMakesAgain) {
  const Program program = parse_program(R"(phase repeats=2
graph micro_step
input %tokens : i32[1,4] data
state %table : f32[8,4] weights parameter=wte.weight
state %up : f32[6,4] weights parameter=up.weight
state %down : f32[4,6] weights parameter=down.weight
%x : f32[1,4,4] activations = embedding(%tokens, %table) @forward name=x
%d_x : f32[1,4,4] activations, %d_up : f32[6,4] gradients, %d_down : f32[4,6] gradients = mlp_gradient(%x, %x, %up, %down) {accumulate=0, activation=gelu_none, bias=0, chunk=2, gradients=7, weight=oi} @backward name=d
)");
  const DescribedTarget target;
  const Graph& graph = program.phases[0].graph;
  EXPECT_EQ(cost(graph, graph.ops[1], target).flops, 4 * 192);
  EXPECT_EQ(cost(graph, graph.ops[1], target).repeated_flops, 192);
  EXPECT_EQ(cost(graph, target).repeated_flops, 192);
  const UpdateFlops flops = update_flops(program);
  EXPECT_EQ(flops.needed, 2 * 4 * 192);
  EXPECT_EQ(flops.repeated, 2 * 192);
}

}  // namespace
}  // namespace snug
