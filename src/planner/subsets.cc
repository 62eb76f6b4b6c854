#include "planner/subsets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug::planner {
namespace {

struct Estimate {
  Subset subset;
  int64_t saved = 0, most = 0;  // bytes
  double seconds = 0;
};

class Estimator {
 public:
  Estimator(const Slice& slice, const Savable& savable, OpPrices& prices)
      // The codes of item i go by the number graph.tensors.size() + i.
      : tensors_(slice.graph.tensors.size() + savable.items.size()),
        bytes_(tensors_, 0),
        maker_(tensors_, -1),
        droppable_(tensors_, false),
        result_(tensors_, false) {
    const Graph& graph = slice.graph;
    for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
      if (graph.tensors[tensor].storage == Storage::kValue)
        bytes_[tensor] = prices.round(graph.tensors[tensor].shape.bytes(graph.tensors[tensor].dtype)).value;
    for (TensorId result : graph.results) result_[result.index()] = true;
    bool turned = false;
    for (const Op& op : graph.ops) {
      if (op.name == kTurn) {
        turned = true;
        for (TensorId output : op.outputs) incoming_.push_back(output.index());
        continue;
      }
      if (op.name == kEnter) continue;
      const OpPrices::OpPrice price = prices(graph, op);
      Step step{.inputs = {},
                .outputs = {},
                .places = {},
                .seconds = price.seconds,
                .scratch = price.scratch.value};
      for (TensorId input : op.inputs) step.inputs.push_back(input.index());
      for (TensorId output : op.outputs) step.outputs.push_back(output.index());
      for (const AliasRule& rule :
           operation(op.kind).aliases(op.attributes, operand_types(graph, op.inputs))) {
        const size_t output = op.outputs.at(static_cast<size_t>(rule.output)).index();
        const size_t input = op.inputs.at(static_cast<size_t>(rule.input)).index();
        if (bytes_[output] == bytes_[input]) step.places.push_back({output, input});
      }
      if (turned) {
        backward_.push_back(std::move(step));
      } else {
        for (size_t output : step.outputs) maker_[output] = static_cast<int>(forward_.size());
        forward_.push_back(std::move(step));
      }
    }
    for (const std::vector<TensorId>& values : slice.values)
      for (TensorId value : values) droppable_[value.index()] = true;
    // What leaves the slice is somebody else's to keep, and there while this block's backward does not run.
    for (const Op& op : graph.ops)
      if (op.name == kTurn)
        for (TensorId input : op.inputs) droppable_[input.index()] = false;
    for (size_t value : savable.always_kept) droppable_[slice.values.at(0)[value].index()] = false;
    for (const Item& item : savable.items) {
      const size_t codes = graph.tensors.size() + items_.size();
      items_.emplace_back();
      for (size_t value : item.values) items_.back().push_back(slice.values.at(0)[value].index());
      bytes_[codes] = item.code_bytes.value;
      decodes_.push_back({.inputs = {codes},
                          .outputs = items_.back(),
                          .places = {},
                          .seconds = item.encode_seconds + item.decode_seconds,
                          .scratch = 0});
    }
  }

  Estimate operator()(Subset subset) {
    dropped_ = droppable_;
    decode_.assign(tensors_, nullptr);
    for (size_t item = 0; item < items_.size(); ++item)
      for (size_t tensor : items_[item]) {
        if ((subset.kept >> item) & 1) dropped_[tensor] = false;
        if ((subset.compressed >> item) & 1) decode_[tensor] = &decodes_[item];
      }
    copy_.assign(tensors_, 0);
    sequence_.clear();
    estimate_ = {.subset = subset, .saved = 0, .most = 0, .seconds = 0};
    for (const Step& step : backward_) {
      for (size_t input : step.inputs) make(input);
      sequence_.push_back(&step);
    }
    hold();
    return estimate_;
  }

