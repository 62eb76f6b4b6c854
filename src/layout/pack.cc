#include "layout/pack.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "layout/first_fit.h"

namespace snug::layout {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Squeaky wheel: a box that found no place at position p comes at position p / kPromotion next time. Of 2,
// 4/3, 8 and "to the front", 8 did best on the traces of bench/layout. Small problems end by passes, large
// ones by work.
constexpr size_t kPromotion = 8;
constexpr int kPassesPerOrder = 1000;

// The problem as first fit wants it. Box sizes are in units of the alignment, above `bottom`; times are ranks
// of the moments at which some buffer begins, which keeps exactly the pairs that share a moment.
struct Task {
  int64_t bottom = 0;                  // units below all boxes: persistent buffers
  std::vector<int64_t> bottom_offset;  // of every buffer of the problem; -1 for one that is a box
  std::vector<Box> boxes;
  std::vector<size_t> buffer_of;  // box -> buffer of the problem
  int32_t times = 0;
  int64_t bound = 0;                                       // max-live of the boxes, units
  int32_t peak_time = 0;                                   // the first time at which most units live
  int32_t stay_end = std::numeric_limits<int32_t>::max();  // a box of the peak stays when it lives until here
  // The two times at which boxes are nested deepest: the end of the forward and that of the backward, as a rule.
  int32_t turn = 0, joint = 0;
};

bool lives_at(const Box& box, int32_t time) { return box.first <= time && time < box.last; }

// The time at which the boxes are nested deepest: of the largest sum of  size · times to the nearer end of the
// lifetime. Boxes that live at the time `without` do not count.
int32_t deepest_time(const Task& task, int32_t without) {
  // Changes of the sum's slope: it rises to the middle of a lifetime and falls behind it.
  std::vector<int64_t> bend(static_cast<size_t>(task.times) + 1, 0);
  for (const Box& box : task.boxes) {
    if (lives_at(box, without)) continue;
    const int32_t half = (box.last - box.first) / 2;
    bend[static_cast<size_t>(box.first)] += box.size;
    bend[static_cast<size_t>(box.first + half)] -= box.size;
    bend[static_cast<size_t>(box.last - half)] -= box.size;
    bend[static_cast<size_t>(box.last)] += box.size;
  }
  double sum = 0, slope = 0, most = 0;
  int32_t deepest = 0;
  for (int32_t time = 0; time < task.times; ++time) {
    if (sum > most) {
      most = sum;
      deepest = time;
    }
    slope += static_cast<double>(bend[static_cast<size_t>(time)]);
    sum += slope;
  }
  return deepest;
}

Task make_task(const Problem& problem) {
  Task task;
  const Bytes bound = max_live(problem);
  const int64_t unit = problem.alignment.value;
  const size_t count = problem.buffers.size();

  int64_t begin = kNoLimit, end = 0;
  std::vector<int64_t> starts;
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.persistent || buffer.size.value == 0) continue;
    begin = std::min(begin, buffer.first);
    end = std::max(end, buffer.last);
    starts.push_back(buffer.first);
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  require(starts.size() < std::numeric_limits<int32_t>::max(), "layout: {} distinct moments", starts.size());
  task.times = static_cast<int32_t>(starts.size());
  // How many starts lie before the moment: the rank of a first moment, and the end of a lifetime's ranks.
  const auto rank = [&](int64_t moment) {
    return static_cast<int32_t>(std::lower_bound(starts.begin(), starts.end(), moment) - starts.begin());
  };

  // Persistent buffers first, so that their places depend on nothing else.
  task.bottom_offset.assign(count, -1);
  const auto to_bottom = [&](size_t i) {
    task.bottom_offset[i] = problem.buffers[i].size.value == 0 ? 0 : task.bottom;
    task.bottom += ceil_div(problem.buffers[i].size.value, unit);
  };
  for (size_t i = 0; i < count; ++i)
    if (problem.buffers[i].persistent) to_bottom(i);
  for (size_t i = 0; i < count; ++i) {
    const Buffer& buffer = problem.buffers[i];
    if (buffer.persistent) continue;
    if (buffer.size.value == 0) {
      task.bottom_offset[i] = 0;
    } else if (buffer.first == begin && buffer.last == end) {
      to_bottom(i);
    } else {
      task.boxes.push_back({.first = rank(buffer.first),
                            .last = rank(buffer.last),
                            .size = ceil_div(buffer.size.value, unit)});
      task.buffer_of.push_back(i);
    }
  }
  task.bound = bound.value / unit - task.bottom;

