#include <gtest/gtest.h>

#include "backends/cpu/test_operation.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

struct MlpCase {
  DType dtype;
  const char *activation, *weight;
  bool bias;
};

void PrintTo(const MlpCase& c, std::ostream* to) {
  *to << dtype_name(c.dtype) << "_" << c.activation << "_" << c.weight << (c.bias ? "_bias" : "");
}

// 2 · 75 rows of 24 channels; 40 features.
class MlpKernels : public testing::TestWithParam<MlpCase> {
 protected:
  static constexpr int64_t kRows = 150, kC = 24, kF = 40;
  const MlpCase& c = GetParam();
  Dispatch dispatch = choose_dispatch(2);
  MlpOperands positions{attributes(1)};
  std::vector<TestTensor> operands = make_operands();
  TestTensor d_y = TestTensor::random({c.dtype, {2, kRows / 2, kC}}, 90);

  Attributes attributes(int64_t chunk) const {
    return {{"activation", std::string(c.activation)},
            {"weight", std::string(c.weight)},
            {"bias", int64_t{c.bias}},
            {"chunk", chunk}};
  }
  Attributes weight() const { return {{"weight", std::string(c.weight)}}; }
  Attributes gelu() const {
    return {{"approximate", std::string(c.activation) == "gelu_tanh" ? "tanh" : "none"}};
  }
  Attributes linear() const {
    Attributes of = weight();
    of.set("bias", int64_t{c.bias});
    return of;
  }

  std::vector<TestTensor> make_operands() const {
    std::vector<TestTensor> made;
    made.push_back(TestTensor::random({c.dtype, {2, kRows / 2, kC}}, 1));
    for (size_t product = 0; product < positions.products(); ++product) {
      const bool is_down = product == positions.down();
      const int64_t in = is_down ? kF : kC, out = is_down ? kC : kF;
      const Shape shape = std::string(c.weight) == "oi" ? Shape{out, in} : Shape{in, out};
      made.push_back(TestTensor::random({c.dtype, shape}, 10 + static_cast<uint32_t>(product), 0.2));
      if (c.bias) made.push_back(TestTensor::random({c.dtype, {out}}, 20 + static_cast<uint32_t>(product)));
    }
    return made;
  }
  std::vector<const TestTensor*> pointers() const {
    std::vector<const TestTensor*> all;
    for (const TestTensor& operand : operands) all.push_back(&operand);
    return all;
  }

  // y and the gradients of all operands, in their order.
  struct Outputs {
    std::vector<TestTensor> all;
    void expect_bits_of(const Outputs& other, const std::string& what) const {
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(all[i].same_bits(other.all[i])) << "output " << i << " " << what;
    }
  };
  Outputs empty_outputs() const {
    Outputs outputs;
    outputs.all.emplace_back(operands[0].type());
    for (size_t i = 0; i < operands.size(); ++i)
      outputs.all.emplace_back(OperandType{i == 0 ? c.dtype : DType::kF32, operands[i].type().shape});
    return outputs;
  }

  Outputs by_chunks(int64_t chunk, const TestRun& how) const {
    Outputs outputs = empty_outputs();
    run_operation("mlp", attributes(chunk), pointers(), {outputs.all.data()}, how);
    Attributes gradient = attributes(chunk);
    gradient.set("gradients", (int64_t{1} << positions.count()) - 1);
    gradient.set("accumulate", int64_t{0});
    std::vector<const TestTensor*> inputs = pointers(), made;
    inputs.insert(inputs.begin(), &d_y);
    for (size_t i = 1; i < outputs.all.size(); ++i) made.push_back(&outputs.all[i]);
    run_operation("mlp_gradient", gradient, inputs, made, how);
    return outputs;
  }

