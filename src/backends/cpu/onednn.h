// backends/cpu/onednn.h — every call Snug makes to oneDNN
//
// Two kinds of product: `sgemm`, on every class of processor, and `Matmul`, which multiplies bf16 directly
// where the processor can. Both are parallel over the OpenMP threads of the caller, and run on the calling
// thread alone inside a parallel region. `sgemm` allocates packing buffers of its own inside the library
// (about 8 MiB a thread, constant over shapes: they belong to the reserve, and `warm_up_products` makes the
// library take them); `Matmul` takes its scratch from the caller. Works with oneDNN 2 and 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/cpu/dispatch.h"
#include "base/bytes.h"
#include "base/dtype.h"

namespace snug::cpu {

// The best class whose products oneDNN will use, after ONEDNN_MAX_CPU_ISA; none when it is held below AVX2
// (products still run, slowly).
std::optional<CpuClass> onednn_class();

// Holds oneDNN down to `cpu_class`. Effective only before the process's first product: afterwards oneDNN
// keeps what it has chosen. Returns false in that case.
bool limit_onednn(CpuClass cpu_class);

// C (M,N) = op(A) (M,K) · op(B) (K,N) + beta · C, all f32 and row-major with leading dimensions (elements
// between rows) lda, ldb, ldc. transpose_a: A is stored (K,M); transpose_b: B is stored (N,K). beta 0 ignores
// the old content of C. Any of M, N, K may be 0.
void sgemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
           const float* B, int64_t ldb, float beta, float* C, int64_t ldc);

// Packing buffers that one sgemm with N columns takes from the heap while it runs, all threads together. It is blocked by 10,000 columns and, in
// depth, by 192 (AVX2) or 384: measured with 2.6.3 on AVX2, two threads: N 8192 6.4 MiB, 12288 9.4, 50304 15.2.
Bytes sgemm_buffer_bytes(int64_t N, CpuClass cpu_class, int threads);

// One dense product C (m,n) = op(A) · op(B), or C += that.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // stored (k,m); stored (n,k)
  DType a = DType::kBF16, b = DType::kBF16, c = DType::kF32;
  bool accumulate = false;  // adds to C, which is f32 then
};

// A product prepared once: a oneDNN matmul primitive with its scratch in the caller's hands.
class Matmul {
 public:
  // None when oneDNN can make the primitive on this processor; otherwise why not.
  static std::optional<std::string> refusal(const MatmulShape& shape);
  // Scratch of `run`. Throws InternalError where `refusal` speaks.
  static Bytes scratch_bytes(const MatmulShape& shape);

  explicit Matmul(const MatmulShape& shape);
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;
  ~Matmul();

  // `scratch` holds scratch_bytes(shape), aligned to 64.
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "2.6.3"
std::string onednn_version();

// Runs products on all `threads` OpenMP threads together and on each of them alone, so that the library's
// buffers and code exist. Returns the rate of a 1024³ f32 product in FLOP/s (multiply and add count as two),
// the best of a few.
double warm_up_products(int threads);

}  // namespace snug::cpu
