#include "plan/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PlanTensor tensor(std::string name, DType dtype, Shape shape, std::string category, std::string storage) {
  PlanTensor made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.shape = std::move(shape);
  made.category = std::move(category);
  made.storage = std::move(storage);
  made.first = 1;
  made.last = 2;
  return made;
}

PlanOp operation(std::string op, std::string name, std::string part) {
  PlanOp made;
  made.op = std::move(op);
  made.name = std::move(name);
  made.part = std::move(part);
  return made;
}

Plan example() {
  Plan plan;
  plan.target = "cpu avx2";
  plan.memories = {{"ram", Bytes(4096), Bytes(4000)}, {"spill file", Bytes(64), Bytes(64)}};
  const MemoryId ram(int32_t{0}), spill(int32_t{1});
  const PlanTensorId wte(int32_t{0}), loss(int32_t{1}), scratch(int32_t{2});

  plan.tensors = {tensor("wte", DType::kBF16, {256, 2}, "weights", "state"),
                  tensor("micro_step/loss", DType::kF32, {}, "data", "value"),
                  tensor("micro_step/scratch", DType::kU8, {0}, "scratch", "scratch")};
  plan.tensors[0].parameter = "odd \"name\", (ü)";
  plan.tensors[0].first = 0;
  plan.tensors[0].last = 3;
  plan.tensors[0].buffer = 0;
  plan.tensors[0].place = {ram, Bytes(0)};
  plan.tensors[1].place = {spill, Bytes(1024)};
  plan.tensors[2].place = {ram, Bytes(2048)};
  plan.tensors[2].buffer = 2;

  plan.phases.resize(2);
  plan.phases[0].name = "load";
  plan.phases[0].peak_bytes = Bytes(1024);
  plan.phases[0].ops = {operation("read_tensor", "wte.read", "load")};
  plan.phases[0].ops[0].outputs = {wte};
  PlanPhase& phase = plan.phases[1];
  phase.name = "micro_step";
  phase.repeats = 4;
  phase.first_moment = 1;
  phase.peak_bytes = Bytes(4096);
  phase.inputs = {wte};
  phase.results = {loss, wte};
  phase.ops = {operation("head_loss", "loss", "forward"), operation("nothing", "n", "update")};
  PlanOp& head = phase.ops[0];
  head.block = 11;
  head.inputs = {wte, wte};
  head.outputs = {loss};
  head.scratch = scratch;
  head.attributes = {{"chunk", int64_t{128}}, {"eps", 1e-5}, {"weight", std::string("oi")}};
  head.flops = 1.5e12;
  head.seconds = 0.1;
  return plan;
}

TEST(PlanText, PrintsEveryField) {
  EXPECT_EQ(to_string(example()), R"text(snug_plan 1
target "cpu avx2"
memory ram arena=4096 lower_bound=4000
memory "spill file" arena=64 lower_bound=64
tensor wte bf16[256,2] weights state at=ram+0 moments=[0,3) buffer=0 parameter="odd \"name\", (\u00fc)"
tensor micro_step/loss f32[] data value at="spill file"+1024 moments=[1,2) buffer=-1
tensor micro_step/scratch u8[0] scratch scratch at=ram+2048 moments=[1,2) buffer=2
phase load repeats=1 first=0 peak=1024
op read_tensor wte.read load block=-1 () -> (wte) {} flops=0 seconds=0
phase micro_step repeats=4 first=1 peak=4096
inputs wte
results micro_step/loss wte
op head_loss loss forward block=11 (wte, wte) -> (micro_step/loss) scratch=micro_step/scratch {chunk=128, eps=1e-05, weight=oi} flops=1500000000000 seconds=0.1
op nothing n update block=-1 () -> () {} flops=0 seconds=0
)text");
}

TEST(PlanText, ReadsBackWhatItPrints) {
  EXPECT_EQ(parse_plan(to_string(example())), example());
  EXPECT_EQ(parse_plan(to_string(Plan())), Plan());
}