 private:
  struct Place {
    size_t output, input;
  };
  struct Step {
    std::vector<size_t> inputs, outputs;
    std::vector<Place> places;  // an output of equal size may take the input's place where that dies
    double seconds;
    int64_t scratch;
  };

  void make(size_t tensor) {
    if (!dropped_[tensor] || copy_[tensor]) return;
    const Step& step =
        decode_[tensor] != nullptr ? *decode_[tensor] : forward_[static_cast<size_t>(maker_[tensor])];
    for (size_t input : step.inputs) make(input);
    for (size_t output : step.outputs)
      if (is_made(step, output)) copy_[output] = 1;
    estimate_.seconds += step.seconds;
    sequence_.push_back(&step);
  }

  // Whether somebody reads this output of a step: not where it is kept, or compressed and read as decoded.
  bool is_made(const Step& step, size_t output) const {
    if (droppable_[output] && !dropped_[output]) return false;
    return decode_[output] == nullptr || decode_[output] == &step;
  }

  // A tensor and its copy never live at one moment here, so both go by the tensor's number.
  void hold() {
    last_.assign(tensors_, -1);
    first_.assign(tensors_, -1);
    for (size_t moment = 0; moment < sequence_.size(); ++moment) {
      for (size_t input : sequence_[moment]->inputs) last_[input] = static_cast<int>(moment);
      for (size_t output : sequence_[moment]->outputs)
        if (first_[output] < 0 && is_made(*sequence_[moment], output))
          first_[output] = static_cast<int>(moment);
    }
    int64_t held = 0;
    for (size_t tensor = 0; tensor < tensors_; ++tensor)
      if (last_[tensor] >= 0 && first_[tensor] < 0) held += bytes_[tensor];
    estimate_.saved = held;
    for (size_t gradient : incoming_)
      if (last_[gradient] >= 0) estimate_.saved -= bytes_[gradient];
    for (size_t moment = 0; moment < sequence_.size(); ++moment) {
      const Step& step = *sequence_[moment];
      const auto dies = [&](size_t tensor) {
        return last_[tensor] == static_cast<int>(moment) && !result_[tensor];
      };
      int64_t made = 0, gone = 0, in_place = 0;
      for (size_t output : step.outputs) {
        if (!is_made(step, output)) continue;  // made along with a dropped one, dies at once
        made += bytes_[output];
        if (last_[output] <= static_cast<int>(moment) && !result_[output]) gone += bytes_[output];
      }
      for (size_t input = 0; input < step.inputs.size(); ++input) {
        const auto before = step.inputs.begin() + static_cast<std::ptrdiff_t>(input);
        if (dies(*before) && std::find(step.inputs.begin(), before, *before) == before)
          gone += bytes_[*before];
      }
      size_t taken = tensors_;
      for (const Place& place : step.places)
        if (dies(place.input) && place.input != taken) {
          in_place += bytes_[place.output];
          taken = place.input;
          break;
        }
      estimate_.most = std::max(estimate_.most, held + made - in_place + step.scratch);
      held += made - gone;
    }
  }

