// Every implementation of every operation against the reference, and the reference against its own differences.
//
// A failing case is repeated by its name: --gtest_filter='*layer_norm_ragged*'. Speeds: SNUG_CONFORMANCE_SPEED=1 with
// --gtest_filter='Speed.*'.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <cstdlib>
#include <random>
#include <set>

#include "backends/conformance/case_runner.h"
#include "backends/cpu/fp8.h"

namespace snug::conformance {
namespace {

const std::vector<OpCase>& table() {
  static const std::vector<OpCase> cases = op_cases();
  return cases;
}

// Sets SNUG_MAX_CPU_CLASS while it lives.
class ClassLimit {
 public:
  explicit ClassLimit(const std::string& name) { setenv("SNUG_MAX_CPU_CLASS", name.c_str(), 1); }
  ~ClassLimit() { unsetenv("SNUG_MAX_CPU_CLASS"); }
};

// The dispatch of one class, or why this processor or process cannot have it.
struct ClassDispatch {
  std::optional<cpu::Dispatch> dispatch;
  std::string unavailable;
};
ClassDispatch dispatch_of(const std::string& class_name, int threads) {
  const ClassLimit limit(class_name);
  try {
    cpu::Dispatch dispatch = cpu::choose_dispatch(threads);
    if (cpu::cpu_class_name(dispatch.cpu_class) != class_name) return {std::nullopt, dispatch.reason};
    return {std::move(dispatch), ""};
  } catch (const UserError& error) {
    return {std::nullopt, error.what()};
  }
}

cpu::Dispatch with_threads(cpu::Dispatch dispatch, int threads) {
  dispatch.threads = threads;
  return dispatch;
}

// Bits may change with the number of threads where a product is shared by them: the library decides how it splits a sum.
// "chunked" are the head and the MLP, whose products are such. Attention multiplies on one thread a task.
bool claims_thread_independence(const cpu::KernelEntry& entry) {
  return !entry.implementation.starts_with("onednn") && entry.implementation != "chunked";
}

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Every output within `call`'s tolerance of the expected one. An output that is exactly zero by cancellation (d_q and d_k of a
// sample of one token) is measured against the largest of the call's other outputs: its terms had that size.
void expect_close(const Call& call, DType activation, const std::vector<TestTensor>& found,
                  const std::vector<TestTensor>& expected) {
  const double tolerance = call.tolerance(activation);
  double largest = 0;
  for (const TestTensor& tensor : expected) largest = std::max(largest, largest_magnitude(tensor.values()));
  for (size_t k = 0; k < found.size(); ++k) {
    if (largest_magnitude(expected[k].values()) == 0)
      EXPECT_LE(largest_magnitude(found[k].values()), tolerance * largest) << call.outputs[k].name;
    else
      EXPECT_LE(relative_error(found[k].values(), expected[k].values()), tolerance) << call.outputs[k].name;
  }
}

void expect_same_bits(const Call& call, const std::vector<TestTensor>& found,
                      const std::vector<TestTensor>& expected, const std::string& what) {
  for (size_t k = 0; k < found.size(); ++k)
    EXPECT_TRUE(found[k].same_bits(expected[k])) << call.outputs[k].name << ": other bits " << what;
}

// One implementation of one call: right values, the same bits every time, with shared storage, and after overwriting.
void check_implementation(const Call& call, const Tensors& tensors, DType activation,
                          const cpu::KernelEntry& entry, const cpu::Dispatch& dispatch) {
  CallOptions options{with_threads(dispatch, 2), entry.implementation};
  const CallOptions reference{options.dispatch};
  const std::vector<TestTensor> outputs = run_call(call, tensors, activation, options);
  expect_close(call, activation, outputs, run_call(call, tensors, activation, reference));
  expect_same_bits(call, run_call(call, tensors, activation, options), outputs, "when repeated");
  for (const auto& alias : call.may_alias) {
    CallOptions shared = options;
    shared.alias = alias;
    expect_same_bits(call, run_call(call, tensors, activation, shared), outputs,
                     fmt::format("with output {} in input {}", alias.first, alias.second));
  }
  if (claims_thread_independence(entry))
    for (const int threads : {1, 3}) {
      options.dispatch.threads = threads;
      expect_same_bits(call, run_call(call, tensors, activation, options), outputs,
                       fmt::format("on {} threads", threads));
    }
}

// With `overwrite` an accumulator's old content does not count, not even a NaN.
void check_overwrite(const Call& call, const Tensors& tensors, DType activation,
                     const cpu::KernelEntry& entry, const cpu::Dispatch& dispatch) {
  if (call.attributes.integer_or("accumulate", 0) == 0) return;
  Tensors poisoned;
  for (const std::string& name : call.inputs) poisoned.insert_or_assign(name, tensors.at(name).copy());
  Call fresh = call;
  fresh.attributes.erase("accumulate");
  for (const auto& [output, input] : call.must_alias)
    std::memset(
        poisoned.at(call.inputs[static_cast<size_t>(input)]).data(), 0xFF,
        static_cast<size_t>(poisoned.at(call.inputs[static_cast<size_t>(input)]).type().bytes().value));
  CallOptions options{dispatch, entry.implementation};
  options.overwrite = true;
  const std::vector<TestTensor> overwritten = run_call(call, poisoned, activation, options);
  // The same operation without an accumulator.
  std::vector<std::string> kept;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (std::none_of(call.must_alias.begin(), call.must_alias.end(),
                     [&](const auto& alias) { return alias.second == static_cast<int>(i); }))
      kept.push_back(call.inputs[i]);
  fresh.inputs = kept;
  fresh.must_alias.clear();
  expect_close(call, activation, overwritten, run_call(fresh, tensors, activation, CallOptions{dispatch}));
}

using ClassAndCase = std::tuple<std::string, size_t>;

class ImplementationTest : public testing::TestWithParam<ClassAndCase> {};

TEST_P(ImplementationTest, AgreesWithReference) {
  const auto& [class_name, position] = GetParam();
  const ClassDispatch found = dispatch_of(class_name, 2);
  if (!found.dispatch) GTEST_SKIP() << found.unavailable;
  const OpCase& op_case = table()[position];
  for (const DType activation : op_case.activations) {
    Tensors tensors = given_tensors(op_case, activation);
    run_chain(op_case, activation, {*found.dispatch}, tensors);
    for (const Call& call : op_case.calls)
      for (const cpu::KernelOption& option : implementations(call, tensors, activation, *found.dispatch)) {
        if (option.refusal) continue;
        SCOPED_TRACE(fmt::format("{} {} by {}, {}", call.op, to_string(call.attributes),
                                 option.entry->implementation, dtype_name(activation)));
        check_implementation(call, tensors, activation, *option.entry, *found.dispatch);
        check_overwrite(call, tensors, activation, *option.entry, *found.dispatch);
      }
  }
}

std::string class_and_case_name(const testing::TestParamInfo<ClassAndCase>& info) {
  return std::get<0>(info.param) + "_" + table()[std::get<1>(info.param)].name;
}

const std::vector<std::string>& class_names() {
  static const std::vector<std::string> names = {"avx2", "avx512", "avx512_bf16"};
  return names;
}

// Asks the processor, not choose_dispatch: that would fix the library's instruction set for the whole process.
bool processor_has(const std::string& class_name) {
  __builtin_cpu_init();
  if (class_name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 && (class_name == "avx512" || __builtin_cpu_supports("avx512bf16"));
}

std::vector<std::string> classes_of_processor() {
  std::vector<std::string> classes;
  for (const std::string& name : class_names())
    if (processor_has(name)) classes.push_back(name);
  return classes;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ImplementationTest);
INSTANTIATE_TEST_SUITE_P(Cpu, ImplementationTest,
                         testing::Combine(testing::ValuesIn(classes_of_processor()),
                                          testing::Range(size_t{0}, table().size())),
                         class_and_case_name);

class ClassTest : public testing::TestWithParam<std::string> {};

// Makes it visible which classes a machine leaves untested.
TEST_P(ClassTest, IsTestedHere) {
  if (!processor_has(GetParam())) GTEST_SKIP() << "this processor is not of class " << GetParam();
  const ClassDispatch found = dispatch_of(GetParam(), 1);
  if (!found.dispatch) GTEST_SKIP() << found.unavailable;
  EXPECT_EQ(cpu::cpu_class_name(found.dispatch->cpu_class), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cpu, ClassTest, testing::ValuesIn(class_names()));

std::vector<size_t> cases_with_gradient() {
  std::vector<size_t> positions;
  for (size_t i = 0; i < table().size(); ++i)
    if (!table()[i].gradient.gradients.empty()) positions.push_back(i);
  return positions;
}

class GradientTest : public testing::TestWithParam<size_t> {};

// Σ output·d_output of the forward call, or the loss itself.
double objective(const OpCase& op_case, const Tensors& tensors, const cpu::Dispatch& dispatch) {
  const Call& forward = op_case.calls[0];
  const std::vector<TestTensor> outputs = run_call(forward, tensors, DType::kF64, {dispatch});
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (forward.outputs[k].name != op_case.gradient.output) continue;
    const std::vector<double> values = outputs[k].values();
    if (op_case.gradient.d_output.empty()) return values[0];
    const std::vector<double> weights = tensors.at(op_case.gradient.d_output).values();
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
    return sum;
  }
  throw_internal("{}: no output {}", op_case.name, op_case.gradient.output);
}

TEST_P(GradientTest, MatchesCentralDifferences) {
  constexpr double kStep = 1e-5;
  constexpr size_t kElements = 12;  // of each input, drawn at random
  const OpCase& op_case = table()[GetParam()];
  const cpu::Dispatch dispatch = cpu::choose_dispatch(1);
  Tensors tensors = given_tensors(op_case, DType::kF64);
  run_chain(op_case, DType::kF64, {dispatch}, tensors);
  std::mt19937 engine(7);
  for (const auto& [input, gradient] : op_case.gradient.gradients) {
    const std::vector<double> analytic = tensors.at(gradient).values();
    const std::vector<double> original = tensors.at(input).values();
    double largest = 0;
    for (double value : analytic) largest = std::max(largest, std::abs(value));
    for (size_t drawn = 0; drawn < std::min(kElements, original.size()); ++drawn) {
      const size_t element = original.size() <= kElements ? drawn : engine() % original.size();
      const auto objective_at = [&](double value) {
        std::vector<double> moved = original;
        moved[element] = value;
        tensors.insert_or_assign(input, TestTensor::of(tensors.at(input).type(), moved));
        return objective(op_case, tensors, dispatch);
      };
      const double difference =
          (objective_at(original[element] + kStep) - objective_at(original[element] - kStep)) / (2 * kStep);
      EXPECT_NEAR(analytic[element], difference, 1e-7 * (1 + largest)) << gradient << "[" << element << "]";
    }
    tensors.insert_or_assign(input, TestTensor::of(tensors.at(input).type(), original));
  }
}

std::string gradient_case_name(const testing::TestParamInfo<size_t>& tested) {
  return table()[tested.param].name;
}

INSTANTIATE_TEST_SUITE_P(Reference, GradientTest, testing::ValuesIn(cases_with_gradient()),
                         gradient_case_name);

TEST(Table, CoversEveryOperationAndItsNamesAreUnique) {
  std::set<std::string> names, operations;
  for (const OpCase& op_case : table()) {
    EXPECT_TRUE(names.insert(op_case.name).second) << op_case.name;
    for (const Call& call : op_case.calls) operations.insert(call.op);
  }
  for (const cpu::KernelEntry& entry : cpu::reference_kernels())
    EXPECT_TRUE(operations.contains(std::string(entry.op))) << entry.op;
}

TEST(Table, EveryFastKernelHasAReference) {
  std::set<std::string_view> referenced;
  for (const cpu::KernelEntry& entry : cpu::reference_kernels()) referenced.insert(entry.op);
  for (std::span<const cpu::KernelEntry> entries :
       {cpu::product_kernels(), cpu::mlp_kernels(), cpu::attention_kernels(), cpu::head_kernels(),
        cpu::elementwise_kernels(), cpu::norm_kernels(), cpu::fp8_kernels(), cpu::update_kernels()})
    for (const cpu::KernelEntry& entry : entries) EXPECT_TRUE(referenced.contains(entry.op)) << entry.op;
}

TEST(Speed, OfEveryImplementationAtTheShapesOfAModel) {
  if (std::getenv("SNUG_CONFORMANCE_SPEED") == nullptr)
    GTEST_SKIP() << "set SNUG_CONFORMANCE_SPEED=1 to measure";
  const cpu::Dispatch dispatch = cpu::choose_dispatch(1);
  fmt::print("{:<24} {:<16} {:<5} {:>7} {:>10} {:>10} {:>14} {:>8} {:>8}\n", "operation", "implementation",
             "type", "threads", "ms", "ns/element", "cpu ns/element", "GB/s", "GF/s");
  for (const OpCase& op_case : speed_cases())
    for (const DType activation : op_case.activations) {
      Tensors tensors = given_tensors(op_case, activation);
      run_chain(op_case, activation, {with_threads(dispatch, 2), ""}, tensors);
      for (const Call& call : op_case.calls)
        for (const cpu::KernelOption& option : implementations(call, tensors, activation, dispatch)) {
          if (option.refusal || option.entry->implementation == "reference") continue;
          double bytes = 0, elements = 0;
          for (const std::string& input : call.inputs) {
            bytes += static_cast<double>(tensors.at(input).type().bytes().value);
            elements = std::max(elements, static_cast<double>(tensors.at(input).type().shape.elements()));
          }
          for (const CaseTensor& output : call.outputs)
            bytes += static_cast<double>(output.shape.bytes(element_dtype(output.element, activation)).value);
          for (const int threads : {1, 2}) {
            const auto [seconds, processor] = measure(
                call, tensors, activation, {with_threads(dispatch, threads), option.entry->implementation});
            fmt::print("{:<24} {:<16} {:<5} {:>7} {:>10.3f} {:>10.3f} {:>14.3f} {:>8.1f} {:>8.1f}\n", call.op,
                       option.entry->implementation, dtype_name(activation), threads, seconds * 1e3,
                       seconds * 1e9 / elements, processor * 1e9 / elements, bytes / seconds * 1e-9,
                       call.flops / seconds * 1e-9);
          }
        }
    }
}

}  // namespace
}  // namespace snug::conformance
