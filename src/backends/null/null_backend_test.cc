#include "backends/null/null_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/errors.h"
#include "plan/check.h"
#include "plan/text.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// load w · micro_step twice: x = f(tokens, w), y = g(x) in x's storage, grad += y · update: w' = w - grad.
constexpr std::string_view kGood = R"(snug_plan 1
target null
memory ram arena=384 lower_bound=384
tensor w f32[16] weights state at=ram+0 moments=[0,6) buffer=0 parameter=w
tensor grad f32[16] gradients carried at=ram+64 moments=[1,5) buffer=1
tensor micro_step/tokens i32[16] data input at=ram+128 moments=[1,2) buffer=2
tensor micro_step/x f32[16] activations value at=ram+192 moments=[1,3) buffer=3
tensor micro_step/x.scratch u8[128] scratch scratch at=ram+256 moments=[1,2) buffer=4
tensor micro_step/y f32[16] activations value at=ram+192 moments=[2,4) buffer=3
tensor micro_step/grad f32[16] gradients value at=ram+64 moments=[3,4) buffer=1
tensor update/w f32[16] weights value at=ram+0 moments=[4,5) buffer=0
tensor save/staging u8[64] scratch scratch at=ram+64 moments=[5,6) buffer=5
phase load repeats=1 first=0 peak=64
op fill w load block=-1 () -> (w) {value=0.5} flops=0 seconds=0
phase micro_step repeats=2 first=1 peak=384
inputs micro_step/tokens
results grad
op embedding x forward block=0 (micro_step/tokens, w) -> (micro_step/x) scratch=micro_step/x.scratch {} flops=0 seconds=0
op gelu y forward block=0 (micro_step/x) -> (micro_step/y) {} flops=0 seconds=0
op linear_dweight grad backward block=0 (micro_step/y, grad) -> (micro_step/grad) {accumulate=1, overwrite_first=1} flops=0 seconds=0
phase update repeats=1 first=4 peak=128
op adamw w update block=-1 (w, grad) -> (update/w) {} flops=0 seconds=0
phase save repeats=1 first=5 peak=128
op write_tensor w save block=-1 (w) -> () scratch=save/staging {} flops=0 seconds=0
)";

// Runs a plan on the null backend as an executor would, one operation at a time.
class Runner {
 public:
  explicit Runner(Plan plan) : plan_(std::move(plan)) {
    for (size_t m = 0; m < plan_.memories.size(); ++m) backend_.reserve(plan_, MemoryId(m));
    for (const PlanPhase& phase : plan_.phases)
      for (const PlanOp& op : phase.ops) kernels_.push_back(backend_.bind(plan_, op));
  }

  void phase(std::string_view name, int64_t repetition = 0) {
    const PlanPhase& phase = *plan_.phase(name);
    for (size_t i = 0; i < phase.ops.size(); ++i)
      backend_.enqueue(kernels_[static_cast<size_t>(phase.first_moment) + i], LaneId(int32_t{0}), {},
                       repetition);
  }

  const PlanTensor& tensor(std::string_view name) const { return plan_.tensor(plan_.find(name)); }
  void write(std::string_view name, int64_t begin = 0, size_t size = 64) {
    backend_.write(tensor(name), begin, std::vector<std::byte>(size));
  }
  void read(std::string_view name) {
    std::vector<std::byte> bytes(64, std::byte{1});
    backend_.read(tensor(name), 0, bytes);
    EXPECT_EQ(bytes, std::vector<std::byte>(64));
  }
  void update() {
    for (int64_t repetition = 0; repetition < 2; ++repetition) {
      write("micro_step/tokens");
      phase("micro_step", repetition);
    }
    phase("update");
  }

  NullBackend& backend() { return backend_; }

 private:
  Plan plan_;
  NullBackend backend_;
  std::vector<KernelId> kernels_;
};

PlanTensor& tensor(Plan& plan, std::string_view name) { return plan.tensors.at(plan.find(name).index()); }

template <typename F>
void expect_violation(F&& f, const std::string& first, const std::string& second = "",
                      const std::string& third = "") {
  try {
    f();
    ADD_FAILURE() << "no violation was found";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(first), HasSubstr(second), HasSubstr(third)));
  }
}

