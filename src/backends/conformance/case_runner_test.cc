#include "backends/conformance/case_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <random>

namespace snug::conformance {
namespace {

// FNV-1a: the seed of a tensor's values.
uint32_t hash(std::string_view text) {
  uint32_t value = 2166136261u;
  for (char c : text) value = (value ^ static_cast<uint8_t>(c)) * 16777619u;
  return value;
}

// Where the document of each position starts: sample b has the boundaries of `list` moved by b, and 0.
std::vector<double> document_starts(const Shape& shape, const std::vector<double>& list) {
  std::vector<double> starts;
  for (int64_t b = 0; b < shape.dim(0); ++b)
    for (int64_t t = 0; t < shape.dim(1); ++t) {
      double start = 0;
      for (double boundary : list)
        if (boundary > 0 && boundary + static_cast<double>(b) <= static_cast<double>(t))
          start = std::max(start, boundary + static_cast<double>(b));
      starts.push_back(start);
    }
  return starts;
}

std::vector<double> make_values(const CaseTensor& tensor, std::mt19937& engine) {
  const Values& values = tensor.values;
  const auto elements = static_cast<size_t>(tensor.shape.elements());
  std::vector<double> result(elements);
  std::normal_distribution<double> normal(0, values.scale);
  switch (values.kind) {
    case Values::Kind::kNormal:
      for (double& value : result) value = normal(engine);
      break;
    case Values::Kind::kPositive:
      for (double& value : result) value = std::abs(normal(engine)) + 1e-3;
      break;
    case Values::Kind::kList:
      for (size_t i = 0; i < elements; ++i) result[i] = values.list[i % values.list.size()];
      break;
    case Values::Kind::kIndices:
    case Values::Kind::kTargets:
      for (double& value : result)
        value = static_cast<double>(engine() % static_cast<uint64_t>(values.bound));
      result.front() = static_cast<double>(values.bound - 1);
      result.back() = 0;
      if (values.kind == Values::Kind::kTargets)
        for (size_t i = 1; i < elements; i += 3) result[i] = -100;
      break;
    case Values::Kind::kDocumentStarts:
      return document_starts(tensor.shape, values.list);
    case Values::Kind::kPositions:
      result = document_starts(tensor.shape, values.list);
      for (size_t i = 0; i < elements; ++i)
        result[i] = static_cast<double>(static_cast<int64_t>(i) % tensor.shape.dim(1)) - result[i];
      break;
    case Values::Kind::kRandomBits:
      for (double& value : result) value = static_cast<double>(engine());
      break;
  }
  return result;
}

OperandType operand_type(const CaseTensor& tensor, DType activation) {
  return {element_dtype(tensor.element, activation), tensor.shape};
}

std::vector<OperandType> input_types(const Call& call, const Tensors& tensors) {
  std::vector<OperandType> types;
  for (const std::string& name : call.inputs) types.push_back(tensors.at(name).type());
  return types;
}

std::vector<OperandType> output_types(const Call& call, DType activation) {
  std::vector<OperandType> types;
  for (const CaseTensor& output : call.outputs) types.push_back(operand_type(output, activation));
  return types;
}

// Output storage, and which tensor each input and output is bound to.
struct Bound {
  std::vector<TestTensor> outputs;
  std::vector<const TestTensor*> inputs, output_pointers;

