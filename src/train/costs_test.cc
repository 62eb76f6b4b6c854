#include "train/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "base/errors.h"
#include "base/file.h"
#include "base/testing.h"
#include "models/gpt2.h"
#include "plan/text.h"

namespace snug {
namespace {

using testing::HasSubstr;

constexpr Bytes kBudget{int64_t{4} << 30};

Model small_model() {
  Gpt2Config config;
  config.vocab_size = 101;
  config.positions = 32;
  config.hidden = 32;
  config.layers = 2;
  config.heads = 2;
  config.inner = 64;
  return gpt2_model(config);
}

CompileOptions small_run(int64_t batch = 2) {
  CompileOptions options;
  options.batch = batch;
  options.length = 32;
  return options;
}

// Each test has a cache of its own, and two machines' rates that no clock made.
class Costs : public testing::Test {
 protected:
  Costs() { set_cache(directory_.path()); }
  ~Costs() override { unsetenv("XDG_CACHE_HOME"); }

  static void set_cache(const std::string& path) { setenv("XDG_CACHE_HOME", path.c_str(), 1); }

  struct Run {
    CostsReport report;
    double update_seconds = 0;
    std::string plan;
    int compilations = 0;
  };
  // As a process that has just started, on a machine that seemed `speed` times as fast.
  static Run run(CostSource source = CostSource::kMeasured, double speed = 1, int64_t batch = 2) {
    cpu::CpuBackend backend(cpu::choose_dispatch(2),
                            {.product_flops_per_second = 100e9 * speed, .bytes_per_second = 10e9 * speed});
    Run result;
    const Compiled compiled = compile_by_costs(
        backend, source, kBudget,
        [&](const Target& target) {
          ++result.compilations;
          return compile(small_model(), small_run(batch), target);
        },
        result.report);
    result.update_seconds = compiled.report.update_seconds;
    result.plan = to_string(compiled.plan);
    // What was answered for the plan is what the target goes on to answer.
    const double again = compile(small_model(), small_run(batch), backend.target()).report.update_seconds;
    EXPECT_DOUBLE_EQ(again, result.update_seconds);
    return result;
  }

  std::vector<std::string> files() const {
    const std::string snug = directory_ / "snug";
    return directory_exists(snug) ? list_directory(snug) : std::vector<std::string>();
  }

