// Snug allocates nothing while it trains: operator new and the allocator layer are counted over whole updates.
//
// oneDNN calls operator new too. It is told apart by the caller's address: what libdnnl and libgomp take, by new or by malloc, is
// reported as a number and belongs to the reserve; whatever any other code takes counts as Snug's own and must be 0.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <new>

#include "base/allocator.h"
#include "tiny_models.h"
#include "training_run.h"

namespace {

std::atomic<int64_t> library_news{0}, all_news{0}, all_mallocs{0};

}  // namespace

// AddressSanitizer has its own interposition, which all of this would break.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;

namespace {

bool is_library(void* caller) {
  Dl_info found{};
  if (dladdr(caller, &found) == 0 || found.dli_fname == nullptr) return false;
  const std::string_view object = found.dli_fname;
  return object.find("libdnnl") != std::string_view::npos || object.find("libgomp") != std::string_view::npos;
}

void* take(std::size_t size, std::size_t alignment, void* caller) {
  all_news.fetch_add(1, std::memory_order_relaxed);
  if (is_library(caller))
    library_news.fetch_add(1, std::memory_order_relaxed);
  else
    snug::note_allocation();
  void* memory = alignment == 1
                     ? std::malloc(size == 0 ? 1 : size)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// As base/count_new.h, with the caller's address.
[[gnu::noinline]] void* operator new(std::size_t size) { return take(size, 1, __builtin_return_address(0)); }
[[gnu::noinline]] void* operator new[](std::size_t size) {
  return take(size, 1, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return take(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t alignment) {
  return take(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

// Every malloc and posix_memalign of the process, then glibc's own.
extern "C" void* __libc_malloc(size_t size);
extern "C" void* malloc(size_t size) {
  all_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
extern "C" void* __libc_memalign(size_t alignment, size_t size);
extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) {
  all_mallocs.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
#endif

namespace snug {
namespace {

struct Case {
  std::string family;
  Precision precision;
  RecomputePolicy recompute;
};

class Allocation : public testing::TestWithParam<Case> {};

TEST(Counting, SeesANewAndAMalloc) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer has an allocator of its own";
  const int64_t before = allocations();
  void* volatile number = ::operator new(sizeof(int));
  EXPECT_EQ(allocations(), before + 1);
  ::operator delete(number);
  const int64_t mallocs = all_mallocs;
  void* volatile block = std::malloc(100);
  std::free(block);
  EXPECT_EQ(all_mallocs, mallocs + 1);
}

TEST_P(Allocation, UpdatesAndMicroStepsTakeNothing) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer has an allocator of its own";
  const Model model = GetParam().family == "gpt2" ? tiny_gpt2() : tiny_llama();
  CompileOptions options;
  options.batch = 2;
  options.length = 33;
  options.accumulation = 2;
  options.precision = GetParam().precision;
  options.recompute = GetParam().recompute;
  TrainingRun run(model, ParameterFiles::from_scratch(model, 1), {.compile = options});
  const std::vector<Batch> batches = {random_batch(2, 33, model.vocabulary, 3, 0, 0),
                                      random_batch(2, 33, model.vocabulary, 3, 0, 2)};
  run.update(batches, 1e-3f);  // the harness of the tests allocates, so the phases alone are counted below

  Executor& executor = run.executor();
  // Everything the host writes, as the trainer keeps it: identifiers and buffers made before the first step.
  struct Write {
    PlanTensorId input;
    std::span<const std::byte> bytes;
  };
  const std::array<float, 1> inverse_tokens = {1.0f / 80};
  const std::array<float, 4> hyperparameters = {1e-3f, 0.1f, 1e-3f, 1.0f};
  std::vector<std::vector<Write>> writes;
  for (const Batch& batch : batches) {
    std::vector<Write>& list = writes.emplace_back();
    const auto add = [&](const char* name, const auto& source) {
      if (const PlanTensorId id = run.plan().find(name); id.valid())
        list.push_back({id, std::as_bytes(std::span(source))});
    };
    add("micro_step/tokens", batch.tokens);
    add("micro_step/targets", batch.targets);
    add("micro_step/positions", batch.positions);
    add("micro_step/document_starts", batch.document_starts);
    add("micro_step/randomness", batch.randomness);
    add("micro_step/inverse_tokens", inverse_tokens);
    // The loss scale of fp16 stays as it is.
    const size_t scales = run.plan().find("micro_step/loss_scale").valid() ? 1 : 0;
    EXPECT_EQ(list.size() + scales, run.plan().phase("micro_step")->inputs.size());
  }
  const PlanTensorId update_input = executor.tensor("update/hyperparameters");
  const PlanTensorId loss = executor.tensor("micro_step/loss"), control = executor.tensor("update/control");
  std::array<float, 1> loss_value = {};
  std::array<float, 4> control_value = {};

  const int64_t before = allocations();
  const int64_t library_before = library_news, news_before = all_news, mallocs_before = all_mallocs;
  for (int update = 0; update < 2; ++update) {
    for (size_t i = 0; i < writes.size(); ++i) {
      for (const Write& write : writes[i]) executor.write_input(write.input, write.bytes);
      executor.run_phase("micro_step", static_cast<int64_t>(i));
      executor.read_result(loss, std::as_writable_bytes(std::span(loss_value)));
    }
    executor.write_input(update_input, std::as_bytes(std::span(hyperparameters)));
    executor.run_phase("update");
    executor.read_result(control, std::as_writable_bytes(std::span(control_value)));
  }
  const int64_t taken = allocations() - before;
  const int64_t library = library_news - library_before;
  const int64_t mallocs = all_mallocs - mallocs_before - (all_news - news_before);
  EXPECT_EQ(taken, 0);
  EXPECT_GT(loss_value[0], 0);
  EXPECT_EQ(control_value[1], 1) << "nothing was applied";
  RecordProperty("library_news_per_update", std::to_string(library / 2));
  RecordProperty("library_mallocs_per_update", std::to_string(mallocs / 2));
  std::cout << "libraries took " << library / 2 << " times by new and " << mallocs / 2
            << " times by malloc, an update\n";
}

INSTANTIATE_TEST_SUITE_P(Runs, Allocation,
                         testing::Values(Case{"gpt2", Precision::kF32, RecomputePolicy()},
                                         Case{"gpt2", Precision::kBF16, parse_recompute_policy("block")},
                                         Case{"llama", Precision::kF32, parse_recompute_policy("block")},
                                         Case{"llama", Precision::kBF16, RecomputePolicy()},
                                         Case{"gpt2", Precision::kF16, RecomputePolicy()}),
                         [](const auto& test) {
                           return fmt::format(
                               "{}_{}_{}", test.param.family, precision_name(test.param.precision),
                               to_string(test.param.recompute));
                         });

}  // namespace
}  // namespace snug
