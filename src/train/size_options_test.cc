#include "train/size_options.h"

#include "base/checked.h"
#include "base/testing.h"

namespace snug {
namespace {

constexpr int64_t kHuge = int64_t{1} << 50;

// A run whose sizes are batch · accumulation · length · width and evaluation batch · length · width.
std::function<void(const RunOptions&)> sizes_with(int64_t width) {
  return [width](const RunOptions& o) {
    const int64_t row = checked_mul(o.max_length, width);
    checked_mul(checked_mul(o.per_device_train_batch_size, o.gradient_accumulation_steps), row);
    checked_mul(o.per_device_eval_batch_size, row);
  };
}

RunOptions usual() {
  RunOptions options;
  options.max_length = 1024;
  options.gradient_accumulation_steps = 1;
  return options;
}

void expect_explained(const RunOptions& options, int64_t width, ExitCode code, const std::string& text) {
  const auto plan_with = sizes_with(width);
  expect_user_error(code, text, [&] {
    try {
      plan_with(options);
    } catch (const UserError& error) {
      explain_sizes(options, usual(), "dir/config.json", error, plan_with);
    }
  });
}

TEST(SizeOptions, TheOneThatIsTooLargeIsNamed) {
  RunOptions options = usual();
  options.per_device_train_batch_size = kHuge;
  expect_explained(options, 768, ExitCode::kUsage, "per_device_train_batch_size is 1125899906842624: too large");
  options = usual();
  options.per_device_eval_batch_size = kHuge;
  expect_explained(options, 768, ExitCode::kUsage, "per_device_eval_batch_size is 1125899906842624: too large");
}

TEST(SizeOptions, AProductIsBlamedOnEachOfItsFactors) {
  RunOptions options = usual();
  options.per_device_train_batch_size = int64_t{1} << 25;
  options.gradient_accumulation_steps = int64_t{1} << 25;
  expect_explained(options, 768, ExitCode::kUsage,
                   "per_device_train_batch_size is 33554432, gradient_accumulation_steps is 33554432: too large");
}

TEST(SizeOptions, SeveralThatOverflowEachOnItsOwnAreAllNamed) {
  RunOptions options = usual();
  options.per_device_train_batch_size = options.per_device_eval_batch_size = kHuge;
  expect_explained(options, 768, ExitCode::kUsage,
                   "per_device_train_batch_size is 1125899906842624, per_device_eval_batch_size is 1125899906842624: too large");
}

TEST(SizeOptions, AModelTooLargeByItselfIsAMatterOfItsFile) {
  const auto plan_with = [](const RunOptions&) { checked_mul(kHuge, kHuge); };
  expect_user_error(ExitCode::kBadFile, "dir/config.json: the model's own sizes are beyond 64 bits", [&] {
    explain_sizes(usual(), usual(), "dir/config.json", UserError(ExitCode::kUsage, "size overflow"), plan_with);
  });
}

TEST(SizeOptions, WhatHasNothingToDoWithSizesStaysAsItWas) {
  RunOptions options = usual();
  options.precision = Precision::kBF16;
  const UserError refused(ExitCode::kUsage, "bf16: not for this model");
  const auto plan_with = [&](const RunOptions& o) {
    if (o.precision == Precision::kBF16) throw refused;
  };
  expect_user_error(ExitCode::kUsage, "bf16: not for this model",
                    [&] { explain_sizes(options, usual(), "dir/config.json", refused, plan_with); });
}

}  // namespace
}  // namespace snug