  TemporaryDirectory directory_;
};

TEST_F(Costs, AreMeasuredOnceAndThenTheSame) {
  const Run first = run();
  EXPECT_GT(first.report.timed, 10u);
  EXPECT_EQ(first.report.timed, first.report.measured);
  EXPECT_GT(first.report.seconds, 0);
  EXPECT_EQ(first.report.note, "");
  EXPECT_EQ(first.compilations, 2);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(directory_ / ("snug/" + files().at(0)), first.report.file);
  EXPECT_THAT(costs_line(first.report),
              HasSubstr(fmt::format("Costs: measured {} operations in ", first.report.timed)));
  EXPECT_THAT(costs_line(first.report), HasSubstr(", cached in " + first.report.file));

  // Whatever rates the next run finds.
  const std::string cached = read_small_file(first.report.file, kMiB);
  const Run second = run(CostSource::kMeasured, 0.3);
  EXPECT_EQ(second.report.timed, 0u);
  EXPECT_EQ(second.report.operations, first.report.operations);
  EXPECT_EQ(second.report.measured, first.report.measured);
  EXPECT_EQ(second.compilations, 1);
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_EQ(second.update_seconds, first.update_seconds);
  EXPECT_EQ(read_small_file(first.report.file, kMiB), cached);
  EXPECT_THAT(costs_line(second.report), HasSubstr("operations measured earlier"));
}

TEST_F(Costs, OfAnotherRunAreAdded) {
  run();
  const Run first = run(CostSource::kMeasured, 1, 4);
  EXPECT_GT(first.report.timed, 0u);
  EXPECT_LT(first.report.timed, first.report.operations);
  EXPECT_EQ(run().report.timed, 0u);
  EXPECT_EQ(run(CostSource::kMeasured, 1, 4).report.timed, 0u);
}

TEST_F(Costs, ByTheRooflineTouchNoCache) {
  const Run run_by_roofline = run(CostSource::kRoofline);
  EXPECT_EQ(run_by_roofline.compilations, 1);
  EXPECT_TRUE(files().empty());
  EXPECT_THAT(costs_line(run_by_roofline.report), HasSubstr("roofline"));
  EXPECT_NEAR(run(CostSource::kRoofline, 0.5).update_seconds, 2 * run_by_roofline.update_seconds,
              1e-9 * run_by_roofline.update_seconds);
}

TEST_F(Costs, FromABrokenCacheAreMeasuredAnewWithANote) {
  const Run first = run();
  const std::string good = read_small_file(first.report.file, kMiB);
  write_file(first.report.file, good.substr(0, good.size() / 2));
  const Run second = run();
  EXPECT_EQ(second.report.timed, first.report.timed);
  EXPECT_THAT(second.report.note, HasSubstr("the cache of costs was not used: " + first.report.file));
  EXPECT_THAT(costs_line(second.report), HasSubstr("\nNote: the cache of costs was not used"));
  EXPECT_EQ(run().report.note, "");
  EXPECT_EQ(run().report.timed, 0u);
}

// As they would be after a start on a machine that did a thousand other things.
TEST_F(Costs, InDoubtAreMeasuredAgainAtTheNextStart) {
  const Run first = run();
  const cpu::Dispatch dispatch = cpu::choose_dispatch(2);
  const cpu::CostsKey key = cpu::costs_key(dispatch);
  auto costs = cpu::MeasuredCosts::read(first.report.file, key);
  ASSERT_EQ(first.report.keys.size(), first.report.operations);
  for (const std::string& name : first.report.keys)
    costs.set_timed(name, 1000, costs.find(name)->roofline_seconds);
  costs.write(first.report.file, key);
  const Run disturbed = run();
  EXPECT_EQ(disturbed.report.timed, 0u);
  EXPECT_GT(disturbed.update_seconds, 10 * first.update_seconds);

  EXPECT_TRUE(doubt_costs(disturbed.report, dispatch));
  const Run again = run();
  EXPECT_EQ(again.report.timed, first.report.timed);
  EXPECT_LT(again.update_seconds, disturbed.update_seconds / 10);
  EXPECT_EQ(run().report.timed, 0u);
}

TEST_F(Costs, AreNotDoubtedWhereThereIsNothingToMark) {
  const cpu::Dispatch dispatch = cpu::choose_dispatch(2);
  EXPECT_FALSE(doubt_costs(run(CostSource::kRoofline).report, dispatch));
  const Run first = run();
  write_file(first.report.file, "{");
  EXPECT_FALSE(doubt_costs(first.report, dispatch));
  EXPECT_EQ(read_small_file(first.report.file, kMiB), "{");
}

TEST_F(Costs, GoOnWithoutACacheThatCannotBeWritten) {
  directory_.add("file", "");
  set_cache(directory_ / "file");
  const Run no_directory = run();
  EXPECT_GT(no_directory.report.timed, 0u);
  EXPECT_THAT(no_directory.report.note, HasSubstr("costs are not cached: "));

  set_cache(directory_ / "full");
  ScopedFileFault fault({.operation = FileOperation::kSync, .fault = {.error_number = ENOSPC}});
  const Run full = run();
  EXPECT_GT(full.report.timed, 0u);
  EXPECT_THAT(full.report.note, HasSubstr("costs are not cached: "));
}

TEST_F(Costs, DirectoryIsTheUsers) {
  EXPECT_EQ(costs_directory(), directory_ / "snug");
  const char* home = std::getenv("HOME");
  const std::optional<std::string> old = home != nullptr ? std::optional<std::string>(home) : std::nullopt;
  setenv("HOME", "/home/somebody", 1);
  set_cache("relative");  // not allowed by the standard of these variables
  EXPECT_EQ(costs_directory(), "/home/somebody/.cache/snug");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(costs_directory(), "/home/somebody/.cache/snug");
  unsetenv("HOME");
  EXPECT_EQ(costs_directory(), "");
  EXPECT_THAT(run().report.note, HasSubstr("neither XDG_CACHE_HOME nor HOME"));
  if (old) setenv("HOME", old->c_str(), 1);
}

}  // namespace
}  // namespace snug
