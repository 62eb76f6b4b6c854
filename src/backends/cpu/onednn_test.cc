// What oneDNN takes inside a product, against what is planned for it.
#include "backends/cpu/onednn.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <random>
#include <vector>

#include "base/library_pool.h"

namespace snug::cpu {
namespace {

#if !defined(__SANITIZE_ADDRESS__)
// Gives back all blocks of the pool that no product holds, and says how many bytes they had.
Bytes empty_pool() {
  const library_pool::Locked locked;
  Bytes total;
  for (size_t i = 0; i < library_pool::pool.count; ++i) {
    library_pool::Block& block = library_pool::pool.blocks[i];
    EXPECT_FALSE(block.taken);
    munmap(block.address, block.size);
    total += Bytes(static_cast<int64_t>(block.size));
  }
  library_pool::pool.count = 0;
  return total;
}

TEST(Sgemm, TakesNoMoreThanIsPlanned) {
  const std::optional<CpuClass> cpu_class = onednn_class();
  if (!cpu_class) GTEST_SKIP() << "oneDNN is held below AVX2";
  constexpr int64_t kDepth = 400;  // more takes no more
  Bytes most;
  for (int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    for (int64_t M : {64, 1024, 3000})
      for (int64_t N : {64, 300, 768, 2048, 4096, 9000})
        for (bool transpose_a : {false, true})
          for (bool transpose_b : {false, true}) {
            if (M * N > 6'200'000) continue;  // takes long, and M matters little
            const std::vector<float> a(static_cast<size_t>(M * kDepth), 1.0F),
                b(static_cast<size_t>(N * kDepth), 1.0F);
            std::vector<float> c(static_cast<size_t>(M * N));
            empty_pool();
            sgemm(transpose_a, transpose_b, M, N, kDepth, a.data(), transpose_a ? M : kDepth, b.data(),
                  transpose_b ? kDepth : N, 0.0F, c.data(), N);
            const Bytes taken = empty_pool();
            EXPECT_LE(taken, sgemm_buffer_bytes(N, *cpu_class, threads))
                << M << " × " << N << ", " << threads << " threads";
            most = std::max(most, taken);
          }
  }
  EXPECT_GT(most, kMiB);  // the pool was in use
}
#endif

// Columns beyond one panel, with leading dimensions that are no sizes of the product.
TEST(Sgemm, PanelsOfColumnsMakeOneProduct) {
  omp_set_num_threads(2);
  constexpr int64_t M = 5, N = 2 * kSgemmColumns + 77, K = 19, kStride = N + 13;
  std::mt19937 random(3);
  std::uniform_int_distribution<int> small(-4, 4);
  for (bool transpose_b : {false, true}) {
    std::vector<float> a(M * K), b(transpose_b ? N * K : K * kStride), c(M * kStride, 1.0F), expected = c;
    for (float& value : a) value = static_cast<float>(small(random));
    for (float& value : b) value = static_cast<float>(small(random));
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k)
          expected[static_cast<size_t>(m * kStride + n)] +=
              a[static_cast<size_t>(m * K + k)] *
              b[static_cast<size_t>(transpose_b ? n * K + k : k * kStride + n)];
    sgemm(false, transpose_b, M, N, K, a.data(), K, b.data(), transpose_b ? K : kStride, 1.0F, c.data(), kStride);
    EXPECT_EQ(c, expected);  // small integers: exact in any order
  }
}

}  // namespace
}  // namespace snug::cpu