TEST(PlanText, SkipsEmptyLinesAndRemarks) {
  const Plan plan = parse_plan("# a remark\n\nsnug_plan 1\r\n  target null\n");
  EXPECT_EQ(plan.target, "null");
}

TEST(PlanText, PrintsNoPlanThatCannotBeReadBack) {
  Plan plan = example();
  plan.tensors[1].name = "wte";
  EXPECT_THROW(to_string(plan), InternalError);
  plan = example();
  plan.phases[1].ops[0].scratch = PlanTensorId(int32_t{3});
  EXPECT_THROW(to_string(plan), InternalError);
}

void expect_refused(const std::string& text, const std::string& place, const std::string& reason) {
  try {
    parse_plan(text, "file.plan");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadFile);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(place), HasSubstr(reason))) << text;
  }
}

TEST(PlanText, RefusesBrokenTextWithItsLine) {
  const std::string head = "snug_plan 1\ntarget t\nmemory ram arena=64 lower_bound=64\n";
  const std::string tensor = head + "tensor a f32[4] data value at=ram+0 moments=[0,1) buffer=0\n";
  expect_refused("", "file.plan", "empty text");
  expect_refused("plan 1\n", "file.plan:1:", "expected \"snug_plan 1\"");
  expect_refused("snug_plan 2\n", "file.plan:1:", "format is 2, expected 1");
  expect_refused(head + "wood\n", "file.plan:4:", "\"wood\" is none of");
  expect_refused(head + "memory disk arena=x lower_bound=0\n", "file.plan:4:", "expected a number at \"x");
  expect_refused(head + "memory disk arena=99999999999999999999 lower_bound=0\n",
                 "file.plan:4:", "expected a number");
  expect_refused(head + "tensor a f31[4] data value at=ram+0 moments=[0,1) buffer=0\n",
                 "file.plan:4:", "\"f31\" is not");
  expect_refused(head + "tensor a f32[-4] data value at=ram+0 moments=[0,1) buffer=0\n",
                 "file.plan:4:", "negative");
  expect_refused(head + "tensor a f32[4 data value at=ram+0 moments=[0,1) buffer=0\n",
                 "file.plan:4:", "expected \"]\"");
  expect_refused(head + "tensor a f32[4] data value at=disk+0 moments=[0,1) buffer=0\n",
                 "file.plan:4:", "\"disk\"");
  expect_refused(tensor + "tensor a f32[4] data value at=ram+0 moments=[0,1) buffer=0\n",
                 "file.plan:5:", "twice");
  expect_refused(tensor + "inputs a\n", "file.plan:5:", "no phase");
  const std::string phase = tensor + "phase p repeats=1 first=0 peak=0\n";
  expect_refused(phase + "results b\n", "file.plan:6:", "tensor \"b\" is not declared");
  expect_refused(phase + "op add x forward block=0 (a, b) -> (a) {} flops=0 seconds=0\n",
                 "file.plan:6:", "\"b\"");
  expect_refused(phase + "op add x forward block=0 (a, a) (a) {} flops=0 seconds=0\n",
                 "file.plan:6:", "\"->\"");
  expect_refused(phase + "op add x forward block=0 (a) -> (a) {value} flops=0 seconds=0\n",
                 "file.plan:6:", "\"=\"");
  expect_refused(phase + "op add x forward block=0 (a) -> (a) {} flops=0 seconds=0 more\n",
                 "file.plan:6:", "after the end");
  expect_refused(phase + "op \"add x forward\n", "file.plan:6:", "does not end");
}

TEST(Plan, FindsByName) {
  const Plan plan = example();
  EXPECT_EQ(plan.find("micro_step/loss"), PlanTensorId(int32_t{1}));
  EXPECT_FALSE(plan.find("loss").valid());
  EXPECT_EQ(plan.phase("micro_step")->repeats, 4);
  EXPECT_EQ(plan.phase("evaluate"), nullptr);
}

}  // namespace
}  // namespace snug
