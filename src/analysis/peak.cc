#include "analysis/peak.h"

#include <algorithm>

#include "base/errors.h"

namespace snug {

std::vector<PhasePeak> phase_peaks(const Program& program, const Timeline& timeline, Bytes alignment) {
  std::vector<int64_t> held(static_cast<size_t>(timeline.moments) + 1, 0);
  for (const TimelineBuffer& buffer : timeline.buffers) {
    if (buffer.first == buffer.last) continue;
    const int64_t bytes = round_up(buffer.bytes, alignment).value;
    held[static_cast<size_t>(buffer.first)] = checked_add(held[static_cast<size_t>(buffer.first)], bytes);
    held[static_cast<size_t>(buffer.last)] -= bytes;
  }
  for (size_t moment = 1; moment < held.size(); ++moment)
    held[moment] = checked_add(held[moment], held[moment - 1]);

  std::vector<PhasePeak> peaks;
  for (size_t phase_idx = 0; phase_idx < program.phases.size(); ++phase_idx) {
    const Graph& graph = program.phases[phase_idx].graph;
    PhasePeak peak{.phase = graph.name,
                   .operation = {},
                   .moment = timeline.first_moment[phase_idx],
                   .bytes = {},
                   .categories = {}};
    if (!graph.ops.empty()) {
      const auto begin = held.begin() + peak.moment;
      const auto most = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(graph.ops.size()));
      peak.operation = graph.ops[static_cast<size_t>(most - begin)].name;
      peak.moment += most - begin;
      peak.bytes = Bytes(*most);
      for (const TimelineBuffer& buffer : timeline.buffers)
        if (buffer.first <= peak.moment && peak.moment < buffer.last)
          peak.categories.at(static_cast<size_t>(buffer.category)) += round_up(buffer.bytes, alignment);
    }
    peaks.push_back(std::move(peak));
  }
  return peaks;
}

std::array<Bytes, kCategories> category_peaks(const Timeline& timeline, Bytes alignment) {
  std::array<std::vector<int64_t>, kCategories> changes;
  for (std::vector<int64_t>& of : changes) of.assign(static_cast<size_t>(timeline.moments) + 1, 0);
  for (const TimelineBuffer& buffer : timeline.buffers) {
    std::vector<int64_t>& of = changes.at(static_cast<size_t>(buffer.category));
    const int64_t bytes = round_up(buffer.bytes, alignment).value;
    of[static_cast<size_t>(buffer.first)] = checked_add(of[static_cast<size_t>(buffer.first)], bytes);
    of[static_cast<size_t>(buffer.last)] -= bytes;
  }
  std::array<Bytes, kCategories> peaks;
  for (size_t category = 0; category < kCategories; ++category) {
    int64_t held = 0;
    for (int64_t change : changes[category]) {
      held = checked_add(held, change);
      peaks[category] = std::max(peaks[category], Bytes(held));
    }
  }
  return peaks;
}

const PhasePeak& largest_peak(const std::vector<PhasePeak>& peaks) {
  require(!peaks.empty(), "largest_peak: a program without phases");
  return *std::max_element(peaks.begin(), peaks.end(),
                           [](const PhasePeak& a, const PhasePeak& b) { return a.bytes < b.bytes; });
}

}  // namespace snug
