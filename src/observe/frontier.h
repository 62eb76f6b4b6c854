// observe/frontier.h — memory against speed for one run: what `snug plan --sweep` prints and draws
//
// A frontier is a list of plans of the same run at rising budgets, with the named policies as points beside it. Speed is a share of the
// keep-all plan's: 1 / (1 + slowdown). All three forms show the same points.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace snug {

struct FrontierPoint {
  std::string name;         // of a policy; on the line what was chosen besides recomputation, or nothing
  Bytes peak;               // planned peak of the process
  double step_seconds = 0;  // estimated, of one update
  double gap =
      0;  // certified: no plan at this budget can be faster by more than this fraction; 0 for policies
};

struct Frontier {
  std::string title;                    // "GPT-2, 124,439,808 parameters, batch 4 × 1024, fp32"
  double keep_all_seconds = 0;          // one update of the keep-all plan
  std::vector<FrontierPoint> line;      // by rising peak: from the smallest budget that works to keep-all
  std::vector<FrontierPoint> policies;  // named policies, in any order

  // keep_all_seconds / point's seconds.
  double speed(const FrontierPoint& point) const;
};

// One row a point, policies after the line. Ends with a newline.
std::string frontier_table(const Frontier& frontier);

// The line as a plot of characters, policies as letters with a legend: `columns` characters wide at most.
std::string frontier_plot(const Frontier& frontier, int columns);

// A standalone SVG document: axes, the line as steps, policies as labelled points.
std::string frontier_svg(const Frontier& frontier);

}  // namespace snug
