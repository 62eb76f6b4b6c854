#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "data/windows.h"

namespace snug {
namespace {

using S = LearningRateSchedule;

TEST(LearningRate, LinearWithWarmup) {
  const LearningRate rate{S::kLinear, 1.0, 4, 12};
  EXPECT_EQ(rate.at(0), 0.0);
  EXPECT_EQ(rate.at(1), 0.25);
  EXPECT_EQ(rate.at(4), 1.0);
  EXPECT_EQ(rate.at(8), 0.5);  // (12 − 8) / (12 − 4)
  EXPECT_EQ(rate.at(12), 0.0);
  EXPECT_EQ(rate.at(20), 0.0);
}

TEST(LearningRate, Cosine) {
  const LearningRate rate{S::kCosine, 2.0, 0, 10};
  EXPECT_DOUBLE_EQ(rate.at(0), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(5), 1.0);
  EXPECT_NEAR(rate.at(10), 0.0, 1e-15);
}

TEST(LearningRate, OthersAtTheirLandmarks) {
  EXPECT_EQ((LearningRate{S::kConstant, 3.0, 5, 10}.at(0)),
            3.0);  // ignores warm-up, as transformers' constant does
  EXPECT_EQ((LearningRate{S::kConstantWithWarmup, 3.0, 6, 10}.at(2)), 1.0);
  EXPECT_EQ((LearningRate{S::kConstantWithWarmup, 3.0, 6, 10}.at(9)), 3.0);
  EXPECT_EQ((LearningRate{S::kPolynomial, 1.0, 0, 10}.at(10)), 1e-7);
  EXPECT_DOUBLE_EQ((LearningRate{S::kInverseSqrt, 1.0, 4, 100}.at(16)), 0.5);  // sqrt(4 / 16)
}

TEST(WarmupUpdates, ShareOrCount) {
  EXPECT_EQ(warmup_updates(0, 100), 0);
  EXPECT_EQ(warmup_updates(0.05, 90), 5);  // ceil(4.5)
  EXPECT_EQ(warmup_updates(7, 100), 7);
}

// tests/fixtures/schedules.json (tools/make_schedule_fixture.py): what transformers' Trainer makes of options.
class TrainersArithmetic : public testing::Test {
 protected:
  const std::string path_ = SNUG_SOURCE_DIR "/tests/fixtures/schedules.json";
  const Json trainer_ = parse_json(read_small_file(path_, kMiB), path_);
};

TEST_F(TrainersArithmetic, UpdatesAndWarmupsOverAGrid) {
  const auto warmups = trainer_.at("warmup_steps").get<std::vector<double>>();
  ASSERT_GE(trainer_.at("lengths").size(), 100u);
  for (const Json& row : trainer_.at("lengths")) {
    SCOPED_TRACE(row.dump());
    const Schedule schedule{
        .windows = row.at("windows"), .batch = row.at("batch"), .accumulation = row.at("accumulation")};
    const int64_t updates = updates_of_epochs(row.at("epochs"), schedule.updates_per_epoch());
    EXPECT_EQ(updates, row.at("updates").get<int64_t>());
    for (size_t i = 0; i < warmups.size(); ++i)
      EXPECT_EQ(warmup_updates(warmups[i], updates), row.at("warmups").at(i).get<int64_t>()) << warmups[i];
  }
}

TEST_F(TrainersArithmetic, RatesOfEverySchedule) {
  const std::pair<const char*, S> kNames[] = {{"linear", S::kLinear},
                                              {"cosine", S::kCosine},
                                              {"cosine_with_restarts", S::kCosineWithRestarts},
                                              {"polynomial", S::kPolynomial},
                                              {"constant", S::kConstant},
                                              {"constant_with_warmup", S::kConstantWithWarmup},
                                              {"inverse_sqrt", S::kInverseSqrt}};
  const double peak = trainer_.at("learning_rate");
  size_t rows = 0;
  for (const auto& [name, schedule] : kNames)
    for (const Json& row : trainer_.at("rates")) {
      if (row.at("schedule") != name) continue;
      ++rows;
      const int64_t updates = row.at("updates");
      const LearningRate rate{schedule, peak, warmup_updates(row.at("warmup_steps"), updates), updates};
      for (int64_t update = 0; update < updates; ++update)
        EXPECT_NEAR(rate.at(update), row.at("rates").at(static_cast<size_t>(update)).get<double>(),
                    1e-12 * peak)
            << row.dump() << " update " << update;
    }
  EXPECT_EQ(rows, trainer_.at("rates").size());
}

}  // namespace
}  // namespace snug
