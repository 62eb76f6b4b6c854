#include "train/batch.h"

#include "base/testing.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunOptions sizes(int64_t global, int64_t micro, int64_t steps) {
  RunOptions options;
  options.global_batch_size = global;
  options.per_device_train_batch_size = micro;
  options.gradient_accumulation_steps = steps;
  return options;
}

struct Settled {
  int64_t micro, steps;
  friend bool operator==(const Settled&, const Settled&) = default;
};
Settled settled(int64_t global, int64_t micro, int64_t steps) {
  RunOptions options = sizes(global, micro, steps);
  settle_batch(options);
  return {options.per_device_train_batch_size, options.gradient_accumulation_steps};
}

std::string refusal(int64_t global, int64_t micro, int64_t steps) {
  RunOptions options = sizes(global, micro, steps);
  try {
    settle_batch(options);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "not refused";
}

constexpr int64_t kAuto = RunOptions::kAuto;

TEST(Batch, WithoutAGlobalBatchNothingIsAccumulatedUnlessSaidSo) {
  EXPECT_EQ(settled(0, 8, 0), (Settled{8, 1}));
  EXPECT_EQ(settled(0, 8, 3), (Settled{8, 3}));
}

TEST(Batch, TheGlobalBatchGivesTheAccumulation) {
  EXPECT_EQ(settled(32, 8, 0), (Settled{8, 4}));
  EXPECT_EQ(settled(8, 8, 0), (Settled{8, 1}));
  EXPECT_EQ(settled(32, 8, 4), (Settled{8, 4}));
  EXPECT_EQ(settled(32, kAuto, 4), (Settled{8, 4}));
}

TEST(Batch, AutoIsLeftToThePlanner) {
  RunOptions options = sizes(32, kAuto, 0);
  settle_batch(options);
  EXPECT_EQ(options.per_device_train_batch_size, kAuto);
  EXPECT_TRUE(plans_micro_batch(options));
  EXPECT_EQ(global_batch(options), 32);
  const RunOptions chosen = with_micro_batch(options, 4);
  EXPECT_EQ(chosen.per_device_train_batch_size, 4);
  EXPECT_EQ(chosen.gradient_accumulation_steps, 8);
  EXPECT_EQ(global_batch(chosen), 32);
}

TEST(Batch, OtherOrdersOfSumsAllowAnotherMicroBatchOfTheSameGlobalBatch) {
  RunOptions options = sizes(0, 8, 3);
  settle_batch(options);
  EXPECT_FALSE(plans_micro_batch(options));
  options.allow.insert(Allowance::kReassociation);
  EXPECT_TRUE(plans_micro_batch(options));
  EXPECT_EQ(global_batch(options), 24);
}

TEST(Batch, OpenAreTheDivisorsAndWithTheUpdateInTheBackwardTheWhole) {
  RunOptions options = sizes(12, kAuto, 0);
  EXPECT_THAT(open_micro_batches(options), testing::ElementsAre(1, 2, 3, 4, 6, 12));
  options.update_placement = UpdatePlacement::kInBackward;
  EXPECT_THAT(open_micro_batches(options), testing::ElementsAre(12));
}

TEST(Batch, WhatDoesNotAgreeIsRefusedWithTheNumbers) {
  EXPECT_THAT(refusal(0, kAuto, 0), HasSubstr("auto without global_batch_size"));
  EXPECT_THAT(refusal(10, 4, 0),
              AllOf(HasSubstr("per_device_train_batch_size 4 does not divide global_batch_size 10"),
                    HasSubstr("2 and 5")));
  EXPECT_THAT(refusal(4, 8, 0),
              AllOf(HasSubstr("8 does not divide global_batch_size 4"), HasSubstr("do: 4")));
  EXPECT_THAT(refusal(10, kAuto, 4),
              HasSubstr("gradient_accumulation_steps 4 does not divide global_batch_size 10"));
  EXPECT_THAT(refusal(32, 8, 3), AllOf(HasSubstr("32"), HasSubstr("8 times gradient_accumulation_steps 3")));
  EXPECT_THAT(refusal(32, 8, int64_t{1} << 50), HasSubstr("expected numbers that agree"));
}

}  // namespace
}  // namespace snug