TEST(NullBackend, RunsAGoodPlan) {
  ASSERT_THAT(check_plan(parse_plan(kGood)), IsEmpty());
  Runner run(parse_plan(kGood));
  run.phase("load");
  for (int update = 0; update < 3; ++update) {
    run.update();
    run.read("w");
  }
  run.phase("save");
  EXPECT_EQ(run.backend().enqueued(), 1 + 3 * (2 * 3 + 1) + 1);
}

TEST(NullBackend, FindsAnOverlap) {
  Plan plan = parse_plan(kGood);
  tensor(plan, "micro_step/x").place.offset = Bytes(32);  // half on w, half on grad
  tensor(plan, "micro_step/y").place.offset = Bytes(32);
  Runner run(plan);
  run.phase("load");
  expect_violation([&] { run.update(); }, "operation x puts micro_step/x on bytes [32, 64)",
                   "where w lives in [0, 6)");
}

TEST(NullBackend, FindsAScratchThatIsNotPrivate) {
  Plan plan = parse_plan(kGood);
  tensor(plan, "micro_step/x.scratch").place.offset =
      Bytes(128);  // tokens and the x that the operation writes
  Runner run(plan);
  run.phase("load");
  expect_violation([&] { run.update(); }, "puts micro_step/x.scratch on bytes [128, 192)",
                   "micro_step/tokens");
}

TEST(NullBackend, FindsAWriteByTheHostOnALivingTensor) {
  Plan plan = parse_plan(kGood);
  tensor(plan, "micro_step/tokens").place.offset = Bytes(0);
  Runner run(plan);
  run.phase("load");
  expect_violation([&] { run.update(); }, "the host's write of micro_step/tokens", "where w lives");
}

TEST(NullBackend, FindsAReadBeforeWriting) {
  Runner no_state(parse_plan(kGood));
  expect_violation([&] { no_state.update(); }, "operation x, bytes [0, 64) of w were never written");

  Runner no_input(parse_plan(kGood));
  no_input.phase("load");
  expect_violation([&] { no_input.phase("micro_step"); }, "of micro_step/tokens were never written");

  Plan plan = parse_plan(kGood);
  plan.phases[1].ops[2].attributes.erase("overwrite_first");
  Runner no_zeroing(plan);
  no_zeroing.phase("load");
  expect_violation([&] { no_zeroing.update(); }, "operation grad, bytes [0, 64) of grad were never written");

  Runner no_result(parse_plan(kGood));
  expect_violation([&] { no_result.read("grad"); }, "the host's read of grad");
}

TEST(NullBackend, FindsAReadOfOverwrittenBytes) {
  Plan plan = parse_plan(kGood);
  tensor(plan, "save/staging").place.offset = Bytes(64);
  Runner run(plan);
  run.phase("load");
  run.update();
  run.phase("save");  // its staging lies where the gradient was
  expect_violation([&] { run.read("grad"); }, "bytes [0, 64) of grad were overwritten by save/staging");
  // The second repetition of an update adds to the gradient: without the first it would add to the staging
  // bytes.
  run.write("micro_step/tokens");
  expect_violation([&] { run.phase("micro_step", 1); }, "operation grad",
                   "grad were overwritten by save/staging");
}

TEST(NullBackend, FindsAnInPlaceOperationThatCameTooEarly) {
  Plan plan = parse_plan(kGood);
  plan.phases[1].ops[2].inputs[0] = plan.find("micro_step/x");  // but y has taken x's storage
  tensor(plan, "micro_step/x").last = 4;
  Runner run(plan);
  run.phase("load");
  expect_violation([&] { run.update(); }, "operation grad",
                   "of micro_step/x were overwritten by micro_step/y");
}

TEST(NullBackend, FindsOperandsThatDoNotLive) {
  for (const char* name : {"micro_step/tokens", "micro_step/x", "micro_step/x.scratch"}) {
    Plan plan = parse_plan(kGood);
    tensor(plan, name).first = 2;
    tensor(plan, name).last = 3;
    Runner run(plan);
    run.phase("load");
    expect_violation([&] { run.update(); }, "operation x of phase micro_step at moment 1 uses",
                     std::string(name) + ", which lives in [2, 3)");
  }
}

