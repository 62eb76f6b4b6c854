#include "backends/cpu/kernel_list.h"

#include "backends/cpu/fp8.h"
#include "base/errors.h"

namespace snug::cpu {

std::vector<KernelOption> kernel_options(const OpQuery& query, const Dispatch& dispatch) {
  std::vector<KernelOption> options;
  for (std::span<const KernelEntry> entries :
       {product_kernels(), mlp_kernels(), attention_kernels(), head_kernels(), elementwise_kernels(),
        norm_kernels(), fp8_kernels(), update_kernels(), reference_kernels()})
    for (const KernelEntry& entry : entries)
      if (entry.op == query.op) options.push_back({&entry, entry.refusal(query, dispatch)});
  return options;
}

std::string refusals_text(const std::vector<KernelOption>& options) {
  std::string text;
  for (const KernelOption& option : options)
    if (option.refusal)
      text +=
          fmt::format("{}{}: {}", text.empty() ? "" : "; ", option.entry->implementation, *option.refusal);
  return text;
}

const KernelEntry& pick_kernel(const OpQuery& query, const Dispatch& dispatch,
                               std::string_view implementation) {
  const std::vector<KernelOption> options = kernel_options(query, dispatch);
  for (const KernelOption& option : options)
    if (!option.refusal && (implementation.empty() || option.entry->implementation == implementation))
      return *option.entry;
  throw_internal("{}: no {}kernel accepts{}{}", query.op,
                 implementation.empty() ? "" : std::string(implementation) + " ", options.empty() ? "" : ": ",
                 refusals_text(options));
}

}  // namespace snug::cpu