  size_t tensors_;
  std::vector<int64_t> bytes_;
  std::vector<int> maker_;
  std::vector<bool> droppable_, result_;
  std::vector<Step> forward_, backward_;
  std::vector<size_t> incoming_;
  std::vector<std::vector<size_t>> items_;
  std::vector<Step> decodes_;  // per item; the encoding's seconds included
  // Of the subset in work:
  std::vector<bool> dropped_;
  std::vector<const Step*> decode_;  // per tensor: what it is read from, where it is compressed
  std::vector<char> copy_;
  std::vector<const Step*> sequence_;
  std::vector<int> first_, last_;
  Estimate estimate_;
};

// Those that no other is at least as good as in all three respects, by `slack` bytes of working set at least.
std::vector<Estimate> best_of(std::vector<Estimate> all, int64_t slack) {
  std::sort(all.begin(), all.end(), [](const Estimate& a, const Estimate& b) {
    if (a.saved != b.saved) return a.saved < b.saved;
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    return a.most < b.most;
  });
  std::vector<Estimate> best;
  for (const Estimate& each : all)
    if (std::none_of(best.begin(), best.end(), [&](const Estimate& other) {
          return other.seconds <= each.seconds && other.most + slack <= each.most;
        }))
      best.push_back(each);
  return best;
}

// What `recompute` makes of a compressed value.
void price_codes(const Slice& slice, TensorId value, OpPrices& prices, Item& item) {
  Graph graph = slice.graph;
  Retentions retentions(graph.tensors.size(), Retention::kKeep);
  retentions[value.index()] = Retention::kCompress;
  recompute(graph, retentions);
  for (const Op& op : graph.ops) {
    if (op.kind == "fp8_encode") {
      item.encode_seconds = prices(graph, op).seconds;
      for (TensorId output : op.outputs)
        item.code_bytes += prices.round(graph.tensor(output).shape.bytes(graph.tensor(output).dtype));
    }
    if (op.kind == "fp8_decode") item.decode_seconds = prices(graph, op).seconds;
  }
}

// The fewest that hold every point which is best at some price of a byte, and an even sample: at most `limit`
// of the rest.
template <typename Choose>
void choose_thinned(const std::vector<Estimate>& best, size_t limit, const Choose& choose) {
  for (int power = -40; power <= 40; ++power) {
    const double price = std::exp2(0.5 * power) * 1e-10;  // seconds per byte
    const auto total = [&](const Estimate& each) {
      return each.seconds + price * static_cast<double>(each.saved);
    };
    choose(*std::min_element(best.begin(), best.end(),
                             [&](const Estimate& a, const Estimate& b) { return total(a) < total(b); }));
  }
  for (size_t index = 0; index < limit; ++index) choose(best[index * best.size() / limit]);
}

// Adds those that no other is at least as good as, with the widest doubt about the working set that `limit` has
// room for.
void choose_best(const std::vector<Estimate>& estimates, const Savable& savable, size_t limit,
                 std::set<Subset>& chosen) {
  const auto choose = [&](const Estimate& each) { chosen.insert(each.subset); };
  if (estimates.size() <= limit) {
    std::for_each(estimates.begin(), estimates.end(), choose);
    return;
  }
  Bytes largest{0};
  for (const Item& item : savable.items) largest = std::max(largest, item.bytes);
  std::vector<Estimate> best;
  for (int64_t share : {2, 4, 8, 16, 32, 64}) {
    best = best_of(estimates, largest.value / share);
    if (best.size() <= limit) break;
  }
  if (best.size() > limit) best = best_of(estimates, 0);
  if (best.size() <= limit)
    std::for_each(best.begin(), best.end(), choose);
  else
    choose_thinned(best, limit, choose);
}

}  // namespace

std::vector<bool> read_by_backward(const Slice& slice) {
  std::vector<bool> read(slice.graph.tensors.size(), false);
  bool turned = false;
  for (const Op& op : slice.graph.ops) {
    if (turned)
      for (TensorId input : op.inputs) read[input.index()] = true;
    turned = turned || op.name == kTurn;
  }
  std::vector<bool> of_values;
  for (TensorId value : slice.values.at(0)) of_values.push_back(read[value.index()]);
  return of_values;
}

