// Fast kernels of saved activations in 8 bits: fp8_encode and fp8_decode.
//
// Parallel over blocks; a block's bits depend on its own numbers alone. Every step is exact but the one rounding to a code, so the
// bits are the reference's.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fp8_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/fp8_vector.h"

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(encode_e4m3);
HWY_EXPORT(encode_e5m2);
HWY_EXPORT(decode_e4m3);
HWY_EXPORT(decode_e5m2);

// Elements below which another thread costs more than it saves.
constexpr int64_t kSmallestRange = 16 * 1024;

class Fp8Kernel : public Kernel {
 public:
  Fp8Kernel(const Binding& binding, const Operand& numbers, const Operand& codes, const Operand& scales)
      : operands_{.numbers = numbers.data,
                  .codes = codes.as<uint8_t>(),
                  .scales = scales.as<float>(),
                  .activation = numbers.type.dtype,
                  .elements = numbers.elements(),
                  .block = binding.attributes.integer("block")},
        blocks_(scales.elements()),
        threads_(binding.dispatch.threads) {
    const bool encodes = binding.op == "fp8_encode", is_e4m3 = binding.attributes.word("format") == "e4m3";
    if (encodes)
      range_ = is_e4m3 ? HWY_DYNAMIC_DISPATCH(encode_e4m3) : HWY_DYNAMIC_DISPATCH(encode_e5m2);
    else
      range_ = is_e4m3 ? HWY_DYNAMIC_DISPATCH(decode_e4m3) : HWY_DYNAMIC_DISPATCH(decode_e5m2);
  }
  void run(bool) override {
    parallel_ranges(threads_, blocks_, 1, ceil_div(kSmallestRange, operands_.block),
                    [this](int64_t first, int64_t last) { range_(operands_, first, last); });
  }

 private:
  Fp8Operands operands_;
  int64_t blocks_;
  int threads_;
  void (*range_)(const Fp8Operands&, int64_t, int64_t) = nullptr;
};

std::unique_ptr<Kernel> make_encode(const Binding& binding) {
  return std::make_unique<Fp8Kernel>(binding, binding.inputs.at(0), binding.outputs.at(0),
                                     binding.outputs.at(1));
}
std::unique_ptr<Kernel> make_decode(const Binding& binding) {
  return std::make_unique<Fp8Kernel>(binding, binding.outputs.at(0), binding.inputs.at(0),
                                     binding.inputs.at(1));
}

}  // namespace

std::span<const KernelEntry> fp8_kernels() {
  static const KernelEntry kEntries[] = {
      {"fp8_encode", "highway", &element_type_refusal, &no_scratch, &make_encode},
      {"fp8_decode", "highway", &element_type_refusal, &no_scratch, &make_decode},
  };
  return kEntries;
}

}  // namespace snug::cpu
