// backends/cpu/kernel.h — one bound operation of the CPU backend, and the ordered list from which it is picked
//
// For each operation the list holds implementations, fastest first and the plain reference last; the first whose `refusal` is
// silent wins, and every refusal says why (`snug inspect --kernels` prints them). A kernel is made once per operation of a plan: it
// may allocate in its constructor and never in `run`. Its scratch is what `scratch_bytes` said for the same query.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "plan/target.h"

namespace snug::cpu {

// One operand in the arena. `data` is aligned to Target::alignment().
struct Operand {
  std::byte* data = nullptr;
  OperandType type;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  int64_t elements() const { return type.shape.elements(); }
};

// Everything a kernel is made from. Operand addresses are final.
struct Binding {
  std::string_view op;    // docs/operations.md
  std::string_view name;  // logical name, for messages
  const Attributes& attributes;
  std::vector<Operand> inputs, outputs;
  std::span<std::byte> scratch;  // empty when scratch_bytes is 0
  const Dispatch& dispatch;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // `overwrite`: ignore the accumulator's old content (first repetition of an operation with overwrite_first=1).
  virtual void run(bool overwrite) = 0;
};

struct KernelEntry {
  std::string_view op;
  std::string_view implementation;  // "reference", "highway", "onednn", "blocked"; with _bf16: multiplies bf16
  std::optional<std::string> (*refusal)(const OpQuery&, const Dispatch&);
  Bytes (*scratch_bytes)(const OpQuery&, const Dispatch&);
  std::unique_ptr<Kernel> (*make)(const Binding&);
};

// One list per file of kernels; cpu/kernel_list.cc puts them in order.
std::span<const KernelEntry> product_kernels();      // linear*, their gradients (oneDNN)
std::span<const KernelEntry> mlp_kernels();          // mlp*: chunked
std::span<const KernelEntry> attention_kernels();    // attention*, blocked
std::span<const KernelEntry> head_kernels();         // head_loss*, last_logits: chunked
std::span<const KernelEntry> elementwise_kernels();  // add, gelu*, swiglu*, dropout, rotary*, embedding*, fill, narrow_weight
std::span<const KernelEntry> norm_kernels();         // layer_norm*, rms_norm*, linear_dbias (column sums)
std::span<const KernelEntry>
update_kernels();  // narrow_gradient, sum_squares, update_control, update_gate, adamw
std::span<const KernelEntry> reference_kernels();    // every operation, plain loops, f64/f32/bf16, any shape

// The entry that `query` gets; throws InternalError listing every implementation's refusal when none accepts.
// `implementation` non-empty: only that one.
const KernelEntry& pick_kernel(const OpQuery& query, const Dispatch& dispatch, std::string_view implementation = {});

}  // namespace snug::cpu
