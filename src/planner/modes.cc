#include "planner/modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "planner/subsets.h"

namespace snug::planner {
namespace {

constexpr size_t kLongestSpan = 16;

struct Candidate {
  Mode mode;
  Treatment treatment;
  Subset subset = {};
  bool named = false;  // stays, because a named plan uses it
};

bool at_least_as_good(const Mode& a, const Mode& b) {
  if (a.saved > b.saved || a.seconds > b.seconds) return false;
  for (size_t block = 0; block < a.moments.size(); ++block)
    if (a.moments[block].forward > b.moments[block].forward ||
        a.moments[block].backward > b.moments[block].backward ||
        a.moments[block].norm > b.moments[block].norm)
      return false;
  return true;
}

// In order of saved bytes, without those that another of the same span is at least as good as.
std::vector<Candidate> front_of(std::vector<Candidate> all) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.mode.saved, a.mode.seconds) < std::pair(b.mode.saved, b.mode.seconds);
  });
  std::vector<Candidate> front;
  for (Candidate& each : all)
    if (each.named || std::none_of(front.begin(), front.end(), [&](const Candidate& other) {
          return at_least_as_good(other.mode, each.mode);
        }))
      front.push_back(std::move(each));
  return front;
}

// Indices of those that are best at some price of a byte, in order of saved bytes.
std::vector<size_t> hull_of(const std::vector<Candidate>& front) {
  std::vector<size_t> hull;
  for (size_t index = 0; index < front.size(); ++index) {
    const auto slope = [&](size_t from, size_t to) {
      return (front[to].mode.seconds - front[from].mode.seconds) /
             static_cast<double>(
                 std::max<int64_t>(front[to].mode.saved.value - front[from].mode.saved.value, 1));
    };
    if (!hull.empty() && front[index].mode.seconds >= front[hull.back()].mode.seconds) continue;
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), index))
      hull.pop_back();
    hull.push_back(index);
  }
  return hull;
}

std::vector<Candidate> thinned(std::vector<Candidate> front, size_t most) {
  if (front.size() <= most) return front;
  std::vector<bool> stays(front.size(), false);
  for (size_t index : hull_of(front)) stays[index] = true;
  for (size_t index = 0; index < most; ++index) stays[index * front.size() / most] = true;
  std::vector<Candidate> thin;
  for (size_t index = 0; index < front.size(); ++index)
    if (stays[index] || front[index].named) thin.push_back(std::move(front[index]));
  return thin;
}

class Pricing {
 public:
  Pricing(const Graph& graph, const Anatomy& anatomy, const Finish& finish, PriceBook& book,
          const ChainOptions& options)
      : graph_(graph),
        anatomy_(anatomy),
        finish_(finish),
        book_(book),
        prices_(book.ops()),
        options_(options) {}

  PricedChain run() {
    sweep_whole();
    for (size_t block = 0; block < length(); ++block)
      if (!sorts_.contains(sort(block))) price_sort(block);
    list_modes();
    calibrate();
    name_plans();
    return std::move(made_);
  }

 private:
  // One sort of block, priced on the first block of that sort.
  struct Sort {
    Savable savable;
    std::vector<int32_t> modes;  // of span 1
    std::vector<Subset> front;   // of the same
    // Those that longer runs are priced with, without and with compression.
    std::vector<Subset> runs, compressed_runs;
    int32_t all = -1, nothing = -1;  // modes: everything kept, nothing but the input kept
    double keep_forward_seconds = 0, keep_backward_seconds = 0;  // with everything kept
    uint32_t everything() const { return (uint32_t{1} << savable.items.size()) - 1; }
  };
  // A run of several blocks: their sorts, and whether the first block's input may be dropped with it.
  using Sequence = std::pair<std::vector<int32_t>, bool>;
  struct Run {
    std::vector<int32_t> modes;
    int32_t uniform = -1;  // nothing kept, all made again once
  };