Savable savable_values(const Slice& slice, const Anatomy::Block& block, OpPrices& prices, bool compresses) {
  const Graph& graph = slice.graph;
  const std::vector<bool> read = read_by_backward(slice);
  std::vector<int64_t> feeds(graph.tensors.size(), 0);  // the most bytes that one forward reader makes of it
  for (const Op& op : graph.ops) {
    if (op.name == kTurn) break;
    int64_t made = 0;
    for (TensorId output : op.outputs)
      made += graph.tensor(output).shape.bytes(graph.tensor(output).dtype).value;
    for (TensorId input : op.inputs) feeds[input.index()] = std::max(feeds[input.index()], made);
  }
  std::vector<Item> items;
  size_t value = 0;
  for (const Op& op : graph.ops) {
    if (op.name == kEnter || op.part != Part::kForward) continue;
    Item first, others;
    for (size_t output = 0; output < op.outputs.size(); ++output, ++value) {
      const Tensor& tensor = graph.tensor(op.outputs[output]);
      const Bytes bytes = tensor.shape.bytes(tensor.dtype);
      const bool wanted = read[value] || bytes.value < feeds[op.outputs[output].index()];
      if (block.leaving[value] || !wanted) continue;
      Item& item = output == 0 ? first : others;
      item.values.push_back(value);
      item.bytes += prices.round(bytes);
      if (compresses && read[value] && compressible(graph, op, output))
        price_codes(slice, op.outputs[output], prices, item);
    }
    for (Item* item : {&first, &others})
      if (!item->values.empty()) items.push_back(std::move(*item));
  }
  Savable savable{.items = {}, .always_kept = {}};
  std::vector<Bytes> sizes;
  for (const Item& item : items) sizes.push_back(item.bytes);
  std::sort(sizes.rbegin(), sizes.rend());
  const Bytes least = items.size() > kMostItems ? sizes[kMostItems - 1] : Bytes(0);
  size_t equal = kMostItems;  // of the items of exactly the least size, how many there is room for
  for (Bytes size : sizes) equal -= size > least ? 1 : 0;
  for (Item& item : items) {
    const bool chosen = item.bytes > least || (item.bytes == least && equal > 0);
    if (item.bytes == least && chosen) --equal;
    if (chosen)
      savable.items.push_back(std::move(item));
    else
      savable.always_kept.insert(savable.always_kept.end(), item.values.begin(), item.values.end());
  }
  return savable;
}

std::vector<Subset> promising_subsets(const Slice& slice, const Savable& savable, size_t limit,
                                      OpPrices& prices) {
  require(savable.items.size() <= kMostItems, "planner: {} items of a block", savable.items.size());
  const uint32_t all = (uint32_t{1} << savable.items.size()) - 1;
  Estimator estimate(slice, savable, prices);
  std::vector<Estimate> estimates;
  for (uint32_t kept = 0; kept <= all; ++kept) estimates.push_back(estimate({.kept = kept}));
  std::set<Subset> chosen = {Subset{.kept = 0}, Subset{.kept = all}};
  choose_best(estimates, savable, limit, chosen);
  return {chosen.begin(), chosen.end()};
}

std::vector<Subset> promising_compressions(const Slice& slice, const Savable& savable,
                                           const std::vector<Subset>& exact, size_t limit, OpPrices& prices) {
  // Fewest seconds for each byte first.
  uint32_t mask = 0;
  std::vector<std::pair<double, size_t>> order;
  for (size_t item = 0; item < savable.items.size(); ++item) {
    const Item& of = savable.items[item];
    if (of.code_bytes.value == 0 || of.code_bytes >= of.bytes) continue;
    order.emplace_back(
        (of.encode_seconds + of.decode_seconds) / static_cast<double>((of.bytes - of.code_bytes).value),
        item);
    mask |= uint32_t{1} << item;
  }
  std::sort(order.begin(), order.end());
  Estimator estimate(slice, savable, prices);
  std::vector<Estimate> estimates;
  const uint32_t all = (uint32_t{1} << savable.items.size()) - 1;
  for (uint32_t some = mask; some != 0; some = (some - 1) & mask)
    estimates.push_back(estimate({.kept = all ^ some, .compressed = some}));
  for (Subset subset : exact)
    for (const auto& [seconds, item] : order) {
      const uint32_t bit = uint32_t{1} << item;
      if ((subset.kept & bit) == 0) continue;
      subset.kept ^= bit;
      subset.compressed |= bit;
      estimates.push_back(estimate(subset));
    }
  std::set<Subset> chosen;
  choose_best(estimates, savable, limit, chosen);
  return {chosen.begin(), chosen.end()};
}

}  // namespace snug::planner
