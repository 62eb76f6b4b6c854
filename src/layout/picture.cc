#include "layout/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

namespace snug::layout {
namespace {

// [0, length) + `begin` cut into `count` intervals as equal as whole numbers allow, none of them empty.
struct Axis {
  int64_t begin = 0;
  int64_t length = 1;
  int64_t count = 1;

  Axis(int64_t begin_, int64_t end, int64_t most)
      : begin(begin_), length(std::max<int64_t>(end - begin_, 1)), count(std::min(length, most)) {}
  int64_t edge(int64_t i) const { return begin + i * (length / count) + i * (length % count) / count; }
  // The interval that holds the value.
  int64_t index(int64_t value) const {
    int64_t i = std::min((value - begin) / (length / count), count - 1);  // never too small
    while (edge(i) > value) --i;
    return i;
  }
  // How much of interval `i` lies in [from, to), as a share of 1.
  double share(int64_t i, int64_t from, int64_t to) const {
    const int64_t covered = std::min(to, edge(i + 1)) - std::max(from, edge(i));
    return static_cast<double>(covered) / static_cast<double>(edge(i + 1) - edge(i));
  }
};

char symbol(const Problem& problem, size_t i) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return problem.buffers[i].persistent ? '#' : kLetters[i % kLetters.size()];
}

}  // namespace

std::string draw(const Problem& problem, const Solution& solution, int width, int height) {
  require(solution.offsets.size() == problem.buffers.size(), "layout: {} offsets for {} buffers",
          solution.offsets.size(), problem.buffers.size());
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.persistent) continue;
    begin = std::min(begin, buffer.first);
    end = std::max(end, buffer.last);
  }
  begin = std::min(begin, end);
  end = std::max(end, begin + 1);

  const Axis rows(0, solution.peak.value, std::max(height, 4) - 2);
  size_t margin = 0;
  for (int64_t row = 0; row < rows.count; ++row)
    margin = std::max(margin, format_bytes(Bytes(rows.edge(row))).size());
  const Axis columns(begin, end, std::max(width, 24) - static_cast<int>(margin) - 2);

  struct Cell {
    double covered = 0;  // share of the cell that some buffer has
    double best = 0;     // the largest share that one buffer has, and its symbol
    char symbol = '.';
  };
  std::vector<Cell> cells(static_cast<size_t>(rows.count * columns.count));
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    if (buffer.size.value == 0) continue;
    const int64_t from = buffer.persistent ? begin : buffer.first, to = buffer.persistent ? end : buffer.last;
    const int64_t low = solution.offsets[i].value, high = low + buffer.size.value;
    for (int64_t row = rows.index(low); row <= rows.index(high - 1); ++row) {
      for (int64_t column = columns.index(from); column <= columns.index(to - 1); ++column) {
        Cell& cell = cells[static_cast<size_t>(row * columns.count + column)];
        const double share = rows.share(row, low, high) * columns.share(column, from, to);
        cell.covered += share;
        if (share > cell.best) {
          cell.best = share;
          cell.symbol = symbol(problem, i);
        }
      }
    }
  }

  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  for (int64_t row = rows.count - 1; row >= 0; --row) {
    fmt::format_to(to, "{:>{}} |", format_bytes(Bytes(rows.edge(row))), margin);
    for (int64_t column = 0; column < columns.count; ++column) {
      const Cell& cell = cells[static_cast<size_t>(row * columns.count + column)];
      fmt::format_to(to, "{}", cell.covered >= 0.5 ? cell.symbol : '.');
    }
    fmt::format_to(to, "\n");
  }
  fmt::format_to(to, "{:>{}}{:-<{}}\n", "+", margin + 2, "", columns.count);
  fmt::format_to(to, "{:>{}}{}..{}\n", "", margin + 2, begin, end);
  return fmt::to_string(out);
}

}  // namespace snug::layout