  size_t length() const { return anatomy_.blocks.size(); }
  int32_t sort(size_t block) const { return anatomy_.blocks[block].alike; }
  const Sort& sort_of(size_t block) const { return sorts_.at(sort(block)); }
  size_t longest_span() const {
    const auto root = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(length()))));
    return std::min({length(), root + 2, kLongestSpan});
  }

  // What `subset` makes of each value of `block`; `lost` is the fate of what is made again.
  std::vector<Retention> fates(size_t block, Subset subset, Retention lost, bool drops_boundary) const {
    const Anatomy::Block& of = anatomy_.blocks[block];
    const Savable& savable = sort_of(block).savable;
    const bool keeps_all = subset.kept == sort_of(block).everything() && !drops_boundary;
    std::vector<Retention> fates(of.values.size(), keeps_all ? Retention::kKeep : lost);
    for (size_t value : savable.always_kept) fates[value] = Retention::kKeep;
    for (size_t item = 0; item < savable.items.size(); ++item)
      for (size_t value : savable.items[item].values) {
        if ((subset.kept >> item) & 1) fates[value] = Retention::kKeep;
        if ((subset.compressed >> item) & 1) fates[value] = Retention::kCompress;
      }
    for (size_t value = 0; value < fates.size(); ++value)
      if (of.leaving[value])
        fates[value] = of.boundary[value] && drops_boundary ? Retention::kRecompute : Retention::kKeep;
    return fates;
  }

  Treatment treatment(size_t first, size_t count, Subset subset, Retention lost, Retention source) const {
    Treatment made{.values = {}, .source = source};
    for (size_t block = first; block < first + count; ++block)
      made.values.push_back(fates(block, subset, lost, block + 1 < first + count));
    return made;
  }

  // By the book.
  SlicePrice priced(const Slice& of, PriceBook::Notes& notes, const Retentions& retentions) {
    std::string key;
    for (Retention retention : retentions) key += static_cast<char>('0' + static_cast<int>(retention));
    const auto [known, is_new] = notes.prices.try_emplace(key);
    if (is_new) known->second = price(of, retentions, finish_, prices_);
    SlicePrice found = known->second;
    if (!made_.chain.backward_twice) return found;
    const auto [norms, are_new] = notes.norms.try_emplace(std::move(key));
    if (are_new) norms->second = norm_moments(of, retentions, finish_, prices_);
    for (size_t block = 0; block < of.count; ++block) found.moments[block].norm = norms->second[block];
    return found;
  }

  Candidate candidate(const Slice& of, PriceBook::Notes& notes, Subset subset, Treatment treatment) {
    Retentions retentions(of.graph.tensors.size(), Retention::kKeep);
    for (size_t block = 0; block < of.count; ++block)
      for (size_t value = 0; value < of.values[block].size(); ++value)
        retentions[of.values[block][value].index()] = treatment.values[block][value];
    for (TensorId value : of.source_values) retentions[value.index()] = treatment.source;
    SlicePrice found = priced(of, notes, retentions);
    double forward = found.forward_seconds - (of.source_values.empty() ? 0 : source_seconds());
    double backward = found.backward_seconds;
    for (size_t block = of.first; block < of.first + of.count; ++block) {
      forward -= sort_of(block).keep_forward_seconds;
      backward -= sort_of(block).keep_backward_seconds;
    }
    // All repeated work belongs to the backward.
    const double seconds = forward + (made_.chain.backward_twice ? 2 : 1) * backward;
    return {.mode = {.saved = found.saved, .seconds = seconds, .moments = std::move(found.moments)},
            .treatment = std::move(treatment),
            .subset = subset};
  }

  double source_seconds() {
    double seconds = 0;
    for (size_t op : anatomy_.source) seconds += prices_(graph_, graph_.ops[op]).seconds;
    return seconds;
  }

  int32_t add(Candidate candidate) {
    made_.chain.modes.push_back(std::move(candidate.mode));
    made_.treatments.push_back(std::move(candidate.treatment));
    return static_cast<int32_t>(made_.chain.modes.size()) - 1;
  }

  size_t per_sort(size_t times_blocks, size_t least) const {
    return std::clamp<size_t>(times_blocks / length(), least, 1024);
  }

  void price_sort(size_t block) {
    const Slice alone = slice(graph_, anatomy_, block, 1, false);
    PriceBook::Notes& notes = book_.notes(alone, options_.passes);
    Sort& priced = sorts_[sort(block)];
    priced.savable = savable_values(alone, anatomy_.blocks[block], prices_, options_.compresses);
    const uint32_t all = priced.everything();
    const SlicePrice keep =
        this->priced(alone, notes, Retentions(alone.graph.tensors.size(), Retention::kKeep));
    priced.keep_forward_seconds = keep.forward_seconds;
    priced.keep_backward_seconds = keep.backward_seconds;
    const size_t most_priced = per_sort(options_.priced_times_blocks, options_.least_priced);
    const size_t most_listed = per_sort(options_.listed_times_blocks, options_.least_listed);
    const auto candidates = [&](const std::vector<Subset>& subsets) {
      std::vector<Candidate> made;
      for (Subset subset : subsets) {
        made.push_back(candidate(alone, notes, subset,
                                 treatment(block, 1, subset, Retention::kRecompute, Retention::kKeep)));
        made.back().named = subset == Subset{.kept = 0} || subset == Subset{.kept = all};
      }
      return made;
    };
    const auto subsets = [&](bool compressed, const auto& find) {
      const auto [known, is_new] = notes.subsets.try_emplace({most_priced, compressed});
      if (is_new) known->second = find();
      return known->second;
    };
    const std::vector<Subset> exact =
        subsets(false, [&] { return promising_subsets(alone, priced.savable, most_priced, prices_); });
    std::vector<Candidate> front = thinned(front_of(candidates(exact)), most_listed);
    priced.runs = run_sets(front, Subset{.kept = 0});
    if (options_.compresses) {
      // Beside the exact modes, so that permission makes no plan slower.
      std::vector<Candidate> compressed = candidates(subsets(
          true, [&] { return promising_compressions(alone, priced.savable, exact, most_priced, prices_); }));
      std::erase_if(compressed, [&](const Candidate& each) {
        return std::any_of(front.begin(), front.end(),
                           [&](const Candidate& other) { return at_least_as_good(other.mode, each.mode); });
      });
      compressed = thinned(front_of(std::move(compressed)), most_listed);
      if (!compressed.empty()) priced.compressed_runs = run_sets(compressed, compressed.front().subset);
      std::move(compressed.begin(), compressed.end(), std::back_inserter(front));
    }
    for (const Candidate& each : front) {
      const int32_t mode = add(each);
      priced.modes.push_back(mode);
      priced.front.push_back(each.subset);
      if (each.subset == Subset{.kept = 0}) priced.nothing = mode;
      if (each.subset == Subset{.kept = all}) priced.all = mode;
    }
  }

  // Runs of several blocks are for budgets below one input a block: subsets of few bytes.
  static std::vector<Subset> run_sets(const std::vector<Candidate>& front, Subset first) {
    constexpr size_t kMost = 6;
    std::vector<Subset> small, sets = {first};
    const Bytes least = front.front().mode.saved, most = front.back().mode.saved;
    for (size_t index : hull_of(front))
      if (front[index].subset != first && 2 * (front[index].mode.saved - least) <= most - least)
        small.push_back(front[index].subset);
    for (size_t index = 0; index < std::min(kMost, small.size()); ++index)
      sets.push_back(small[index * small.size() / std::min(kMost, small.size())]);
    return sets;
  }

  Sequence sequence(size_t first, size_t count, bool with_source) const {
    Sequence made{{}, with_source};
    for (size_t block = first; block < first + count; ++block) made.first.push_back(sort(block));
    return made;
  }

  void price_run(size_t first, size_t count, bool with_source) {
    const Sequence key = sequence(first, count, with_source);
    if (runs_.contains(key) || runs_.size() >= options_.most_sequences * (with_source ? 2 : 1)) return;
    const Slice of = slice(graph_, anatomy_, first, count, with_source);
    PriceBook::Notes& notes = book_.notes(of, options_.passes);
    const bool alike = std::all_of(key.first.begin(), key.first.end(),
                                   [&](int32_t other) { return other == key.first.front(); });
    std::vector<Subset> sets = {Subset{.kept = 0}};
    if (alike && count == 1) sets = sort_of(first).front;
    if (alike && count > 1 && count <= 6 && !with_source) {
      sets.clear();
      for (const std::vector<Subset>* some : {&sort_of(first).runs, &sort_of(first).compressed_runs})
        sets.insert(
            sets.end(), some->begin(),
            some->begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(some->size(), count > 3 ? 3 : 7)));
    }
    const Retention source = with_source ? Retention::kRecompute : Retention::kKeep;
    std::vector<Candidate> candidates;
    for (Subset subset : sets)
      for (Retention lost : {Retention::kRecompute, Retention::kRecomputeEachBlock}) {
        if (count == 1 && lost == Retention::kRecomputeEachBlock) continue;
        candidates.push_back(candidate(of, notes, subset, treatment(first, count, subset, lost, source)));
        candidates.back().named = subset == Subset{.kept = 0} && lost == Retention::kRecompute;
      }
    Run& run = runs_[key];
    // As in price_sort: permission adds modes and takes none away.
    const auto compressed =
        std::stable_partition(candidates.begin(), candidates.end(),
                              [](const Candidate& each) { return !each.treatment.compresses(); });
    std::vector<Candidate> others(std::make_move_iterator(compressed),
                                  std::make_move_iterator(candidates.end()));
    candidates.erase(compressed, candidates.end());
    std::vector<Candidate> front = front_of(std::move(candidates));
    std::erase_if(others, [&](const Candidate& each) {
      return std::any_of(front.begin(), front.end(),
                         [&](const Candidate& other) { return at_least_as_good(other.mode, each.mode); });
    });
    others = front_of(std::move(others));
    std::move(others.begin(), others.end(), std::back_inserter(front));
    for (Candidate& each : front) {
      const bool named = each.named;
      run.modes.push_back(add(std::move(each)));
      if (named) run.uniform = run.modes.back();
    }
  }

  void list_modes() {
    std::map<std::vector<int32_t>, int32_t> lists;
    for (size_t block = 0; block < length(); ++block) {
      std::vector<int32_t> list = sort_of(block).modes;
      for (size_t count = 1; count <= longest_span() && block + count <= length(); ++count)
        for (bool with_source : {false, true}) {
          // Behind a longer run the source saves little more than the input that it makes.
          const bool possible =
              with_source ? block == 0 && count <= 2 && !anatomy_.source.empty() : count > 1;
          if (!possible) continue;
          price_run(block, count, with_source);
          const auto run = runs_.find(sequence(block, count, with_source));
          if (run != runs_.end()) list.insert(list.end(), run->second.modes.begin(), run->second.modes.end());
        }
      const auto [found, is_new] = lists.try_emplace(list, static_cast<int32_t>(made_.chain.lists.size()));
      if (is_new) made_.chain.lists.push_back(std::move(list));
      made_.chain.blocks.push_back({.list = found->second, .fixed = {}});
    }
  }

  // The whole graph with everything kept, after all passes.
  void sweep_whole() {
    Graph whole = graph_;
    finish_(whole);
    const Sweep swept = sweep(whole, prices_);
    const std::vector<int32_t> serving = serving_blocks(whole);
    made_.chain.step_seconds = swept.all_seconds;
    const Bytes always = swept.always + options_.outside;

    most_.resize(length());
    size_t first = whole.ops.size(), last = 0, first_backward = whole.ops.size();
    int32_t before = -1;  // the block of the last backward operation
    for (size_t op_idx = 0; op_idx < whole.ops.size(); ++op_idx) {
      if (serving[op_idx] < 0) continue;
      first = std::min(first, op_idx);
      last = op_idx;
      Moments& at = most_[static_cast<size_t>(serving[op_idx])];
      const bool forward = whole.ops[op_idx].part == Part::kForward;
      const Bytes held = always + swept.held[op_idx];
      if (forward) {
        at.forward = std::max(at.forward, held);
        continue;
      }
      first_backward = std::min(first_backward, op_idx);
      // From the first block back to a later one: what ran so far was for the norm.
      if (before >= 0 && serving[op_idx] > before) {
        made_.chain.backward_twice = true;
        for (Moments& moments : most_) moments.norm = std::exchange(moments.backward, Bytes(0));
        first_backward = op_idx;
      }
      before = serving[op_idx];
      at.backward = std::max(at.backward, held);
    }
    for (size_t op_idx = 0; op_idx < whole.ops.size(); ++op_idx) {
      if (serving[op_idx] >= 0) continue;
      const Bytes held = always + swept.held[op_idx];
      if (op_idx < first || op_idx > last)
        made_.chain.floor = std::max(made_.chain.floor, held);
      else if (op_idx < first_backward)
        head_ = std::max(head_, held);
    }
  }

  // What the whole graph's moments hold besides what the slices know of.
  void calibrate() {
    Bytes all_saved{0};
    for (size_t block = 0; block < length(); ++block) all_saved += keep_all(block).saved;
    Bytes saved{0};  // of the blocks before
    for (size_t block = 0; block < length(); ++block) {
      const Mode& keep = keep_all(block);
      Moments& fixed = made_.chain.blocks[block].fixed;
      fixed.forward = most_[block].forward - saved - keep.moments[0].forward;
      fixed.backward = most_[block].backward - saved - keep.moments[0].backward;
      fixed.norm = most_[block].norm - all_saved - (keep.moments[0].norm - keep.saved);
      saved += keep.saved;
    }
    made_.chain.head = head_ - all_saved;
  }

  const Mode& keep_all(size_t block) const {
    return made_.chain.modes[static_cast<size_t>(sort_of(block).all)];
  }

  void name_plans() {
    NamedPlan none{.name = "none", .modes = {}}, block_plan{.name = "block", .modes = {}};
    for (size_t block = 0; block < length(); ++block) {
      none.modes.push_back(sort_of(block).all);
      block_plan.modes.push_back(sort_of(block).nothing);
    }
    made_.named = {std::move(none), std::move(block_plan)};
    for (size_t every = 2; every <= longest_span(); ++every) {
      NamedPlan plan{.name = fmt::format("uniform:{}", every), .modes = {}};
      bool complete = true;
      for (size_t block = 0; block < length() && complete; block += every) {
        const size_t count = std::min(every, length() - block);
        const auto run = runs_.find(sequence(block, count, false));
        complete = count == 1 || run != runs_.end();
        if (complete) plan.modes.push_back(count == 1 ? sort_of(block).nothing : run->second.uniform);
      }
      if (complete) made_.named.push_back(std::move(plan));
    }
  }

  const Graph& graph_;
  const Anatomy& anatomy_;
  const Finish& finish_;
  PriceBook& book_;
  OpPrices& prices_;
  const ChainOptions& options_;
  std::map<int32_t, Sort> sorts_;
  std::map<Sequence, Run> runs_;
  std::vector<Moments> most_;  // per block: the most that the whole graph holds during it, everything kept
  Bytes head_;  // the same before the blocks' last backward: everything saved is held until then
  PricedChain made_;
};

}  // namespace

