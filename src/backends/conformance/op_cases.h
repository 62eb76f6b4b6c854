// backends/conformance/op_cases.h — the one table of operation cases every backend is tested with
//
// A case is a short chain of calls on named tensors: a forward operation and what follows from it. The values of given tensors are
// drawn from a fixed seed; every other tensor is the output of an earlier call. Types are letters of docs/operations.md (A, W, f32, …), so one
// case runs with activations of f32, bf16, f16 and, for gradient checks, f64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/attributes.h"
#include "base/operand_type.h"

namespace snug::conformance {

enum class Element {
  kActivation,  // A or W
  kStatistic,   // f32; f64 where A is f64
  kDouble,      // f64
  kIndex,       // i32
  kWord,        // u32
  kByte,        // u8
};
DType element_dtype(Element element, DType activation);

// How a given tensor is filled.
struct Values {
  enum class Kind {
    kNormal,          // normal, deviation `scale`
    kPositive,        // |normal|·scale + 1e−3
    kList,            // `list`, repeated
    kIndices,         // [0, bound), with 0 and bound − 1 among them
    kTargets,         // like kIndices, every third −100
    kPositions,       // (B,T): distance from the start of the position's document
    kDocumentStarts,  // (B,T): sample b has a boundary at every position of `list` + b
    kRandomBits,      // any word
  };
  Kind kind = Kind::kNormal;
  double scale = 1;
  int64_t bound = 0;
  std::vector<double> list = {};
};

struct CaseTensor {
  std::string name;
  Element element = Element::kActivation;
  Shape shape;
  Values values = {};  // given tensors only
};

struct Call {
  std::string op;
  Attributes attributes;
  std::vector<std::string> inputs;  // names of given tensors or of earlier outputs
  std::vector<CaseTensor> outputs;
  // {output position, input position}
  std::vector<std::pair<int, int>> must_alias = {}, may_alias = {};
  // Largest error, as a share of |expected| + mean |expected| of the tensor.
  double tolerance_f32 = 2e-5, tolerance_bf16 = 8e-3;
  // f16 has three bits more than bf16.
  double tolerance(DType activation) const {
    if (activation == DType::kF16) return std::max(tolerance_f32, tolerance_bf16 / 8);
    return activation == DType::kBF16 ? tolerance_bf16 : tolerance_f32;
  }
  // Needed multiplications and additions; 0 where moving bytes is the work.
  double flops = 0;
};

// d(Σ output·d_output)/d(input) by central differences of calls[0] in f64.
struct GradientCheck {
  std::string output, d_output;                                // d_output empty: the output is a loss
  std::vector<std::pair<std::string, std::string>> gradients;  // {input, tensor holding its gradient}
};

struct OpCase {
  std::string name;  // unique, [a-z0-9_]+
  std::vector<CaseTensor> given;
  std::vector<Call> calls;
  GradientCheck gradient = {};  // no pairs: nothing to check
  std::vector<DType> activations = {DType::kF32, DType::kBF16, DType::kF16};
};

// Small and ragged shapes of every operation.
std::vector<OpCase> op_cases();

// Shapes of a GPT-2 124M or SmolLM2-135M step with 1024 tokens, for measuring.
std::vector<OpCase> speed_cases();

}  // namespace snug::conformance
