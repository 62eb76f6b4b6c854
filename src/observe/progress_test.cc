#include "observe/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/allocator.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

StepMetrics example() {
  StepMetrics step;
  step.step = 120;
  step.total_steps = 1000;
  step.epoch = 0.12;
  step.loss = 2.3139;
  step.learning_rate = 1.8e-5;
  step.grad_norm = 0.9123;
  step.tokens_seen = 491520;
  step.supervised_tokens = 491400;
  step.memory_rss_bytes = Bytes(5);
  step.memory_peak_bytes = Bytes(40694815130);  // 37.9 GiB
  step.memory_planned_bytes = 80 * kGiB;
  return step;
}

Speed steady(double seconds, double tokens) {
  Speed speed;
  for (int i = 0; i < 3; ++i) speed.add(seconds, tokens);
  return speed;
}

TEST(Progress, DrawsTheBar) {
  std::array<char, 256> buffer;
  EXPECT_EQ(
      progress_bar(example(), steady(1.084, 44661), 130.2, 120, buffer),
      " 12%|#         | 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, lr=1.8e-05, gnorm=0.912, tok/s=41.2k, "
      "mem=37.9/80 GiB]");
  const std::pair<int, const char*> kNarrower[] = {
      {110,
       " 12% 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, lr=1.8e-05, gnorm=0.912, tok/s=41.2k, mem=37.9/80 "
       "GiB]"},
      {100, " 12% 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, lr=1.8e-05, tok/s=41.2k, mem=37.9/80 GiB]"},
      {80, " 12% 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, tok/s=41.2k, mem=37.9/80 GiB]"},
      {70, " 12% 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, tok/s=41.2k]"},
      {20, " 12% 120/1000 [02:10"}};
  for (const auto& [columns, bar] : kNarrower)
    EXPECT_EQ(progress_bar(example(), steady(1.084, 44661), 130.2, columns, buffer), bar) << columns;
}

TEST(Progress, DrawsTheEnds) {
  std::array<char, 256> buffer;
  StepMetrics step = example();
  step.step = 1000;
  step.memory_peak_bytes = Bytes(786 << 20);
  step.memory_planned_bytes = Bytes(801 << 20);
  EXPECT_THAT(progress_bar(step, steady(0.25, 100), 3600, 200, buffer),
              AllOf(StartsWith("100%|##########| 1000/1000 [1:00:00<00:00, 4.00it/s, "),
                    EndsWith("tok/s=400, mem=786/801 MiB]")));
  step.step = 0;
  step.loss = std::nan("");
  EXPECT_THAT(progress_bar(step, Speed(), 0, 200, buffer),
              AllOf(StartsWith("  0%|          | 0/1000 [00:00<00:00, "), HasSubstr("loss=non-finite")));
  step.total_steps = 0;
  EXPECT_THAT(progress_bar(step, Speed(), 0, 200, buffer), StartsWith("  0%|          | 0/0 ["));
  std::array<char, 8> small;
  EXPECT_EQ(progress_bar(step, Speed(), 0, 200, small), "  0%|   ");
}

TEST(Progress, SaysInAWordWhatIsNoNumber) {
  std::array<char, 1024> buffer;
  StepMetrics step = example();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {std::nan(""), -std::nan(""), infinity, -infinity}) {
    step.loss = step.grad_norm = value;
    EXPECT_THAT(progress_line(step, steady(1.5, 3000), buffer),
                HasSubstr(" loss=non-finite lr=1.8e-05 gnorm=non-finite tok/s=2k "));
    EXPECT_THAT(progress_bar(step, Speed(), 0, 200, buffer),
                HasSubstr("loss=non-finite, lr=1.8e-05, gnorm=non-finite, tok"));
    EXPECT_EQ(format_number(value, 4), "non-finite");
  }
  EXPECT_EQ(format_number(2.5, 4), "2.5000");
}