bool Treatment::compresses() const {
  return std::any_of(values.begin(), values.end(), [](const std::vector<Retention>& fates) {
    return std::find(fates.begin(), fates.end(), Retention::kCompress) != fates.end();
  });
}

PricedChain priced_chain(const Graph& graph, const Anatomy& anatomy, const Finish& finish, PriceBook& book,
                         const ChainOptions& options) {
  require(!anatomy.blocks.empty(), "planner: a graph without blocks");
  return Pricing(graph, anatomy, finish, book, options).run();
}

Retentions retentions_of(const Graph& graph, const Anatomy& anatomy, const PricedChain& priced,
                         const std::vector<int32_t>& modes) {
  Retentions retentions(graph.tensors.size(), Retention::kKeep);
  size_t position = 0;
  for (int32_t mode : modes) {
    const Treatment& treatment = priced.treatments.at(static_cast<size_t>(mode));
    if (treatment.source != Retention::kKeep)
      for (TensorId value : anatomy.source_values) retentions[value.index()] = treatment.source;
    for (const std::vector<Retention>& fates : treatment.values) {
      const std::vector<TensorId>& values = anatomy.blocks.at(position++).values;
      for (size_t value = 0; value < values.size(); ++value) retentions[values[value].index()] = fates[value];
    }
  }
  require(position == anatomy.blocks.size(), "planner: the modes cover {} of {} blocks", position,
          anatomy.blocks.size());
  return retentions;
}

}  // namespace snug::planner
