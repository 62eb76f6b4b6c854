#include "backends/cpu/onednn.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

void check(dnnl_status_t status, const char* call) {
  require(status == dnnl_success, "oneDNN: {} returned status {}", call, static_cast<int>(status));
}

// C handles with owners.
template <typename Handle, dnnl_status_t (*kDestroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const { kDestroy(handle); }
};
using Attr =
    std::unique_ptr<dnnl_primitive_attr, Destroy<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>>;
using PostOps = std::unique_ptr<dnnl_post_ops, Destroy<dnnl_post_ops_t, dnnl_post_ops_destroy>>;
using PrimitiveDesc =
    std::unique_ptr<dnnl_primitive_desc, Destroy<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>>;
using Primitive = std::unique_ptr<dnnl_primitive, Destroy<dnnl_primitive_t, dnnl_primitive_destroy>>;
using Memory = std::unique_ptr<dnnl_memory, Destroy<dnnl_memory_t, dnnl_memory_destroy>>;

#if DNNL_VERSION_MAJOR >= 3
using MemoryDesc = std::unique_ptr<dnnl_memory_desc, Destroy<dnnl_memory_desc_t, dnnl_memory_desc_destroy>>;
const_dnnl_memory_desc_t view(const MemoryDesc& desc) { return desc.get(); }
#else
using MemoryDesc = dnnl_memory_desc_t;
const dnnl_memory_desc_t* view(const MemoryDesc& desc) { return &desc; }
#endif

// One engine and stream for the process; never destroyed, since kernels of static lifetime may outlive any
// order we could choose.
dnnl_engine_t engine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    check(dnnl_engine_create(&made, dnnl_cpu, 0), "dnnl_engine_create");
    return made;
  }();
  return engine;
}

dnnl_stream_t stream() {
  static const dnnl_stream_t stream = [] {
    dnnl_stream_t made = nullptr;
    check(dnnl_stream_create(&made, engine(), dnnl_stream_default_flags), "dnnl_stream_create");
    return made;
  }();
  return stream;
}

dnnl_data_type_t dnnl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return dnnl_f32;
    case DType::kBF16:
      return dnnl_bf16;
    default:
      throw_internal("oneDNN product of type {}", dtype_name(dtype));
  }
}

// A matrix (rows, columns), stored row-major or, transposed, as (columns, rows); `stride` elements from one stored row to the next, 0: dense.
MemoryDesc matrix(int64_t rows, int64_t columns, DType dtype, bool transposed, int64_t stride = 0) {
  if (stride == 0) stride = transposed ? rows : columns;
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : stride, transposed ? stride : 1};
#if DNNL_VERSION_MAJOR >= 3
  dnnl_memory_desc_t made = nullptr;
  check(dnnl_memory_desc_create_with_strides(&made, 2, dims, dnnl_type(dtype), strides),
        "memory_desc_create");
  return MemoryDesc(made);
#else
  dnnl_memory_desc_t made;
  check(dnnl_memory_desc_init_by_strides(&made, 2, dims, dnnl_type(dtype), strides), "memory_desc_init");
  return made;
#endif
}

// The primitive descriptor and the status with which oneDNN answered.
std::pair<PrimitiveDesc, dnnl_status_t> describe(const MatmulShape& s) {
  dnnl_primitive_attr_t raw_attr = nullptr;
  check(dnnl_primitive_attr_create(&raw_attr), "primitive_attr_create");
  Attr attr(raw_attr);
  check(dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user),
        "set_scratchpad_mode");
  if (s.accumulate) {
    dnnl_post_ops_t raw_ops = nullptr;
    check(dnnl_post_ops_create(&raw_ops), "post_ops_create");
    PostOps ops(raw_ops);
#if DNNL_VERSION_MAJOR >= 3
    check(dnnl_post_ops_append_sum(ops.get(), 1.0F, 0, dnnl_data_type_undef), "post_ops_append_sum");
#else
    check(dnnl_post_ops_append_sum(ops.get(), 1.0F), "post_ops_append_sum");
#endif
    check(dnnl_primitive_attr_set_post_ops(attr.get(), ops.get()), "set_post_ops");
  }
  const MemoryDesc a = matrix(s.m, s.k, s.a, s.transpose_a, s.stride_a), b = matrix(s.k, s.n, s.b, s.transpose_b),
                   c = matrix(s.m, s.n, s.c, false);
  dnnl_primitive_desc_t raw = nullptr;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl_status_t status =
      dnnl_matmul_primitive_desc_create(&raw, engine(), view(a), view(b), nullptr, view(c), attr.get());
