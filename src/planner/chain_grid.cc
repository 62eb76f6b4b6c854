#include "planner/chain_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace snug::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bytes kNever{std::numeric_limits<int64_t>::max()};

// The values of a row from point `first` on become at most made(where the rest's row begins for the first, point behind it), and behind the
// rest's row its last value. A point p of the row reads p + shift … p + shift + further of the rest's.
template <typename Row, typename Way, typename Made>
void add(Row& row, const Way& way, size_t first, int64_t shift, int64_t further, const Made& made) {
  const std::vector<double>& rest = way.rest->seconds;
  const auto begin = static_cast<int64_t>(first);
  const int64_t inside = std::clamp<int64_t>(static_cast<int64_t>(rest.size()) - further - shift, begin,
                                             static_cast<int64_t>(row.seconds.size()));
  const auto count = static_cast<size_t>(inside - begin);
  double* const to = row.seconds.data() + first;
  if (count > 0) {
    const double* const from = rest.data() + (begin + shift);
    for (size_t point = 0; point < count; ++point) {
      const double value = made(from, point);
      to[point] = value < to[point] ? value : to[point];
    }
  }
  const double last = way.run->seconds + rest.back();
  for (size_t point = count; point < row.seconds.size() - first; ++point)
    to[point] = last < to[point] ? last : to[point];
}

// Rounded towards plus infinity; `divisor` > 0.
int64_t ceil_of(int64_t number, int64_t divisor) {
  return number > 0 ? (number - 1) / divisor + 1 : -(-number / divisor);
}

}  // namespace

std::vector<ChainGrid::Way> ChainGrid::ways_from(const ChainRuns& runs, size_t position,
                                                 size_t backlog) const {
  const Bytes queued = runs.backlogs[position][backlog];
  const BacklogRounding rounding = values_ == Values::kBelow ? BacklogRounding::kDown : BacklogRounding::kUp;
  std::vector<Way> ways;
  for (const Run& run : runs.at[position]) {
    const size_t end = position + static_cast<size_t>(run.span);
    const std::optional<size_t> next =
        runs.backlog_index(end, backlog_after(queued, run.sent, run.moved), rounding);
    if (!next || rows_[end][*next].least == kNever) continue;
    const Row& rest = rows_[end][*next];
    ways.push_back({&run, &rest, std::max(run.need + queued, run.saved + rest.least)});
  }
  return ways;
}

ChainGrid::ChainGrid(const ChainRuns& runs, Values values, size_t points) : values_(values) {
  const size_t length = runs.length();
  rows_.resize(length + 1);
  for (Bytes backlog : runs.backlogs.back())
    rows_.back().push_back(
        {.least = runs.head + backlog, .most = runs.head + backlog, .fewest = 0, .seconds = {0.0}});
  // Where the rows begin and end.
  for (size_t position = length; position-- > 0;)
    for (size_t backlog = 0; backlog < runs.backlogs[position].size(); ++backlog) {
      Row row{.least = kNever, .most = kNever, .fewest = kInfinity, .seconds = {}};
      for (const Way& way : ways_from(runs, position, backlog)) {
        row.least = std::min(row.least, way.need);
        const std::pair fastest(way.run->seconds + way.rest->fewest,
                                std::max(way.need, way.run->saved + way.rest->most));
        if (fastest < std::pair(row.fewest, row.most)) std::tie(row.fewest, row.most) = fastest;
      }
      rows_[position].push_back(std::move(row));
    }
  const Row& whole = rows_.front().front();
  if (whole.least == kNever) return;
  step_bytes_ = std::max<int64_t>(
      1, ceil_of((whole.most - whole.least).value, static_cast<int64_t>(std::max<size_t>(points, 2)) - 1));
  per_step_ = 1 / static_cast<double>(step_bytes_);

  std::vector<Bytes> saved(length + 1, kNever);  // at least, by the runs before a position
  saved.front() = Bytes(0);
  for (size_t position = 0; position < length; ++position)
    for (const Run& run : runs.at[position])
      if (saved[position] != kNever) {
        Bytes& behind = saved[position + static_cast<size_t>(run.span)];
        behind = std::min(behind, saved[position] + run.saved);
      }
  for (size_t position = length; position-- > 0;)
    for (size_t backlog = 0; backlog < rows_[position].size(); ++backlog) {
      Row& row = rows_[position][backlog];
      if (row.least == kNever || saved[position] == kNever) {
        row.least = kNever;
        continue;
      }
      fill(row, ways_from(runs, position, backlog), std::min(row.most, whole.most - saved[position]));
    }
}

void ChainGrid::fill(Row& row, const std::vector<Way>& ways, Bytes last) const {
  const int64_t intervals = last > row.least ? ceil_of((last - row.least).value, step_bytes_) : 0;
  row.seconds.assign(static_cast<size_t>(intervals) + 1, kInfinity);
  for (const Way& way : ways) {
    const int64_t first = ceil_of((way.need - row.least).value, step_bytes_);
    if (first > intervals) continue;
    if (values_ == Values::kBetween)
      add_between(row, way, static_cast<size_t>(first));
    else
      add_below(row, way, static_cast<size_t>(first));
  }
}

void ChainGrid::add_between(Row& row, const Way& way, size_t first) const {
  // The first point leaves the rest its least at least, whatever the rounding says.
  const double offset =
      std::max(static_cast<double>((row.least - way.run->saved - way.rest->least).value) * per_step_,
               -static_cast<double>(first));
  const double whole = std::floor(offset);
  const double upper = offset - whole, lower = 1 - upper, seconds = way.run->seconds;
  add(row, way, first, static_cast<int64_t>(whole), 1, [&](const double* from, size_t point) {
    return seconds + (lower * from[point] + upper * from[point + 1]);
  });
}

void ChainGrid::add_below(Row& row, const Way& way, size_t first) const {
  const double seconds = way.run->seconds;
  const int64_t shift = ceil_of((row.least - way.run->saved - way.rest->least).value, step_bytes_);
  add(row, way, first, shift, 0, [&](const double* from, size_t point) { return seconds + from[point]; });
}

double ChainGrid::seconds(size_t position, size_t backlog, Bytes allowance) const {
  const Row& row = rows_[position][backlog];
  const auto last = static_cast<int64_t>(row.seconds.size()) - 1;
  const int64_t above = (allowance - row.least).value;
  if (values_ == Values::kBelow)
    return row.seconds[static_cast<size_t>(std::clamp<int64_t>(ceil_of(above, step_bytes_), 0, last))];
  const double at = static_cast<double>(above) * per_step_;
  const auto point = static_cast<int64_t>(at);
  if (point >= last) return row.seconds.back();
  const double upper = at - static_cast<double>(point);
  const auto index = static_cast<size_t>(point);
  return (1 - upper) * row.seconds[index] + upper * row.seconds[index + 1];
}

}  // namespace snug::planner