TEST(NullBackend, FindsTwoOutputsInOnePlace) {
  Plan plan = parse_plan(kGood);
  plan.phases[1].ops[1].outputs.push_back(plan.find("micro_step/x"));
  Runner run(plan);
  run.phase("load");
  expect_violation([&] { run.update(); }, "the end of operation y",
                   "of micro_step/y were overwritten by micro_step/x");
}

TEST(NullBackend, TakesAHostTensorInPieces) {
  Runner run(parse_plan(kGood));
  run.write("w", 0, 32);
  expect_violation([&] { run.read("w"); }, "of w were never written");
  run.write("w", 48, 16);  // leaves [32, 48) open
  expect_violation([&] { run.read("w"); }, "of w were never written");
  run.write("w", 0, 32);
  run.write("w", 32, 32);
  run.read("w");
  expect_violation([&] { run.write("w", 32, 33); }, "the host writes bytes [32, 65) of w, which has 64");
  expect_violation([&] { run.write("w", -1, 1); }, "[-1, 0)");
}

TEST(NullBackend, RefusesPlansOutsideTheArena) {
  Plan plan = parse_plan(kGood);
  tensor(plan, "micro_step/x").place.offset = Bytes(384);
  expect_violation([&] { Runner run(plan); },
                   "tensor micro_step/x takes bytes [384, 448) of an arena of 384");
}

TEST(NullBackend, RefusesWhatIsNotInThePlan) {
  const Plan plan = parse_plan(kGood);
  NullBackend backend;
  expect_violation([&] { backend.bind(plan, plan.phases[0].ops[0]); },
                   "before its plan's memories were reserved");
  backend.reserve(plan, MemoryId(int32_t{0}));
  expect_violation([&] { backend.reserve(plan, MemoryId(int32_t{0})); }, "reserved twice");
  const PlanOp copy = plan.phases[0].ops[0];
  expect_violation([&] { backend.bind(plan, copy); }, "not part of the plan");
  const PlanTensor tensor_copy = plan.tensors[0];
  expect_violation([&] { backend.host_view(tensor_copy); }, "not part of the plan");
  expect_violation([&] { backend.enqueue(KernelId(int32_t{0}), LaneId(int32_t{0}), {}, 0); }, "not bound");
}

TEST(NullBackend, GivesTheHostItsStaging) {
  const Plan plan = parse_plan(kGood);
  NullBackend backend;
  backend.reserve(plan, MemoryId(int32_t{0}));
  EXPECT_EQ(backend.host_view(plan.tensor(plan.find("save/staging"))).size(), 64u);
  EXPECT_TRUE(backend.host_view(plan.tensor(plan.find("w"))).empty());
}

TEST(NullTarget, AnswersFromItsProfile) {
  const NullTarget target(
      {.flops_per_second = 1e12, .bytes_per_second = 1e10, .staging = Bytes(1000), .scratch = Bytes(7)});
  const std::array inputs = {OperandType{DType::kBF16, {2, 96, 8}}, OperandType{DType::kBF16, {50, 8}}};
  const Attributes chunk = {{"chunk", int64_t{128}}}, none;
  EXPECT_EQ(target.refusal({"anything", inputs, {}, none}), std::nullopt);
  EXPECT_EQ(target.alignment(), Bytes(64));
  EXPECT_EQ(target.scratch_bytes({"linear", inputs, {}, none}), Bytes(7));
  EXPECT_EQ(target.scratch_bytes({"read_tensor", {}, {}, none}), Bytes(1000));
  EXPECT_EQ(target.scratch_bytes({"head_loss", inputs, {}, chunk}), Bytes(128 * 50 * 4));  // 128 of 192 rows
  const Attributes long_chunk = {{"chunk", int64_t{1024}}};
  EXPECT_EQ(target.scratch_bytes({"head_loss_gradient", inputs, {}, long_chunk}), Bytes(192 * 50 * 4));
  EXPECT_DOUBLE_EQ(target.seconds({"linear", inputs, {}, none}, {.flops = 1e12, .bytes = 1e9}), 1.0);
  EXPECT_DOUBLE_EQ(target.seconds({"add", inputs, {}, none}, {.flops = 1e9, .bytes = 1e9}), 0.1);
}

}  // namespace
}  // namespace snug
