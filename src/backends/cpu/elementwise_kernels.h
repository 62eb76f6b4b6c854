// backends/cpu/elementwise_kernels.h — what the files of fast kernels share: type refusal, construction, and
// who makes what
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/cpu/kernel.h"

namespace snug::cpu {

// Every floating operand must be f32, bf16 or f16.
std::optional<std::string> element_type_refusal(const OpQuery& query, const Dispatch& dispatch);
Bytes no_scratch(const OpQuery& query, const Dispatch& dispatch);

template <typename K>
std::unique_ptr<Kernel> make_kernel(const Binding& binding) {
  return std::make_unique<K>(binding);
}

std::unique_ptr<Kernel> make_rotary_table(const Binding& binding);      // elementwise_rotary.cc
std::unique_ptr<Kernel> make_rotary(const Binding& binding);            // elementwise_rotary.cc
std::unique_ptr<Kernel> make_embedding(const Binding& binding);         // elementwise_embedding.cc
std::unique_ptr<Kernel> make_embedding_dtable(const Binding& binding);  // elementwise_embedding.cc

}  // namespace snug::cpu
