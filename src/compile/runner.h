// compile/runner.h — no pass is called bare: off-switch, timer, dump, verifier and lie detector around each
//
// After a pass that changed something the graph is verified ("after <pass>: …"); what a pass itself throws
// ends with "(failed in <pass> of phase <phase>)". A pass that returns false must have left the graph equal
// to what it was, and one that returns true must have changed it; otherwise InternalError.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace snug {

struct PassTiming {
  std::string phase, pass;
  bool enabled = true, changed = false;
  double seconds = 0;  // the pass alone, without verification
};

// Sees the graph after each pass, for dumps and tests.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // `number` counts the passes of a compilation from 0 ("build" included), so that dumps sort in order.
  virtual void after_pass(int number, const PassTiming& timing, const Graph& graph) = 0;
};

// Writes `<folder>/NN-<phase>-<pass>.ir` after each pass that changed the graph.
class DumpFolder : public PassObserver {
 public:
  // The folder exists. Throws UserError(kIo) when a file cannot be written.
  explicit DumpFolder(std::string folder) : folder_(std::move(folder)) {}
  void after_pass(int number, const PassTiming& timing, const Graph& graph) override;

 private:
  std::string folder_;
};

// Whether graphs are copied, compared and verified around each pass. kNone: for estimates, and for drafts of which few become plans; those are
// verified at their end.
enum class Checks : uint8_t { kEveryPass, kNone };

class Runner {
 public:
  // `disabled` are names of passes that shall not run. `observer` may be null; it outlives the runner.
  Runner(std::vector<std::string> disabled, PassObserver* observer, Checks checks = Checks::kEveryPass)
      : disabled_(std::move(disabled)), observer_(observer), checks_(checks) {}

  // Makes a graph: what is verified and shown as the pass "build".
  Graph build(const std::function<Graph()>& builder);
  // Runs `pass` on `graph` unless it is switched off. Returns whether the graph changed.
  bool run(std::string_view pass, Graph& graph, const std::function<bool(Graph&)>& rewrite);

  const std::vector<PassTiming>& timings() const { return timings_; }

 private:
  void finish(PassTiming timing, const Graph& graph);

  std::vector<std::string> disabled_;
  PassObserver* observer_;
  Checks checks_;
  std::vector<PassTiming> timings_;
};

}  // namespace snug
