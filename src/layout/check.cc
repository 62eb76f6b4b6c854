#include "layout/check.h"

#include <algorithm>
#include <array>
#include <vector>

namespace snug::layout {
namespace {

// Where a buffer lies, for a message.
std::string describe(const Problem& problem, const Solution& solution, size_t i) {
  const Buffer& buffer = problem.buffers[i];
  const int64_t offset = solution.offsets[i].value;
  const std::string lifetime =
      buffer.persistent ? "at every moment" : fmt::format("in moments [{}, {})", buffer.first, buffer.last);
  return fmt::format("buffer {} ({} bytes at offset {}, alive {})", i, buffer.size.value, offset, lifetime);
}

bool share_a_moment(const Buffer& a, const Buffer& b) {
  return a.persistent || b.persistent || (a.first < b.last && b.first < a.last);
}

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::array<std::string_view, 6> kNames = {"good",       "wrong count", "negative offset",
                                                      "misaligned", "above peak",  "overlap"};
  return kNames.at(static_cast<size_t>(verdict));
}

Check check(const Problem& problem, const Solution& solution) {
  const size_t count = problem.buffers.size();
  if (solution.offsets.size() != count)
    return {Verdict::kWrongCount, fmt::format("{} offsets for {} buffers", solution.offsets.size(), count)};

  for (size_t i = 0; i < count; ++i)
    if (solution.offsets[i].value < 0)
      return {Verdict::kNegativeOffset, describe(problem, solution, i) + " begins below 0"};

  for (size_t i = 0; i < count; ++i)
    if (solution.offsets[i].value % problem.alignment.value != 0)
      return {Verdict::kMisaligned, fmt::format("{} is not aligned to {} bytes",
                                                describe(problem, solution, i), problem.alignment.value)};

  for (size_t i = 0; i < count; ++i)
    if (solution.offsets[i] + problem.buffers[i].size > solution.peak)
      return {Verdict::kAbovePeak, fmt::format("{} ends above the peak of {} bytes",
                                               describe(problem, solution, i), solution.peak.value)};

  // All pairs that share a byte: by rising offset, those of a buffer begin before it ends.
  std::vector<size_t> by_offset;
  for (size_t i = 0; i < count; ++i)
    if (problem.buffers[i].size > Bytes(0)) by_offset.push_back(i);
  std::sort(by_offset.begin(), by_offset.end(),
            [&](size_t a, size_t b) { return solution.offsets[a] < solution.offsets[b]; });
  for (auto i = by_offset.begin(); i != by_offset.end(); ++i) {
    const Buffer& buffer = problem.buffers[*i];
    const Bytes end = solution.offsets[*i] + buffer.size;
    for (auto j = i + 1; j != by_offset.end() && solution.offsets[*j] < end; ++j)
      if (share_a_moment(buffer, problem.buffers[*j]))
        return {Verdict::kOverlap, describe(problem, solution, std::min(*i, *j)) + " overlaps " +
                                       describe(problem, solution, std::max(*i, *j))};
  }
  return {Verdict::kGood, "good"};
}

}  // namespace snug::layout