  std::vector<int64_t> change(static_cast<size_t>(task.times) + 1);
  for (const Box& box : task.boxes) {
    change[static_cast<size_t>(box.first)] += box.size;
    change[static_cast<size_t>(box.last)] -= box.size;
  }
  for (int64_t live = 0; live < task.bound; ++task.peak_time)
    live += change[static_cast<size_t>(task.peak_time)];
  if (task.peak_time > 0) --task.peak_time;

  // Where nothing of the peak ends for the longest time: gradients outlive their backward by far.
  std::vector<int32_t> ends;
  for (const Box& box : task.boxes)
    if (lives_at(box, task.peak_time)) ends.push_back(box.last);
  std::sort(ends.begin(), ends.end());
  int32_t widest = 0;
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] - ends[i - 1] <= widest) continue;
    widest = ends[i] - ends[i - 1];
    task.stay_end = ends[i];
  }
  const int32_t one = deepest_time(task, -1), other = deepest_time(task, one);
  task.joint = std::max(one, other);
  task.turn = std::min(one, other);
  return task;
}

// One way to sort boxes: by class of size, largest first, then by the ties in turn, then by index.
enum class Tie { kFirstUp, kFirstDown, kLastDown, kLifetimeDown, kLifetimeClassDown, kSizeDown };
struct Sort {
  int64_t size_class_base;  // 0: the size itself; 1: one class for all; b: a factor of b makes no difference
  std::vector<Tie> ties;
};

enum class Sides : uint8_t { kOne, kPeak, kJoint };

// An order of placing. With `early`, the boxes that live at one time come before all others, by that sort: they then
// lie without a hole. At the peak time the bound holds then, and what is left has room.
struct Order {
  std::string name;
  std::optional<Sort> early;
  Sort rest;
  bool at_turn = false;  // that time is the turn, not the peak
  // Other than kOne: boxes that stay lie at the bottom, side by side, first-born lowest; all others are placed downward
  // from the top. So bytes are freed on one side of the free middle and taken on the other. kPeak: boxes of the peak
  // stay where they outlive the others by far; kJoint: those that live at the joint do, whenever they were made.
  Sides sides = Sides::kOne;
  bool two_sided() const { return sides != Sides::kOne; }
};

bool stays(const Task& task, const Order& order, const Box& box) {
  if (order.sides == Sides::kJoint) return lives_at(box, task.joint);
  return order.sides == Sides::kPeak && lives_at(box, task.peak_time) && box.last >= task.stay_end;
}

// Where the squeaky wheel starts.
bool is_first_of_wheel(const Order& order) { return order.sides == Sides::kJoint && order.at_turn; }

const std::vector<Order>& orders() {
  static const std::vector<Order> kOrders = [] {
    const Sort size_first{0, {Tie::kFirstUp}};
    const Sort size_last{0, {Tie::kLastDown}};
    const Sort lifetime_size{1, {Tie::kLifetimeDown, Tie::kSizeDown}};
    const Sort last{1, {Tie::kLastDown}};
    std::vector<Order> list = {{"size-down,first-up", std::nullopt, size_first}};
    const Sort lifetime_first{1, {Tie::kLifetimeDown, Tie::kFirstDown}};
    const Sort lifetime_class{1, {Tie::kLifetimeClassDown, Tie::kSizeDown, Tie::kFirstDown}};
    // What tight steps of training need, mostly.
    for (const bool at_turn : {false, true})
      list.push_back({fmt::format("two-sided-at-joint,at-{}(last-down),lifetime-down,first-down",
                                  at_turn ? "turn" : "peak"),
                      last, lifetime_first, at_turn, Sides::kJoint});
    list.insert(list.end(),
                {
                    {"lifetime-down,size-down", std::nullopt, lifetime_size},
                    {"size-down,last-down", std::nullopt, size_last},
                    {"at-peak(size-down,first-up),lifetime-down,size-down", size_first, lifetime_size},
                    {"at-peak(last-down),size-down,last-down", last, size_last},
                    {"two-sided,at-peak(last-down),lifetime-down,first-down", last, lifetime_first, false,
                     Sides::kPeak},
                    {"two-sided,at-peak(last-down),lifetime-class-2-down,size-down,first-down", last,
                     lifetime_class, false, Sides::kPeak},
                    {"two-sided-at-joint,at-turn(last-down),lifetime-class-2-down,size-down,first-down", last,
                     lifetime_class, true, Sides::kJoint},
                    {"two-sided-at-joint,at-turn(last-down),size-down,last-down", last, size_last, true,
                     Sides::kJoint},
                });
    for (const int64_t base : {2, 4, 8, 16}) {
      list.push_back({fmt::format("size-class-{}-down,first-up", base), {}, {base, {Tie::kFirstUp}}});
      list.push_back(
          {fmt::format("size-class-{}-down,lifetime-down", base), {}, {base, {Tie::kLifetimeDown}}});
    }
    return list;
  }();
  return kOrders;
}

