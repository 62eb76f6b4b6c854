#include "planner/chain_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/errors.h"

namespace snug::planner {
namespace {

constexpr Bytes kNever{std::numeric_limits<int64_t>::max()};
// Backlogs of a position times the runs of all positions; and how many blocks' worth of link bytes a backlog is
// thinned to.
constexpr size_t kBacklogWork = size_t{1} << 15;
constexpr size_t kLeastBacklogs = 12, kMostBacklogs = 1 << 10;
constexpr int64_t kLargestBacklog = 2;

// What the link moves while the blocks [first, end) run forward.
Bytes moved_between(const Chain& chain, size_t first, size_t end) {
  Bytes moved{0};
  for (size_t block = first; block < end; ++block) moved += chain.blocks[block].link;
  return moved;
}

void list_runs(const Chain& chain, std::optional<Bytes> excess_limit, ChainRuns& runs) {
  for (const Mode& mode : chain.modes)
    require(
        !mode.moments.empty() && mode.saved.value >= 0 && mode.link.value >= 0 && std::isfinite(mode.seconds),
        "chain: a mode without blocks, with negative bytes or without seconds");
  const size_t length = chain.blocks.size();
  for (size_t position = 0; position < length; ++position) {
    require(chain.blocks[position].link.value >= 0, "chain: block {} moves {} bytes over the link", position,
            chain.blocks[position].link.value);
    std::vector<Run>& at = runs.at.emplace_back();
    for (int32_t index : chain.lists.at(static_cast<size_t>(chain.blocks[position].list))) {
      const Mode& mode = chain.modes.at(static_cast<size_t>(index));
      const size_t end = position + mode.moments.size();
      if (end > length || (excess_limit && norm_excess(chain, mode, position) > *excess_limit)) continue;
      runs.uses_link = runs.uses_link || mode.link.value > 0;
      at.push_back({.mode = index,
                    .span = mode.span(),
                    .saved = mode.saved,
                    .need = need_at(chain, mode, position),
                    .sent = mode.link,
                    .moved = moved_between(chain, position, end),
                    .seconds = mode.seconds});
    }
  }
}

void drop_dominated(ChainRuns& all) {
  std::vector<Bytes> least(all.length() + 1, kNever);  // no plan of the rest needs a smaller allowance
  least.back() = all.head;
  for (size_t position = all.length(); position-- > 0;) {
    const auto rest = [&](const Run& run) { return least[position + static_cast<size_t>(run.span)]; };
    std::vector<Run>& runs = all.at[position];
    std::erase_if(runs, [&](const Run& run) { return rest(run) == kNever; });
    for (Run& run : runs) {
      const Bytes need = std::max(run.need, run.saved + rest(run));
      least[position] = std::min(least[position], need);
      // What the rest needs in any case. With a backlog, which the rest may have less of, the need counts alone.
      if (!all.uses_link) run.need = need;
    }
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return std::tie(a.span, a.saved, a.seconds, a.need, a.sent) <
             std::tie(b.span, b.saved, b.seconds, b.need, b.sent);
    });
    std::vector<Run> best;
    for (const Run& run : runs)
      if (std::none_of(best.begin(), best.end(), [&](const Run& other) {
            return other.span == run.span && other.seconds <= run.seconds && other.need <= run.need &&
                   other.sent <= run.sent;
          }))
        best.push_back(run);
    runs = std::move(best);
  }
  require(least.front() != kNever, "chain: no list of runs covers the chain");
}

// What can be left over on the link before each position; of more than `most` as many, evenly, up to what some
// blocks send: to queue more than that is to keep it.
void list_backlogs(ChainRuns& all, size_t most) {
  all.backlogs.assign(all.length() + 1, {});
  all.backlogs.front() = {Bytes(0)};
  Bytes largest{0};
  for (const std::vector<Run>& runs : all.at)
    for (const Run& run : runs) largest = std::max(largest, run.sent);
  largest = kLargestBacklog * largest;
  for (size_t position = 0; position <= all.length(); ++position) {
    std::vector<Bytes>& here = all.backlogs[position];
    std::sort(here.begin(), here.end());
    here.erase(std::unique(here.begin(), here.end()), here.end());
    if (here.size() > most) {
      all.rounds_backlogs = true;
      std::vector<Bytes> some;
      for (size_t step = 0; step < most; ++step) {
        const Bytes at = Bytes(largest.value / static_cast<int64_t>(most - 1)) * static_cast<int64_t>(step);
        const auto next = std::lower_bound(here.begin(), here.end(), at);
        if (next != here.end() && (some.empty() || some.back() < *next)) some.push_back(*next);
      }
      here = std::move(some);
    }
    if (position == all.length()) break;
    for (const Run& run : all.at[position]) {
      std::vector<Bytes>& there = all.backlogs[position + static_cast<size_t>(run.span)];
      for (const Bytes backlog : here) {
        const Bytes after = backlog_after(backlog, run.sent, run.moved);
        if (there.empty() || there.back() != after) there.push_back(after);
      }
    }
  }
}

}  // namespace

Bytes backlog_after(Bytes backlog, Bytes sent, Bytes moved) {
  return std::max(Bytes(0), backlog + sent - moved);
}

size_t ChainRuns::reads() const {
  size_t reads = 0;
  for (size_t position = 0; position < length(); ++position)
    reads += at[position].size() * backlogs[position].size();
  return reads;
}

std::optional<size_t> ChainRuns::backlog_index(size_t position, Bytes backlog,
                                               BacklogRounding rounding) const {
  const std::vector<Bytes>& all = backlogs[position];
  const auto above = std::lower_bound(all.begin(), all.end(), backlog);
  const auto index = static_cast<size_t>(above - all.begin());
  const bool up = rounding == BacklogRounding::kUp;
  if (above != all.end() && (*above == backlog || up)) return index;
  if (up || index == 0) return std::nullopt;
  return index - 1;
}

ChainRuns runs_of(const Chain& chain, std::optional<Bytes> excess_limit) {
  ChainRuns runs{.at = {}, .backlogs = {}, .head = chain.head};
  if (excess_limit) runs.head = std::max(runs.head, *excess_limit);
  list_runs(chain, excess_limit, runs);
  drop_dominated(runs);
  size_t count = 0;
  for (const std::vector<Run>& at : runs.at) count += at.size();
  list_backlogs(runs, std::clamp(kBacklogWork / std::max<size_t>(count, 1), kLeastBacklogs, kMostBacklogs));
  return runs;
}

}  // namespace snug::planner
