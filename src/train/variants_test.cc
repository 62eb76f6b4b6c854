#include "train/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "train/batch.h"

namespace snug {
namespace {

RunOptions run_of(int64_t batch, int64_t accumulation) {
  RunOptions options;
  options.per_device_train_batch_size = batch;
  options.gradient_accumulation_steps = accumulation;
  options.max_length = 128;
  return options;
}

TEST(Variants, WithoutPermissionsOnlyThePlaceOfTheUpdateIsOpen) {
  const std::vector<RunVariant> variants = variants_of(run_of(8, 1));
  ASSERT_EQ(variants.size(), 2u);
  EXPECT_EQ(variants[0].options.update_placement, UpdatePlacement::kAfter);
  EXPECT_EQ(variants[1].options.update_placement, UpdatePlacement::kInBackward);
  for (const RunVariant& variant : variants) {
    EXPECT_TRUE(variant.forms.empty());
    EXPECT_TRUE(variant.may_be_smallest);
    EXPECT_EQ(variant.options.head_chunk_rows, 0);
    EXPECT_EQ(variant.options.mlp_chunk_rows, std::nullopt);
  }
}

TEST(Variants, WhatTheUserSaysIsNotOpen) {
  RunOptions options = run_of(8, 1);
  options.update_placement = UpdatePlacement::kInBackward;
  const std::vector<RunVariant> variants = variants_of(options);
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].options.update_placement, UpdatePlacement::kInBackward);
}

TEST(Variants, WithAccumulationTheUpdateStandsAfter) {
  const std::vector<RunVariant> variants = variants_of(run_of(8, 2));
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].options.update_placement, UpdatePlacement::kAfter);
}

using Chunks = std::pair<int64_t, std::optional<int64_t>>;  // rows of the head, of an MLP

std::vector<Chunks> chunks_of(const RunOptions& options) {
  std::vector<Chunks> chunks;
  for (const RunVariant& variant : variants_of(options))
    chunks.emplace_back(variant.options.head_chunk_rows, variant.options.mlp_chunk_rows);
  return chunks;
}

TEST(Variants, ReassociationOpensTheRowsOfHeadAndMlpTogether) {
  RunOptions options = run_of(32, 2);
  options.allow.insert(Allowance::kReassociation);
  EXPECT_THAT(chunks_of(options), testing::ElementsAre(Chunks(0, std::nullopt), Chunks(256, std::nullopt),
                                                       Chunks(256, 1024), Chunks(64, 256)));
  for (const RunVariant& variant : variants_of(options)) {
    EXPECT_EQ(variant.forms.contains(Allowance::kReassociation), variant.options.head_chunk_rows != 0);
    EXPECT_EQ(variant.may_be_smallest, variant.options.head_chunk_rows == 64);
  }
  options.per_device_train_batch_size = 2;
  EXPECT_THAT(chunks_of(options),
              testing::ElementsAre(Chunks(0, std::nullopt), Chunks(0, 64), Chunks(64, 64)))
      << "256 rows are one chunk of the head already";
  options.max_length = 32;
  EXPECT_THAT(chunks_of(options), testing::ElementsAre(Chunks(0, std::nullopt)));
}

TEST(Variants, ChunksThatTheUserNamesAreNotOpen) {
  RunOptions options = run_of(32, 2);
  options.allow.insert(Allowance::kReassociation);
  options.head_chunk_rows = 96;
  EXPECT_THAT(chunks_of(options),
              testing::ElementsAre(Chunks(96, std::nullopt), Chunks(96, 1024), Chunks(96, 256)));
  options.mlp_chunk_rows = 0;
  EXPECT_THAT(chunks_of(options), testing::ElementsAre(Chunks(96, 0))) << "0 is all rows, and said so";
  options.head_chunk_rows = 0;
  EXPECT_THAT(chunks_of(options), testing::ElementsAre(Chunks(0, 0), Chunks(256, 0), Chunks(64, 0)));
}

// Every set of forms that go together once for each place of the update; the exact run first, then by how many forms there are.
TEST(Variants, FormsThatAreAllowedAreTriedInEveryCombination) {
  RunOptions options = run_of(8, 1);
  options.precision = Precision::kBF16;
  options.allow = {Allowance::kBF16Optimizer, Allowance::k8BitOptimizer, Allowance::kBF16Gradients,
                   Allowance::kNoMasterWeights};
  const std::vector<RunVariant> variants = variants_of(options);
  ASSERT_EQ(variants.size(), 2u * 3u * 2u * 2u)
      << "moments in one of three forms, gradients and masters in one of two";
  EXPECT_TRUE(variants.front().forms.empty());
  EXPECT_EQ(variants.front().options.moments, Moments::kF32);
  size_t forms = 0;
  std::set<Allowed> smallest, all;
  for (const RunVariant& variant : variants) {
    EXPECT_GE(variant.forms.size(), forms);
    forms = variant.forms.size();
    all.insert(variant.forms);
    if (variant.may_be_smallest) smallest.insert(variant.forms);
    EXPECT_EQ(variant.options.moments == Moments::kEightBit,
              variant.forms.contains(Allowance::k8BitOptimizer));
    EXPECT_EQ(variant.options.moments == Moments::kBF16, variant.forms.contains(Allowance::kBF16Optimizer));
    EXPECT_EQ(variant.options.gradients == DType::kBF16, variant.forms.contains(Allowance::kBF16Gradients));
    EXPECT_EQ(variant.options.master_weights == MasterWeights::kNone,
              variant.forms.contains(Allowance::kNoMasterWeights));
  }
  EXPECT_EQ(all.size(), 12u);
  EXPECT_EQ(smallest,
            (std::set<Allowed>{
                {}, {Allowance::k8BitOptimizer, Allowance::kBF16Gradients, Allowance::kNoMasterWeights}}));
}

TEST(Variants, FormsThatDoNotApplyAreLeftOut) {
  RunOptions options = run_of(8, 2);  // sums over micro-steps are fp32, and so is the weight its own master
  options.allow = {Allowance::kBF16Gradients, Allowance::kNoMasterWeights};
  EXPECT_EQ(variants_of(options).size(), 1u);
  options.allow = {Allowance::k8BitOptimizer};
  options.moments = Moments::kEightBit;
  EXPECT_EQ(variants_of(options).size(), 1u) << "it is so already";
}

}  // namespace
}  // namespace snug