#else
  dnnl_matmul_desc_t desc;
  check(dnnl_matmul_desc_init(&desc, view(a), view(b), nullptr, view(c)), "matmul_desc_init");
  const dnnl_status_t status = dnnl_primitive_desc_create(&raw, &desc, attr.get(), engine(), nullptr);
#endif
  return {PrimitiveDesc(status == dnnl_success ? raw : nullptr), status};
}

Bytes scratchpad_bytes(const PrimitiveDesc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  const const_dnnl_memory_desc_t scratchpad =
      dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
#else
  const dnnl_memory_desc_t* scratchpad =
      dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
#endif
  return scratchpad == nullptr ? Bytes() : Bytes(static_cast<int64_t>(dnnl_memory_desc_get_size(scratchpad)));
}

// oneDNN divides work, and with it scratch, by the number of threads that the calling thread would use.
class WithThreads {
 public:
  explicit WithThreads(int threads) { omp_set_num_threads(threads); }
  ~WithThreads() { omp_set_num_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

Memory memory_of(const MemoryDesc& desc) {
  dnnl_memory_t made = nullptr;
  check(dnnl_memory_create(&made, view(desc), engine(), DNNL_MEMORY_NONE), "memory_create");
  return Memory(made);
}

}  // namespace

std::optional<CpuClass> onednn_class() {
  const unsigned isa = dnnl_get_effective_cpu_isa();
  const auto includes = [isa](unsigned wanted) { return (isa & wanted) == wanted; };
  if (isa == dnnl_cpu_isa_all || includes(dnnl_cpu_isa_avx512_core_bf16)) return CpuClass::kAvx512Bf16;
  if (includes(dnnl_cpu_isa_avx512_core)) return CpuClass::kAvx512;
  if (includes(dnnl_cpu_isa_avx2)) return CpuClass::kAvx2;
  return std::nullopt;
}

bool limit_onednn(CpuClass cpu_class) {
  const dnnl_cpu_isa_t isa = cpu_class == CpuClass::kAvx2     ? dnnl_cpu_isa_avx2
                             : cpu_class == CpuClass::kAvx512 ? dnnl_cpu_isa_avx512_core
                                                              : dnnl_cpu_isa_all;
  return dnnl_set_max_cpu_isa(isa) == dnnl_success;
}

void sgemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
           const float* B, int64_t ldb, float beta, float* C, int64_t ldc) {
  if (M == 0 || N == 0) return;
  // Panels of about one width: a narrow last one would be slow.
  constexpr int64_t kMultiple = 64;
  const int64_t panel = ceil_div(ceil_div(N, ceil_div(N, kSgemmColumns)), kMultiple) * kMultiple;
  static_assert(kSgemmColumns % kMultiple == 0);
  for (int64_t column = 0; column < N; column += panel) {
    const int64_t columns = std::min(panel, N - column);
    check(dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, columns, K, 1.0F, A, lda,
                     B + (transpose_b ? column * ldb : column), ldb, beta, C + column, ldc),
          "dnnl_sgemm");
  }
}

Bytes sgemm_buffer_bytes(int64_t N, CpuClass cpu_class, int threads) {
  constexpr int64_t kRowBlock = 384, kOther = 96 << 10;  // kOther: of the other operand, seen: up to 72 KiB
  const int64_t depth = cpu_class == CpuClass::kAvx2 ? 192 : 384;
  const int64_t columns = std::min(N, kSgemmColumns) + kRowBlock;
  return Bytes(checked_mul(4 * columns * depth + kOther, threads));
}

struct Matmul::Impl {
  Primitive primitive;
  Memory a, b, c, scratchpad;
};

std::optional<std::string> Matmul::refusal(const MatmulShape& shape) {
  const auto [desc, status] = describe(shape);
  if (desc) return std::nullopt;
  return fmt::format("oneDNN has no {} product of {} and {} on this processor (status {})",
                     dtype_name(shape.c), dtype_name(shape.a), dtype_name(shape.b), static_cast<int>(status));
}

Bytes Matmul::scratch_bytes(const MatmulShape& shape, int threads) {
  const WithThreads with(threads);
  const auto [desc, status] = describe(shape);
  check(status, "matmul primitive descriptor");
  return scratchpad_bytes(desc);
}

