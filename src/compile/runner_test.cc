#include "compile/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "ir/text.h"

namespace snug {
namespace {

using testing::HasSubstr;

Graph small_graph() {
  return parse_graph(R"(graph evaluate
input %tokens : i32[1,4] data
state %table : f32[8,4] weights parameter=wte.weight
%x : f32[1,4,4] activations = embedding(%tokens, %table) @forward name=x
results %x
)");
}

bool rename_op(Graph& graph) {
  graph.ops[0].name = "renamed";
  return true;
}

// Collects "number phase pass changed".
class Recorder : public PassObserver {
 public:
  void after_pass(int number, const PassTiming& timing, const Graph&) override {
    seen.push_back(fmt::format("{} {} {} {}", number, timing.phase, timing.pass, timing.changed));
  }
  std::vector<std::string> seen;
};

template <typename Step>
std::string message_of(Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Runner, TellsTheObserverAndKeepsTimes) {
  Recorder recorder;
  Runner runner({"off"}, &recorder);
  Graph graph = runner.build(small_graph);
  EXPECT_TRUE(runner.run("rename", graph, rename_op));
  EXPECT_FALSE(runner.run("idle", graph, [](Graph&) { return false; }));
  EXPECT_FALSE(
      runner.run("off", graph, [](Graph&) -> bool { throw_internal("a pass that is off must not run"); }));
  EXPECT_THAT(recorder.seen, testing::ElementsAre("0 evaluate build true", "1 evaluate rename true",
                                                  "2 evaluate idle false", "3 evaluate off false"));
  ASSERT_EQ(runner.timings().size(), 4u);
  EXPECT_TRUE(runner.timings()[2].enabled);
  EXPECT_FALSE(runner.timings()[3].enabled);
}

TEST(Runner, DumpsWhatChanged) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "snug_runner_dumps";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  DumpFolder dump(folder.string());
  Runner runner({}, &dump);
  Graph graph = runner.build(small_graph);
  runner.run("idle", graph, [](Graph&) { return false; });
  runner.run("rename", graph, rename_op);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().filename().string());
  EXPECT_THAT(files, testing::UnorderedElementsAre("00-evaluate-build.ir", "02-evaluate-rename.ir"));
  std::ifstream file(folder / "02-evaluate-rename.ir");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(parse_graph(text) == graph);
}

TEST(Runner, CatchesLies) {
  Runner runner({}, nullptr);
  Graph graph = runner.build(small_graph);
  EXPECT_THAT(message_of([&] { runner.run("boasts", graph, [](Graph&) { return true; }); }),
              HasSubstr("pass boasts"));
  EXPECT_THAT(message_of([&] {
                runner.run("hides", graph, [](Graph& g) {
                  rename_op(g);
                  return false;
                });
              }),
              HasSubstr("pass hides"));
}

TEST(Runner, SaysWhichPassBrokeTheGraph) {
  Runner runner({}, nullptr);
  Graph graph = runner.build(small_graph);
  EXPECT_THAT(message_of([&] {
                runner.run("breaks", graph, [](Graph& g) {
                  g.tensors[2].shape = {1, 4, 5};
                  return true;
                });
              }),
              HasSubstr("after breaks"));
  Graph again = small_graph();
  EXPECT_THAT(message_of([&] {
                runner.run("throws", again, [](Graph&) -> bool { throw_internal("no such thing"); });
              }),
              HasSubstr("no such thing (failed in throws of phase evaluate)"));
}

}  // namespace
}  // namespace snug
