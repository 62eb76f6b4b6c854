// bench/layout/bench_layout.cc — packs buffer traces: how near to the bound each comes, in how much CPU time
//
// Usage: snug_bench_layout [--alignment BYTES] [--max_gap PERCENT] [--search_work N] [--each_order] FILE.csv...
// Ends with 1 when a solution is not valid or its gap exceeds --max_gap. File format: src/layout/text.h.
#include <cstdio>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "layout/check.h"
#include "layout/pack.h"
#include "layout/text.h"

namespace {

using namespace snug;

struct Options {
  Bytes alignment{1};
  std::optional<double> max_gap_percent;
  layout::PackOptions pack;
  bool each_order = false;
  std::vector<std::string> files;
};

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> args(argv + 1, argv + argc);
  for (size_t i = 0; i < args.size(); ++i) {
    const auto value = [&]() -> const std::string& {
      if (i + 1 == args.size()) throw_user(ExitCode::kUsage, "{} needs a value", args[i]);
      return args[++i];
    };
    if (args[i] == "--alignment") {
      options.alignment = parse_bytes(value());
    } else if (args[i] == "--max_gap") {
      options.max_gap_percent = std::stod(value());
    } else if (args[i] == "--search_work") {
      options.pack.search_work = std::stoll(value());
    } else if (args[i] == "--each_order") {
      options.each_order = true;
    } else if (args[i].starts_with("--")) {
      throw_user(ExitCode::kUsage, "unknown option {}", args[i]);
    } else {
      options.files.push_back(args[i]);
    }
  }
  if (options.files.empty())
    throw_user(
        ExitCode::kUsage,
        "usage: snug_bench_layout [--alignment BYTES] [--max_gap PERCENT] [--search_work N] [--each_order] "
        "FILE.csv...");
  return options;
}

double gap_percent(Bytes peak, Bytes bound) {
  if (bound.value == 0) return 0;
  return 100.0 * static_cast<double>((peak - bound).value) / static_cast<double>(bound.value);
}

// Prints one line; returns whether the solution is valid and near enough.
template <typename Pack>
bool report(const std::string& file, const layout::Problem& problem, const Options& options, Pack pack) {
  const std::clock_t start = std::clock();
  const layout::Solution solution = pack();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const Bytes bound = layout::max_live(problem);
  const double gap = gap_percent(solution.peak, bound);
  const layout::Check check = layout::check(problem, solution);
  fmt::print("{:<24} {:>7} {:>15} {:>15} {:>+8.3f}% {:>8.4f} s  {}  {}\n",
             file.substr(file.find_last_of('/') + 1), problem.buffers.size(), bound.value,
             solution.peak.value, gap, seconds, check.message, solution.order);
  return check && !(options.max_gap_percent && gap > *options.max_gap_percent);
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  fmt::print("{:<24} {:>7} {:>15} {:>15} {:>9} {:>10}  validity  order\n", "trace", "buffers", "bound",
             "peak", "gap", "time");
  bool good = true;
  for (const std::string& file : options.files) {
    const layout::Problem problem = layout::read_csv(file, options.alignment).problem;
    good &= report(file, problem, options, [&] { return layout::pack(problem, options.pack); });
    if (!options.each_order) continue;
    for (const std::string& order : layout::order_names())
      report(file, problem, options, [&] { return layout::pack_in_order(problem, order); });
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const snug::UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::logic_error& error) {  // a number that is none
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(snug::ExitCode::kUsage);
  }
}