  Bound(const Call& call, const Tensors& tensors, DType activation, const CallOptions& options) {
    std::vector<std::pair<int, int>> aliases = call.must_alias;
    if (options.alias) aliases.push_back(*options.alias);
    for (const std::string& name : call.inputs) inputs.push_back(&tensors.at(name));
    outputs.reserve(call.outputs.size());
    for (size_t k = 0; k < call.outputs.size(); ++k) {
      const auto shared = std::find_if(aliases.begin(), aliases.end(),
                                       [&](const auto& alias) { return alias.first == static_cast<int>(k); });
      if (shared != aliases.end()) {
        const auto input = static_cast<size_t>(shared->second);
        outputs.push_back(tensors.at(call.inputs[input]).copy());
        inputs[input] = &outputs.back();
      } else {
        outputs.emplace_back(operand_type(call.outputs[k], activation));
        std::memset(outputs.back().data(), 0xFF, static_cast<size_t>(outputs.back().type().bytes().value));
      }
      output_pointers.push_back(&outputs.back());
    }
  }
};

}  // namespace

Tensors given_tensors(const OpCase& op_case, DType activation) {
  Tensors tensors;
  for (const CaseTensor& tensor : op_case.given) {
    std::mt19937 engine(hash(op_case.name + "/" + tensor.name));
    tensors.emplace(tensor.name,
                    TestTensor::of(operand_type(tensor, activation), make_values(tensor, engine)));
  }
  return tensors;
}

std::vector<TestTensor> run_call(const Call& call, const Tensors& tensors, DType activation,
                                 const CallOptions& options) {
  Bound bound(call, tensors, activation, options);
  std::vector<std::pair<const TestTensor*, TestTensor>> untouched;
  for (const std::string& name : call.inputs)
    untouched.emplace_back(&tensors.at(name), tensors.at(name).copy());
  cpu::run_operation(call.op, call.attributes, bound.inputs, bound.output_pointers,
                     {options.dispatch, options.implementation, options.overwrite});
  for (const auto& [tensor, before] : untouched)
    require(tensor->same_bits(before), "{}: wrote to an input", call.op);
  return std::move(bound.outputs);
}

void run_chain(const OpCase& op_case, DType activation, const CallOptions& options, Tensors& tensors) {
  for (const Call& call : op_case.calls) {
    std::vector<TestTensor> outputs = run_call(call, tensors, activation, options);
    for (size_t k = 0; k < outputs.size(); ++k)
      tensors.insert_or_assign(call.outputs[k].name, std::move(outputs[k]));
  }
}

std::vector<cpu::KernelOption> implementations(const Call& call, const Tensors& tensors, DType activation,
                                               const cpu::Dispatch& dispatch) {
  const std::vector<OperandType> inputs = input_types(call, tensors),
                                 outputs = output_types(call, activation);
  return cpu::kernel_options({call.op, inputs, outputs, call.attributes}, dispatch);
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), "comparing {} values with {}", a.size(), b.size());
  double mean = 0;
  for (double value : b)
    if (std::isfinite(value)) mean += std::abs(value) / static_cast<double>(b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::abs(a[i] - b[i]) / (std::abs(b[i]) + mean);
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  return largest;
}

Measured measure(const Call& call, const Tensors& tensors, DType activation, const CallOptions& options) {
  Bound bound(call, tensors, activation, options);
  const std::vector<OperandType> inputs = input_types(call, tensors),
                                 outputs = output_types(call, activation);
  const OpQuery query{call.op, inputs, outputs, call.attributes};
  const cpu::KernelEntry& entry = cpu::pick_kernel(query, options.dispatch, options.implementation);
  const TestTensor scratch(
      OperandType{DType::kU8, Shape{entry.scratch_bytes(query, options.dispatch).value}});
  cpu::Binding binding{call.op, "measured", call.attributes, {}, {}, {}, options.dispatch};
  for (const TestTensor* tensor : bound.inputs) binding.inputs.push_back(tensor->operand());
  for (const TestTensor* tensor : bound.output_pointers) binding.outputs.push_back(tensor->operand());
  binding.scratch = {scratch.data(), static_cast<size_t>(scratch.type().bytes().value)};
  const std::unique_ptr<cpu::Kernel> kernel = entry.make(binding);
  kernel->run(false);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::clock_t processor_begin = std::clock();
  for (int runs = 1;; ++runs) {
    kernel->run(false);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds >= 0.2)
      return {seconds / runs, static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC / runs};
  }
}

TEST(CaseRunner, RelativeErrorSeesEveryKindOfDifference) {
  EXPECT_EQ(relative_error({1, INFINITY, NAN}, {1, INFINITY, NAN}), 0);
  // mean |b| = 2: |3 − 2| / (2 + 2)
  EXPECT_DOUBLE_EQ(relative_error({3, 2}, {2, 2}), 0.25);
  EXPECT_EQ(relative_error({NAN}, {1}), INFINITY);
  EXPECT_EQ(relative_error({1}, {NAN}), INFINITY);
}

TEST(CaseRunner, PositionsRestartAtDocuments) {
  const OpCase op_case{
      "positions",
      {{"positions", Element::kIndex, {2, 5}, {.kind = Values::Kind::kPositions, .list = {0, 3}}}},
      {}};
  EXPECT_EQ(given_tensors(op_case, DType::kF32).at("positions").values(),
            (std::vector<double>{0, 1, 2, 0, 1, 0, 1, 2, 3, 0}));
}

}  // namespace snug::conformance
