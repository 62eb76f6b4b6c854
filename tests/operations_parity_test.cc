// Every implementation of every operation against PyTorch's values in tests/fixtures/operations (tools/README.md).
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/kernel_list.h"
#include "backends/cpu/test_operation.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace snug {
namespace {

using cpu::TestTensor;

const std::string kFixture = std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/operations";

const Json& cases() {
  static const Json all = read_json_object(kFixture + ".json").at("cases");
  return all;
}

const SafetensorsFile& tensors() {
  static const SafetensorsFile file(kFixture + ".safetensors");
  return file;
}

TestTensor read_tensor(const std::string& name) {
  const SafetensorsEntry* entry = tensors().find(name);
  require(entry != nullptr, "fixture has no tensor {}", name);
  const std::optional<DType> dtype = engine_dtype(entry->dtype);
  require(dtype.has_value(), "{}: {} is no engine type", name, file_dtype_name(entry->dtype));
  TestTensor tensor({*dtype, entry->shape});
  tensors().read(*entry, 0, {tensor.data(), static_cast<size_t>(entry->bytes())});
  return tensor;
}

Attributes read_attributes(const Json& object) {
  Attributes attributes;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number_integer())
      attributes.set(name, value.get<int64_t>());
    else if (value.is_number_float())
      attributes.set(name, value.get<double>());
    else
      attributes.set(name, value.get<std::string>());
  }
  return attributes;
}

// {output, input} that share storage (alias rule *must*): accumulators are the last inputs and outputs.
std::vector<std::pair<size_t, size_t>> shared_storage(const std::string& op, const Attributes& attributes,
                                                      size_t inputs, size_t outputs) {
  if (op == "adamw") {
    std::vector<std::pair<size_t, size_t>> pairs = {{0, 0}, {1, 1}, {2, 2}};
    if (attributes.integer_or("narrow", 0) != 0) pairs.emplace_back(4, 6);
    return pairs;
  }
  std::vector<std::pair<size_t, size_t>> pairs;
  if (attributes.integer_or("accumulate", 0) != 0)
    for (size_t last = op == "layer_norm_dweight" ? 2
                       : op == "mlp_gradient"     ? outputs - 1
                                                  : 1;
         last > 0; --last)
      pairs.emplace_back(outputs - last, inputs - last);
  return pairs;
}

// Largest |found − expected| as a part of the expected output's largest finite magnitude.
double error(const std::vector<double>& found, const std::vector<double>& expected) {
  double magnitude = 0, largest = 0;
  for (double value : expected)
    if (std::isfinite(value)) magnitude = std::max(magnitude, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    const double difference = std::abs(found[i] - expected[i]);
    largest = std::isfinite(difference) ? std::max(largest, difference) : INFINITY;
  }
  return largest == 0 ? 0 : largest / magnitude;
}

class OperationsParityTest : public testing::TestWithParam<size_t> {};

TEST_P(OperationsParityTest, EveryImplementationGivesPyTorchsValues) {
  const Json& one = cases()[GetParam()];
  const std::string stem = one.at("case").get<std::string>() + ".";
  const cpu::Dispatch dispatch = cpu::choose_dispatch(2);
  for (const Json& call : one.at("calls")) {
    const std::string op = call.at("operation");
    const Attributes attributes = read_attributes(call.at("attributes"));
    std::vector<TestTensor> inputs, expected;
    std::vector<OperandType> input_types, output_types;
    for (const std::string name : call.at("inputs")) inputs.push_back(read_tensor(stem + name));
    for (const std::string name : call.at("outputs")) expected.push_back(read_tensor(stem + name));
    for (const TestTensor& tensor : inputs) input_types.push_back(tensor.type());
    for (const TestTensor& tensor : expected) output_types.push_back(tensor.type());
    for (const cpu::KernelOption& option :
         cpu::kernel_options({op, input_types, output_types, attributes}, dispatch)) {
      if (option.refusal) continue;
      std::vector<TestTensor> outputs;
      std::vector<const TestTensor*> input_pointers, output_pointers;
      for (const TestTensor& tensor : inputs) input_pointers.push_back(&tensor);
      for (const OperandType& type : output_types) outputs.emplace_back(type);
      for (const auto& [output, input] : shared_storage(op, attributes, inputs.size(), outputs.size())) {
        outputs[output] = inputs[input].copy();
        input_pointers[input] = &outputs[output];
      }
      for (const TestTensor& tensor : outputs) output_pointers.push_back(&tensor);
      cpu::run_operation(op, attributes, input_pointers, output_pointers,
                         {dispatch, option.entry->implementation});
      for (size_t k = 0; k < outputs.size(); ++k)
        EXPECT_LE(error(outputs[k].values(), expected[k].values()), call.at("tolerance").get<double>())
            << op << " by " << option.entry->implementation << ": " << call.at("outputs")[k];
    }
  }
}

std::string case_name(const testing::TestParamInfo<size_t>& tested) {
  return cases()[tested.param].at("case");
}

INSTANTIATE_TEST_SUITE_P(Cases, OperationsParityTest, testing::Range(size_t{0}, cases().size()), case_name);

}  // namespace
}  // namespace snug
