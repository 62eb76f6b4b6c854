// backends/cpu/kernel_list.h — which implementation an operation gets, and why not a faster one
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/kernel.h"

namespace snug::cpu {

// One implementation that an operation could have had.
struct KernelOption {
  const KernelEntry* entry = nullptr;
  std::optional<std::string> refusal;  // none: it accepts
};

// Every implementation of the operation, fastest first, with its answer to `query`. Empty for an operation
// the CPU backend does not know.
std::vector<KernelOption> kernel_options(const OpQuery& query, const Dispatch& dispatch);

// "onednn_bf16: bf16 products need …; reference: …": the refusals among `options`.
std::string refusals_text(const std::vector<KernelOption>& options);

}  // namespace snug::cpu
