// snug_bench_kernels — rates of products, attention and head as shares of a large f32 product in the same process
//
// Usage: snug_bench_kernels [THREADS] [FILTER]    FILTER: only lines that contain it
//
// The rate of a shared machine moves by several percent within minutes, so each line alternates between the kernel and a 2048³ product and
// compares the best of each. FLOPs are needed ones: attention counts half of the square.
#include <hwy/aligned_allocator.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/target.h"

namespace {

using namespace snug;
using namespace snug::cpu;

using Storage = hwy::AlignedFreeUniquePtr<std::byte[]>;

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Seconds and FLOPs of the plain product.
constexpr int64_t kPeakSize = 2048;
constexpr double kPeakFlops = 2.0 * kPeakSize * kPeakSize * kPeakSize;
double peak_seconds() {
  static const std::vector<float> a(kPeakSize * kPeakSize, 1.0f), b(kPeakSize * kPeakSize, 0.5f);
  static std::vector<float> c(kPeakSize * kPeakSize);
  return seconds_of([] {
    sgemm(false, false, kPeakSize, kPeakSize, kPeakSize, a.data(), kPeakSize, b.data(), kPeakSize, 0,
          c.data(), kPeakSize);
  });
}

struct Case {
  std::string label, op;
  Attributes attributes;
  std::vector<OperandType> inputs, outputs;
  double flops;
};

// Operands hold 1/4; integers hold 0.
Operand make_operand(const OperandType& type, std::vector<Storage>& storage) {
  const auto bytes = static_cast<size_t>(type.bytes().value);
  storage.push_back(hwy::AllocateAligned<std::byte>(bytes));
  const Operand operand{storage.back().get(), type};
  std::memset(operand.data, 0, bytes);
  for (int64_t i = 0; i < operand.elements(); ++i) {
    if (type.dtype == DType::kF32) operand.as<float>()[i] = 0.25f;
    if (type.dtype == DType::kBF16) operand.as<uint16_t>()[i] = 0x3E80;
  }
  return operand;
}

void measure(const Case& c, const Dispatch& dispatch) {
  std::vector<Storage> storage;
  Binding binding{c.op, c.label, c.attributes, {}, {}, {}, dispatch};
  for (const OperandType& type : c.inputs) binding.inputs.push_back(make_operand(type, storage));
  for (const OperandType& type : c.outputs) binding.outputs.push_back(make_operand(type, storage));
  const OpQuery query{c.op, c.inputs, c.outputs, c.attributes};
  const KernelEntry& entry = pick_kernel(query, dispatch);
  const auto scratch_bytes = static_cast<size_t>(entry.scratch_bytes(query, dispatch).value);
  const Storage scratch = hwy::AllocateAligned<std::byte>(scratch_bytes + 64);
  binding.scratch = {scratch.get(), scratch_bytes};
  const auto kernel = entry.make(binding);
  kernel->run(false);
  double seconds = std::numeric_limits<double>::infinity(), peak = seconds;
  // At least five turns and half a second of the kernel.
  double spent = 0;
  for (int turn = 0; turn < 5 || (spent < 0.5 && turn < 50); ++turn) {
    peak = std::min(peak, peak_seconds());
    const double own = seconds_of([&] { kernel->run(false); });
    spent += own;
    seconds = std::min(seconds, own);
  }
  const double rate = c.flops / seconds, peak_rate = kPeakFlops / peak;
  fmt::print("{:46} {:12} {:7.1f} GF/s  {:.3f} of {:6.1f}  scratch {}\n", c.label, entry.implementation,
             rate / 1e9, rate / peak_rate, peak_rate / 1e9,
             format_bytes(Bytes(static_cast<int64_t>(scratch_bytes))));
  std::fflush(stdout);
}

// `weight`: "oi" as in Llama's files, "io" as in GPT-2's.
std::vector<Case> products(DType a, const std::string& weight, int64_t rows, int64_t in, int64_t out) {
  const std::string size = fmt::format(" {} {} {}x{}x{}", dtype_name(a), weight, rows, out, in);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  const Attributes attributes{{"weight", weight},
                              {"bias", int64_t{1}},
                              {"approximate", std::string("tanh")},
                              {"accumulate", int64_t{1}}};
  const OperandType x{a, {1, rows, in}}, y{a, {1, rows, out}}, b{a, {out}},
      w{a, weight == "oi" ? Shape{out, in} : Shape{in, out}}, d_w{DType::kF32, w.shape};
  return {{"linear" + size, "linear", attributes, {x, w, b}, {y}, flops},
          {"linear_gelu" + size, "linear_gelu", attributes, {x, w, b}, {y, y}, flops},
          {"linear_add" + size, "linear_add", attributes, {x, w, b, y}, {y}, flops},
          {"linear_dx" + size, "linear_dx", attributes, {y, w}, {x}, flops},
          {"linear_dweight" + size, "linear_dweight", attributes, {x, y, d_w}, {d_w}, flops}};
}

std::vector<Case> attention(DType a, int64_t B, int64_t T, int64_t H, int64_t K, int64_t D) {
  const std::string size = fmt::format(" {} B{} T{} H{} K{} D{}", dtype_name(a), B, T, H, K, D);
  const double pairs = static_cast<double>(B * H * T * (T + 1)) / 2 * static_cast<double>(D);
  const Attributes attributes{{"heads", H}, {"kv_heads", K}, {"scale", 0.125}, {"dropout", 0.0}};
  const OperandType qkv{a, {B, T, (H + 2 * K) * D}}, y{a, {B, T, H * D}}, lse{DType::kF32, {B, H, T}},
      starts{DType::kI32, {B, T}};
  return {{"attention_qkv" + size, "attention_qkv", attributes, {qkv, starts}, {y, lse}, 4 * pairs},
          {"attention_qkv_backward" + size,
           "attention_qkv_backward",
           attributes,
           {y, qkv, y, lse, starts},
           {qkv},
           8 * pairs}};  // four products; the fifth, which makes the probabilities again, is no needed work
}

std::vector<Case> head(DType a, int64_t rows, int64_t C, int64_t V, int64_t chunk) {
  const std::string size = fmt::format(" {} {}x{}x{} chunk {}", dtype_name(a), rows, V, C, chunk);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(C) * static_cast<double>(V);
  const Attributes attributes{{"chunk", chunk}, {"dweight", int64_t{1}}, {"accumulate", int64_t{1}}};
  const OperandType x{a, {1, rows, C}}, w{a, {V, C}}, targets{DType::kI32, {1, rows}}, one{DType::kF32, {1}},
      d_w{DType::kF32, {V, C}};
  return {{"head_loss" + size, "head_loss", attributes, {x, w, targets, one}, {one}, flops},
          {"head_loss_gradient" + size,
           "head_loss_gradient",
           attributes,
           {x, w, targets, one, d_w},
           {one, x, d_w},
           3 * flops}};
}

}  // namespace

int main(int argc, char** argv) {
  const Dispatch dispatch = choose_dispatch(argc > 1 ? std::atoi(argv[1]) : 2);
  const std::string filter = argc > 2 ? argv[2] : "";
  warm_up(dispatch);
  fmt::print("{}, {} threads ({})\n", cpu_class_name(dispatch.cpu_class), dispatch.threads, dispatch.reason);
  for (DType a : {DType::kF32, DType::kBF16})
    for (const std::vector<Case>& cases :
         {products(a, "io", 4096, 768, 2304), products(a, "io", 4096, 768, 768),
          products(a, "io", 4096, 768, 3072), products(a, "io", 4096, 3072, 768),
          products(a, "oi", 4096, 576, 1536), products(a, "oi", 4096, 1536, 576),
          products(a, "oi", 2048, 256, 768), products(a, "oi", 512, 128, 128),
          attention(a, 4, 1024, 12, 12, 64), attention(a, 2, 1024, 9, 3, 64), attention(a, 8, 256, 8, 8, 32),
          head(a, 1024, 768, 50304, 1024)})
      for (const Case& c : cases)
        if (c.label.find(filter) != std::string::npos) measure(c, dispatch);
}