int64_t size_class(int64_t size, int64_t base) {
  if (base == 0) return size;
  if (base == 1) return 0;
  int64_t power = 0;
  for (; size >= base; size /= base) ++power;
  return power;
}

int64_t key(const Box& box, Tie tie) {  // sorts ascending
  switch (tie) {
    case Tie::kFirstUp:
      return box.first;
    case Tie::kFirstDown:
      return -int64_t{box.first};
    case Tie::kLastDown:
      return -int64_t{box.last};
    case Tie::kLifetimeDown:
      return int64_t{box.first} - box.last;
    case Tie::kLifetimeClassDown:
      return -size_class(int64_t{box.last} - box.first, 2);
    case Tie::kSizeDown:
      return -box.size;
  }
  throw_internal("layout: unknown tie {}", static_cast<int>(tie));
}

// The boxes' indices in the order of placing.
struct Sequence {
  std::vector<uint32_t> boxes;
  size_t staying = 0;  // so many of the first ones stay
  bool two_sided = false;
};

Sequence sorted(const Task& task, const Order& order) {
  struct Keyed {
    std::array<int64_t, 5> keys{};
    uint32_t box = 0;
    auto operator<=>(const Keyed&) const = default;
  };
  std::vector<Keyed> list(task.boxes.size());
  Sequence result{.boxes = {}, .staying = 0, .two_sided = order.two_sided()};
  for (size_t i = 0; i < list.size(); ++i) {
    const Box& box = task.boxes[i];
    list[i].box = static_cast<uint32_t>(i);
    if (stays(task, order, box)) {
      list[i].keys = {0, key(box, Tie::kFirstUp)};
      ++result.staying;
      continue;
    }
    const bool early = order.early && lives_at(box, order.at_turn ? task.turn : task.peak_time);
    const Sort& sort = early ? *order.early : order.rest;
    list[i].keys[0] = early ? 1 : 2;
    list[i].keys[1] = -size_class(box.size, sort.size_class_base);
    for (size_t t = 0; t < sort.ties.size(); ++t) list[i].keys[2 + t] = key(box, sort.ties[t]);
  }
  std::sort(list.begin(), list.end());
  result.boxes.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) result.boxes[i] = list[i].box;
  return result;
}

struct Placement {
  std::vector<int64_t> offsets;  // of the boxes
  int64_t peak = kNoLimit;
};

// First fit of all boxes in this order into `placement`. Stops at the first box that would end above `limit`;
// the placement then holds nothing of use. Returns how many boxes found a place.
size_t place_all(const Task& task, const std::vector<uint32_t>& order, int64_t limit, FirstFit& arena,
                 Placement& placement) {
  arena.clear();
  placement.offsets.resize(task.boxes.size());
  placement.peak = 0;
  for (size_t placed = 0; placed < order.size(); ++placed) {
    const uint32_t box = order[placed];
    const std::optional<int64_t> offset = arena.place(task.boxes[box], limit);
    if (!offset) return placed;
    placement.offsets[box] = *offset;
    placement.peak = std::max(placement.peak, *offset + task.boxes[box].size);
  }
  return order.size();
}

// The same for a two-sided order, whose first boxes are those that stay. Works on the arena turned upside
// down: what stays hangs from the bound, and first fit from 0 upward is placing downward from the top.
size_t place_two_sided(const Task& task, const Sequence& order, int64_t limit, FirstFit& arena,
                       Placement& placement) {
  arena.clear();
  placement.offsets.resize(task.boxes.size());
  placement.peak = task.bound;
  int64_t hang_from = task.bound;
  for (size_t placed = 0; placed < order.boxes.size(); ++placed) {
    const Box& box = task.boxes[order.boxes[placed]];
    int64_t& offset = placement.offsets[order.boxes[placed]];
    if (placed < order.staying) {
      offset = hang_from -= box.size;
      arena.put(box, offset);
    } else {
      const std::optional<int64_t> found = arena.place(box, limit);
      if (!found) return placed;
      offset = *found;
      placement.peak = std::max(placement.peak, offset + box.size);
    }
  }
  for (size_t box = 0; box < task.boxes.size(); ++box)
    placement.offsets[box] = placement.peak - placement.offsets[box] - task.boxes[box].size;
  return order.boxes.size();
}