Matmul::Matmul(const MatmulShape& shape, int threads) : impl_(std::make_unique<Impl>()) {
  const WithThreads with(threads);
  const auto [desc, status] = describe(shape);
  check(status, "matmul primitive descriptor");
  dnnl_primitive_t made = nullptr;
  check(dnnl_primitive_create(&made, desc.get()), "primitive_create");
  impl_->primitive.reset(made);
  impl_->a = memory_of(matrix(shape.m, shape.k, shape.a, shape.transpose_a, shape.stride_a));
  impl_->b = memory_of(matrix(shape.k, shape.n, shape.b, shape.transpose_b));
  impl_->c = memory_of(matrix(shape.m, shape.n, shape.c, false));
  if (scratchpad_bytes(desc) > Bytes()) {
    dnnl_memory_t scratchpad = nullptr;
    check(
        dnnl_memory_create(&scratchpad, dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0),
                           engine(), DNNL_MEMORY_NONE),
        "memory_create");
    impl_->scratchpad.reset(scratchpad);
  }
}

Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;
Matmul::~Matmul() = default;

void Matmul::run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const {
  // oneDNN's memory objects are not const-correct; a and b are only read.
  const auto place = [](const Memory& memory, const std::byte* data) {
    check(dnnl_memory_set_data_handle(memory.get(), const_cast<std::byte*>(data)), "memory_set_data_handle");
  };
  place(impl_->a, a);
  place(impl_->b, b);
  place(impl_->c, c);
  std::array<dnnl_exec_arg_t, 4> args = {{{DNNL_ARG_SRC, impl_->a.get()},
                                          {DNNL_ARG_WEIGHTS, impl_->b.get()},
                                          {DNNL_ARG_DST, impl_->c.get()},
                                          {DNNL_ARG_SCRATCHPAD, impl_->scratchpad.get()}}};
  int count = 3;
  if (impl_->scratchpad) {
    place(impl_->scratchpad, scratch);
    count = 4;
  }
  check(dnnl_primitive_execute(impl_->primitive.get(), stream(), count, args.data()), "primitive_execute");
  check(dnnl_stream_wait(stream()), "stream_wait");
}

std::optional<std::string> bf16_product_refusal(const Dispatch& dispatch) {
  if (!dispatch.native_bf16_products())
    return fmt::format("bf16 products need a processor of class avx512_bf16; this run is {} ({})",
                       cpu_class_name(dispatch.cpu_class), dispatch.reason);
  // Asked once, for making a primitive takes long.
  static const std::optional<std::string> refusal = Matmul::refusal({.m = 512, .n = 64, .k = 64});
  return refusal;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

double warm_up_products(int threads) {
  constexpr int64_t kSize = 1024, kSmall = 128;
  const std::vector<float> a(kSize * kSize, 1.0F), b(kSize * kSize, 0.5F);
  std::vector<float> c(kSize * kSize), small(static_cast<size_t>(threads) * kSmall * kSmall);
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const auto& [transpose_a, transpose_b] :
       {std::pair{false, false}, {false, true}, {true, false}, {false, false}}) {
    const auto begin = std::chrono::steady_clock::now();
    sgemm(transpose_a, transpose_b, kSize, kSize, kSize, a.data(), kSize, b.data(), kSize, 0.0F, c.data(),
          kSize);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    best_seconds = std::min(best_seconds, spent.count());
  }
#pragma omp parallel num_threads(threads)
  {
    // The blocks of attention are multiplied so: one thread, strided rows.
    float* own = small.data() + omp_get_thread_num() * kSmall * kSmall;
    sgemm(false, false, kSmall, kSmall, kSize, a.data(), kSize, b.data(), kSize, 0.0F, own, kSmall);
    sgemm(false, true, kSmall, kSmall, kSize, a.data(), kSize, b.data(), kSize, 0.0F, own, kSmall);
    // Dense ones: with AVX-512 oneDNN multiplies these without packing, and makes all its code for that at the first (3.3 MiB).
    sgemm(false, false, kSmall, kSmall, kSmall, a.data(), kSmall, b.data(), kSmall, 0.0F, own, kSmall);
  }
  return 2.0 * kSize * kSize * kSize / best_seconds;
}

}  // namespace snug::cpu
