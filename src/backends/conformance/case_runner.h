// backends/conformance/case_runner.h — for tests: the tensors of a case, and one call of it by a chosen implementation
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/conformance/op_cases.h"
#include "backends/cpu/kernel_list.h"
#include "backends/cpu/test_operation.h"

namespace snug::conformance {

using cpu::TestTensor;
using Tensors = std::map<std::string, TestTensor>;

// The given tensors of a case, the same for the same names.
Tensors given_tensors(const OpCase& op_case, DType activation);

// How one call is made.
struct CallOptions {
  cpu::Dispatch dispatch;
  std::string_view implementation = "reference";
  bool overwrite = false;
  // Beside call.must_alias: {output, input} that share storage.
  std::optional<std::pair<int, int>> alias = {};
};

// Outputs of one call, in order; inputs that no output shares storage with are checked to be unchanged. Outputs start as bytes of
// 0xFF. Throws InternalError for a write outside an operand or the scratch, or to an input.
std::vector<TestTensor> run_call(const Call& call, const Tensors& tensors, DType activation,
                                 const CallOptions& options);

// Runs calls in order and adds their outputs to `tensors`.
void run_chain(const OpCase& op_case, DType activation, const CallOptions& options, Tensors& tensors);

// Every implementation of a call with its refusal, fastest first.
std::vector<cpu::KernelOption> implementations(const Call& call, const Tensors& tensors, DType activation,
                                               const cpu::Dispatch& dispatch);

// The largest |a − b| / (|b| + mean |b|); equal values, infinities and NaNs among them, differ by 0.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

// Time of one run of a call, the mean over at least a fifth of a second. On a machine that others use, processor time is the steadier.
struct Measured {
  double seconds = 0, processor_seconds = 0;  // elapsed; of all threads together
};
Measured measure(const Call& call, const Tensors& tensors, DType activation, const CallOptions& options);

}  // namespace snug::conformance