size_t place(const Task& task, const Sequence& order, int64_t limit, FirstFit& arena, Placement& placement) {
  return order.two_sided ? place_two_sided(task, order, limit, arena, placement)
                         : place_all(task, order.boxes, limit, arena, placement);
}

Solution make_solution(const Problem& problem, const Task& task, const Placement& placement,
                       std::string order) {
  const int64_t unit = problem.alignment.value;
  Solution solution{.offsets = std::vector<Bytes>(problem.buffers.size()),
                    .peak = Bytes(task.bottom + placement.peak) * unit,
                    .order = std::move(order)};
  for (size_t i = 0; i < problem.buffers.size(); ++i)
    if (task.bottom_offset[i] >= 0) solution.offsets[i] = Bytes(task.bottom_offset[i]) * unit;
  for (size_t box = 0; box < task.boxes.size(); ++box)
    solution.offsets[task.buffer_of[box]] = Bytes(task.bottom + placement.offsets[box]) * unit;
  return solution;
}

}  // namespace

Solution pack(const Problem& problem, const PackOptions& options) {
  const Task task = make_task(problem);
  FirstFit arena(task.times);
  Placement best, trial;
  size_t winner = 0, one_sided_winner = 0;
  std::string suffix;
  // Only what beats the best so far is of interest, so a pass stops where it cannot.
  const auto try_order = [&](const Sequence& order) {
    const int64_t limit = best.peak == kNoLimit ? kNoLimit : best.peak - 1;
    const size_t placed = place(task, order, limit, arena, trial);
    if (placed == order.boxes.size()) std::swap(best, trial);
    return placed;
  };

  const int64_t content = std::max(task.bound, options.enough.value / problem.alignment.value - task.bottom);
  for (size_t i = 0; i < orders().size() && best.peak > content; ++i) {
    if (try_order(sorted(task, orders()[i])) < task.boxes.size()) continue;
    winner = i;
    if (!orders()[i].two_sided()) one_sided_winner = i;
  }

  // Squeaky wheel: the box that found no place below the best peak comes earlier next time, but behind those that stay.
  // A third of the work goes to the order from which tight training steps are packed best, half to the best one-sided
  // one, the rest to the other one-sided ones in turn.
  const auto improve = [&](size_t start, int64_t work) {
    Sequence order = sorted(task, orders()[start]);
    const int64_t work_end = arena.work() + work;
    for (int pass = 0; pass < kPassesPerOrder && arena.work() < work_end && best.peak > content; ++pass) {
      const size_t placed = try_order(order);
      if (placed == order.boxes.size()) {
        winner = start;
        suffix = ",squeaky-wheel";
      } else {
        const auto failed = order.boxes.begin() + static_cast<std::ptrdiff_t>(placed);
        const size_t place = order.staying + (placed - order.staying) / kPromotion;
        std::rotate(order.boxes.begin() + static_cast<std::ptrdiff_t>(place), failed, failed + 1);
      }
    }
  };
  improve(static_cast<size_t>(std::find_if(orders().begin(), orders().end(), is_first_of_wheel) -
                              orders().begin()),
          options.search_work / 3);
  improve(one_sided_winner, options.search_work / 2);
  for (size_t i = 0; i < orders().size(); ++i)
    if (i != one_sided_winner && !orders()[i].two_sided())
      improve(i, options.search_work / 6 / static_cast<int64_t>(orders().size() - 1));
  return make_solution(problem, task, best, orders()[winner].name + suffix);
}

const std::vector<std::string>& order_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Order& order : orders()) names.push_back(order.name);
    return names;
  }();
  return kNames;
}

Solution pack_in_order(const Problem& problem, std::string_view order) {
  for (const Order& known : orders()) {
    if (known.name != order) continue;
    const Task task = make_task(problem);
    FirstFit arena(task.times);
    Placement placement;
    place(task, sorted(task, known), kNoLimit, arena, placement);
    return make_solution(problem, task, placement, known.name);
  }
  throw_internal("layout: unknown order \"{}\"", order);
}

}  // namespace snug::layout