  // The plain operations, one after another, on all rows.
  Outputs by_operations() const {
    const TestRun how{dispatch, ""};
    Outputs outputs = empty_outputs();
    const OperandType hidden{c.dtype, {2, kRows / 2, kF}};
    const auto product = [&](size_t which, const TestTensor& x, const TestTensor& y) {
      std::vector<const TestTensor*> inputs{&x, &operands[positions.weight(which)]};
      if (c.bias) inputs.push_back(&operands[positions.bias_of(which)]);
      run_operation("linear", linear(), inputs, {&y}, how);
    };
    const auto parameters = [&](size_t which, const TestTensor& x, const TestTensor& d) {
      Attributes of = weight();
      of.set("accumulate", int64_t{0});
      run_operation("linear_dweight", of, {&x, &d}, {&outputs.all[1 + positions.weight(which)]}, how);
      if (c.bias)
        run_operation("linear_dbias", {{"accumulate", int64_t{0}}}, {&d},
                      {&outputs.all[1 + positions.bias_of(which)]}, how);
    };
    const TestTensor &x = operands[0], first(hidden), second(hidden), h(hidden), d_h(hidden), d_first(hidden),
                     d_second(hidden);
    product(0, x, first);
    if (positions.gated) {
      product(1, x, second);
      run_operation("swiglu", {}, {&first, &second}, {&h}, how);
    } else {
      run_operation("gelu", gelu(), {&first}, {&h}, how);
    }
    product(positions.down(), h, outputs.all[0]);
    parameters(positions.down(), h, d_y);
    run_operation("linear_dx", weight(), {&d_y, &operands[positions.weight(positions.down())]}, {&d_h}, how);
    if (positions.gated)
      run_operation("swiglu_backward", {}, {&d_h, &first, &second}, {&d_first, &d_second}, how);
    else
      run_operation("gelu_backward", gelu(), {&d_h, &first}, {&d_first}, how);
    parameters(0, x, d_first);
    if (!positions.gated) {
      run_operation("linear_dx", weight(), {&d_first, &operands[positions.weight(0)]}, {&outputs.all[1]},
                    how);
      return outputs;
    }
    parameters(1, x, d_second);
    const TestTensor of_gate(x.type()), of_up(x.type());
    run_operation("linear_dx", weight(), {&d_second, &operands[positions.weight(1)]}, {&of_up}, how);
    run_operation("linear_dx", weight(), {&d_first, &operands[positions.weight(0)]}, {&of_gate}, how);
    run_operation("add", {}, {&of_up, &of_gate}, {&outputs.all[1]}, how);
    return outputs;
  }
};

TEST_P(MlpKernels, OneChunkHasTheBitsOfThePlainOperations) {
  const Outputs plain = by_operations();
  by_chunks(kRows, {dispatch, "chunked"}).expect_bits_of(plain, "of one chunk");
  by_chunks(1000, {dispatch, "chunked"}).expect_bits_of(plain, "of a chunk with room");
}

TEST_P(MlpKernels, ChunksAgreeWithTheWhole) {
  const Outputs plain = by_operations();
  for (int64_t chunk : {1, 7, 64, 75}) {
    const Outputs chunked = by_chunks(chunk, {dispatch, "chunked"});
    for (size_t i = 0; i < plain.all.size(); ++i)
      EXPECT_LT(largest_difference(chunked.all[i].values(), plain.all[i].values()),
                c.dtype == DType::kF32 ? 1e-5 : 2e-2)
          << "output " << i << ", chunks of " << chunk;
  }
}

TEST_P(MlpKernels, RepeatTheirBitsOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 3}) {
    Dispatch on = dispatch;
    on.threads = threads;
    omp_set_num_threads(
        threads);  // the library says what scratch it takes by this, as the backend has it set
    const Outputs first = by_chunks(32, {on, "chunked"});
    by_chunks(32, {on, "chunked"}).expect_bits_of(first, fmt::format("again on {} threads", threads));
  }
}

// What lies between the products exists for a chunk, however many rows there are.
TEST_P(MlpKernels, ScratchFollowsTheChunk) {
  const auto scratch = [&](const char* op, int64_t rows, int64_t chunk) {
    Attributes of = attributes(chunk);
    std::vector<OperandType> inputs, outputs;
    for (const TestTensor& operand : operands) inputs.push_back(operand.type());
    inputs[0].shape = Shape{1, rows, kC};
    outputs.push_back(inputs[0]);
    if (std::string(op) == "mlp_gradient") {
      of.set("gradients", int64_t{1});
      inputs.insert(inputs.begin(), inputs[0]);
    }
    const OpQuery query{op, inputs, outputs, of};
    return pick_kernel(query, dispatch, "chunked").scratch_bytes(query, dispatch);
  };
  for (const char* op : {"mlp", "mlp_gradient"}) {
    EXPECT_EQ(scratch(op, 64, 32), scratch(op, 64000, 32)) << op;
    EXPECT_LT(scratch(op, 64000, 32), scratch(op, 64000, 64000)) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MlpKernels,
                         testing::Values(MlpCase{DType::kF32, "gelu_tanh", "io", true},
                                         MlpCase{DType::kF32, "gelu_none", "oi", false},
                                         MlpCase{DType::kF32, "swiglu", "oi", false},
                                         MlpCase{DType::kBF16, "gelu_tanh", "io", true},
                                         MlpCase{DType::kBF16, "swiglu", "oi", false},
                                         MlpCase{DType::kF16, "gelu_tanh", "io", true},
                                         MlpCase{DType::kF16, "swiglu", "io", true}));

}  // namespace
}  // namespace snug::cpu