TEST(Progress, WritesTheLine) {
  std::array<char, 1024> buffer;
  EXPECT_EQ(progress_line(example(), steady(1.5, 3000), buffer),
            "step=120/1000 epoch=0.12 loss=2.314 lr=1.8e-05 gnorm=0.912 tok/s=2k mem=37.9/80 GiB left=22:00");
  // Whatever the numbers are: a million updates that take a week, two of them skipped, on a machine of a TiB.
  StepMetrics step = example();
  step.step = 123456, step.total_steps = 1000000, step.epoch = 12.3456789, step.skipped_steps = 2;
  step.learning_rate = 1.23456e-05, step.loss = std::nan("");
  step.memory_peak_bytes = step.memory_planned_bytes = Bytes((int64_t{1} << 40) - 1);
  EXPECT_EQ(
      progress_line(step, steady(0.69, 3000), buffer),
      "step=123456/1000000 loss=non-finite lr=1.23e-05 gnorm=0.912 skipped=2 tok/s=4.35k left=168:00:15");
}

TEST(Progress, AveragesWithoutTheFirstStep) {
  Speed speed;
  EXPECT_EQ(speed.tokens_per_second(), 0);
  speed.add(100, 1000);
  EXPECT_EQ(speed.seconds_per_step(), 100);  // nothing better is known yet
  EXPECT_EQ(speed.tokens_per_second(), 10);
  speed.add(2, 1000);
  EXPECT_EQ(speed.seconds_per_step(), 2);
  EXPECT_EQ(speed.tokens_per_second(), 500);
  speed.add(4, 1000);
  EXPECT_DOUBLE_EQ(speed.seconds_per_step(), 2.2);
}

TEST(Progress, FormatsTimesAndCounts) {
  std::array<char, 32> buffer;
  EXPECT_EQ(format_time(0, buffer), "00:00");
  EXPECT_EQ(format_time(3599.9, buffer), "59:59");
  EXPECT_EQ(format_time(36000 + 61, buffer), "10:01:01");
  EXPECT_EQ(format_time(-1, buffer), "?");
  EXPECT_EQ(format_time(std::nan(""), buffer), "?");
  EXPECT_EQ(format_count(0, buffer), "0");
  EXPECT_EQ(format_count(999, buffer), "999");
  EXPECT_EQ(format_count(999.6, buffer), "1k");
  EXPECT_EQ(format_count(41234, buffer), "41.2k");
  EXPECT_EQ(format_count(1.25e6, buffer), "1.25M");
}

// What a Progress writes to its file.
template <typename F>
std::string written(ProgressForm form, F&& use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  {
    Progress progress(file, form);
    use(progress);
  }
  std::fclose(file);
  std::string copy(text, size);
  std::free(text);
  return copy;
}

TEST(Progress, WritesOnlyLoggedStepsAsLines) {
  const std::string text = written(ProgressForm::kLines, [](Progress& progress) {
    StepMetrics step = example();
    progress.step(step, 10, false);
    progress.note("eval_loss=3");
    ++step.step;
    progress.step(step, 10, true);
  });
  EXPECT_THAT(text, AllOf(StartsWith("eval_loss=3\nstep=121/1000 "), EndsWith("\n"),
                          ::testing::Not(HasSubstr("\r"))));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(Progress, RedrawsTheBarAroundNotes) {
  const std::string text = written(ProgressForm::kBar, [](Progress& progress) {
    progress.step(example(), 10, true);
    progress.note("a note");
  });
  EXPECT_THAT(text, AllOf(StartsWith("\r 12% 120/"), HasSubstr("\x1b[K\r\x1b[Ka note\n\r 12% 120/"),
                          EndsWith("\x1b[K\n")));
}

TEST(Progress, KeepsStillWhenNotWanted) {
  EXPECT_EQ(progress_form(stderr, false), ProgressForm::kNone);
  const std::string text = written(ProgressForm::kNone, [](Progress& progress) {
    progress.step(example(), 10, true);
    progress.note("a note");
  });
  EXPECT_EQ(text, "a note\n");
}

TEST(Progress, AllocatesNothing) {
  std::FILE* file = std::fopen("/dev/null", "we");
  for (const ProgressForm form : {ProgressForm::kBar, ProgressForm::kLines}) {
    Progress progress(file, form);
    const StepMetrics step = example();
    progress.step(step, 10, true);
    const int64_t before = allocations();
    for (int i = 0; i < 100; ++i) progress.step(step, 10, true);
    EXPECT_EQ(allocations(), before);
  }
  std::fclose(file);
}

}  // namespace
}  // namespace snug
