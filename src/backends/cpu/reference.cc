#include "backends/cpu/reference.h"

#include "backends/cpu/fp8.h"

namespace snug::cpu {

std::span<const KernelEntry> reference_kernels() {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> entries;
    for (std::span<const KernelEntry> family :
         {reference::elementwise_entries(), reference::product_entries(), reference::mlp_entries(),
          reference::norm_entries(), reference::attention_entries(), reference::head_entries(),
          reference::fp8_entries(), reference::update_entries()})
      entries.insert(entries.end(), family.begin(), family.end());
    return entries;
  }();
  return all;
}

}  // namespace snug::cpu
