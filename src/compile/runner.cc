#include "compile/runner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/file.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace snug {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Calls the pass; an error says where it stopped.
bool rewritten(std::string_view pass, Graph& graph, const std::function<bool(Graph&)>& rewrite) {
  try {
    return rewrite(graph);
  } catch (const UserError& error) {
    throw UserError(error.code(),
                    fmt::format("{} (failed in {} of phase {})", error.what(), pass, graph.name));
  } catch (const InternalError& error) {
    throw InternalError(fmt::format("{} (failed in {} of phase {})", error.what(), pass, graph.name));
  }
}

}  // namespace

void DumpFolder::after_pass(int number, const PassTiming& timing, const Graph& graph) {
  if (!timing.changed) return;
  write_file(fmt::format("{}/{:02}-{}-{}.ir", folder_, number, timing.phase, timing.pass), print(graph));
}

Graph Runner::build(const std::function<Graph()>& builder) {
  const auto start = std::chrono::steady_clock::now();
  Graph graph = builder();
  finish({.phase = graph.name,
          .pass = "build",
          .enabled = true,
          .changed = true,
          .seconds = seconds_since(start)},
         graph);
  return graph;
}

bool Runner::run(std::string_view pass, Graph& graph, const std::function<bool(Graph&)>& rewrite) {
  PassTiming timing{
      .phase = graph.name, .pass = std::string(pass), .enabled = true, .changed = false, .seconds = 0};
  timing.enabled = std::find(disabled_.begin(), disabled_.end(), pass) == disabled_.end();
  if (timing.enabled) {
    std::optional<Graph> before;
    if (checks_ == Checks::kEveryPass) before = graph;
    const auto start = std::chrono::steady_clock::now();
    timing.changed = rewritten(pass, graph, rewrite);
    timing.seconds = seconds_since(start);
    require(!before || (graph != *before) == timing.changed,
            "pass {} of phase {} says that it {} the graph, which is not so", pass, timing.phase,
            timing.changed ? "changed" : "did not change");
  }
  const bool changed = timing.changed;
  finish(std::move(timing), graph);
  return changed;
}

void Runner::finish(PassTiming timing, const Graph& graph) {
  if (timing.changed && checks_ == Checks::kEveryPass) verify(graph, timing.pass);
  if (observer_ != nullptr) observer_->after_pass(static_cast<int>(timings_.size()), timing, graph);
  timings_.push_back(std::move(timing));
}

}  // namespace snug
