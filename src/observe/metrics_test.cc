#include "observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/allocator.h"
#include "base/count_new.h"
#include "base/errors.h"
#include "base/json.h"

namespace snug {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "snug-metrics-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~MetricsTest() override { std::filesystem::remove_all(directory_); }
  std::string path() const { return directory_ + "/metrics.jsonl"; }
  std::string text() const {
    std::stringstream stream;
    stream << std::ifstream(path()).rdbuf();
    return stream.str();
  }

  std::string directory_;
};

StepMetrics example() {
  StepMetrics row;
  row.step = 120;
  row.total_steps = 1000;
  row.epoch = 0.125;
  row.loss = 2.3140000000000001;
  row.learning_rate = 1.8e-5;
  row.grad_norm = 0.91;
  row.tokens_per_second = 41200.5;
  row.tokens_seen = 491520;
  row.supervised_tokens = 491400;
  row.skipped_steps = 1;
  row.step_seconds = 1.0833333333333333;
  row.data_wait_share = 0.25;
  row.memory_rss_bytes = Bytes(1000);
  row.memory_peak_bytes = Bytes(2000);
  row.memory_planned_bytes = Bytes(3000);
  return row;
}

TEST_F(MetricsTest, WritesEveryFieldInOrder) {
  MetricsWriter writer(path(), false);
  writer.write(example());
  EXPECT_EQ(
      text(),
      R"({"step":120,"total_steps":1000,"epoch":0.125,"loss":2.314,"learning_rate":1.8e-05,"grad_norm":0.91,)"
      R"("tokens_per_second":41200.5,"tokens_seen":491520,"supervised_tokens":491400,"skipped_steps":1,)"
      R"("step_seconds":1.0833333333333333,"data_wait_share":0.25,"memory_rss_bytes":1000,"memory_peak_bytes":2000,)"
      "\"memory_planned_bytes\":3000}\n");
  EXPECT_EQ(parse_json(text(), "metrics")["loss"].get<double>(), 2.314);
}

TEST_F(MetricsTest, WritesTheLossScaleWhereThereIsOne) {
  MetricsWriter writer(path(), false);
  StepMetrics row = example();
  row.loss_scale = 65536;
  row.loss_scale_good_updates = 17;
  writer.write(row);
  EXPECT_TRUE(text().ends_with("\"memory_planned_bytes\":3000,\"loss_scale\":65536,\"loss_scale_good_updates\":17}\n")) << text();
}

TEST_F(MetricsTest, WritesNullForWhatIsNotFinite) {
  MetricsWriter writer(path(), false);
  StepMetrics row = example();
  row.loss = std::nan("");
  row.grad_norm = std::numeric_limits<double>::infinity();
  writer.write(row);
  const Json json = parse_json(text(), "metrics");
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["learning_rate"].get<double>(), 1.8e-5);
}

TEST_F(MetricsTest, WritesEachKindOfRowAtOnceAndAppends) {
  {
    MetricsWriter writer(path(), false);
    writer.write(EvaluationMetrics{
        .step = 5, .epoch = 0.5, .eval_loss = 3.25, .eval_tokens = 99, .eval_seconds = 0.5, .data_wait_share = 0.125});
    EXPECT_EQ(text(),
              "{\"step\":5,\"epoch\":0.5,\"eval_loss\":3.25,\"eval_tokens\":99,\"eval_seconds\":0.5,\"data_wait_share\":0.125}\n");
    writer.close();
  }
  {
    MetricsWriter writer(path(), true);
    writer.write(RunMetrics{.step = 7,
                            .train_loss = 2,
                            .train_runtime = 4,
                            .train_steps_per_second = 1.75,
                            .train_samples_per_second = 14,
                            .tokens_seen = 70,
                            .skipped_steps = 0});
  }
  EXPECT_THAT(text(), ::testing::EndsWith("\n{\"step\":7,\"train_loss\":2,\"train_runtime\":4,"
                                          "\"train_steps_per_second\":1.75,\"train_samples_per_second\":14,"
                                          "\"tokens_seen\":70,\"skipped_steps\":0}\n"));
  MetricsWriter(path(), false);
  EXPECT_EQ(text(), "");
  RunMetrics nothing_applied;
  nothing_applied.step = nothing_applied.skipped_steps = 1;
  MetricsWriter(path(), false).write(nothing_applied);
  EXPECT_THAT(text(), ::testing::StartsWith("{\"step\":1,\"train_loss\":null,"));
}

TEST_F(MetricsTest, AllocatesNothingForARow) {
  MetricsWriter writer(path(), false);
  const StepMetrics row = example();
  const int64_t before = allocations();
  for (int i = 0; i < 100; ++i) writer.write(row);
  EXPECT_EQ(allocations(), before);
}

TEST_F(MetricsTest, ReportsAFullDisk) {
  MetricsWriter writer(path(), false);
  ScopedFileFault fault(
      {.operation = FileOperation::kWrite, .nth = 1, .fault = {.error_number = ENOSPC, .at_most_bytes = {}}});
  try {
    writer.write(example());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(path()));
  }
}

}  // namespace
}  // namespace snug
