#include "layout/check.h"

#include <array>

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

  for (size_t i = 0; i < count; ++i) {
    const int64_t begin = solution.offsets[i].value;
    const int64_t end = begin + problem.buffers[i].size.value;
    if (begin == end) continue;
    for (size_t j = i + 1; j < count; ++j) {
      const int64_t other_begin = solution.offsets[j].value;
      const int64_t other_end = other_begin + problem.buffers[j].size.value;
      const bool share_a_byte = begin < other_end && other_begin < end && other_begin < other_end;
      if (share_a_byte && share_a_moment(problem.buffers[i], problem.buffers[j]))
        return {Verdict::kOverlap,
                describe(problem, solution, i) + " overlaps " + describe(problem, solution, j)};
    }
  }
  return {Verdict::kGood, "good"};
}

}  // namespace snug::layout
