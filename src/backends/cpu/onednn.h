// backends/cpu/onednn.h — every call Snug makes to oneDNN
//
// Two kinds of product: `sgemm`, on every class of processor, and `Matmul`, which multiplies bf16 directly
// where the processor can. Both are parallel over the OpenMP threads of the caller, and run on the calling
// thread alone inside a parallel region. `sgemm` allocates packing buffers of its own inside the library
// (sgemm_buffer_bytes: they belong to the reserve); `Matmul` takes its scratch from the caller. Works with oneDNN 2 and 3.
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
// the old content of C. Any of M, N, K may be 0. More than kSgemmColumns columns are multiplied in panels of at most that many: on either class
// no difference in speed was measured (1024 × 50257 × 768).
constexpr int64_t kSgemmColumns = 3072;
void sgemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
           const float* B, int64_t ldb, float beta, float* C, int64_t ldc);

// Packing buffers that one sgemm with N columns takes from the heap while it runs, all threads together, at most: each thread may hold the
// columns of a whole call (it does where rows alone are divided among threads, and about its share of them otherwise), which is why wide products
// are made in panels, by a depth of 192 (AVX2) or 384. Measured with 2.6.3 (onednn_test.cc); without panels N 50304 took 15 MiB on AVX2.
Bytes sgemm_buffer_bytes(int64_t N, CpuClass cpu_class, int threads);

// One dense product C (m,n) = op(A) · op(B), or C += that.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // stored (k,m); stored (n,k)
  DType a = DType::kBF16, b = DType::kBF16, c = DType::kF32;
  bool accumulate = false;  // adds to C, which is f32 then
  int64_t stride_a = 0;     // elements from one stored row of A to the next; 0: dense
};

// A product prepared once: a oneDNN matmul primitive with its scratch in the caller's hands.
class Matmul {
 public:
  // None when oneDNN can make the primitive on this processor; otherwise why not.
  static std::optional<std::string> refusal(const MatmulShape& shape);
  // Scratch of `run` on so many threads. Throws InternalError where `refusal` speaks.
  static Bytes scratch_bytes(const MatmulShape& shape, int threads);

  Matmul(const MatmulShape& shape, int threads);
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;
  ~Matmul();

  // `scratch` holds scratch_bytes(shape), aligned to 64.
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// None where a run of this class multiplies bf16 directly, by oneDNN; otherwise why not.
std::optional<std::string> bf16_product_refusal(const Dispatch& dispatch);

// "2.6.3"
std::string onednn_version();

// Runs products on all `threads` OpenMP threads together and on each of them alone, so that the library's
// buffers and code exist. Returns the rate of a 1024³ f32 product in FLOP/s (multiply and add count as two),
// the best of a few.
double warm_up_products(int threads);

}  // namespace snug::cpu
