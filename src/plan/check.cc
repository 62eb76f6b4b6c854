#include "plan/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

constexpr size_t kMostListed = 100;
constexpr std::array<std::string_view, 5> kStorages = {"state", "input", "carried", "value", "scratch"};

class Judge {
 public:
  Judge(const Plan& plan, Bytes alignment) : plan_(plan), alignment_(alignment) {
    require(alignment.value > 0, "check_plan: alignment is {}", alignment.value);
    for (const PlanPhase& phase : plan.phases) moments_ += static_cast<int64_t>(phase.ops.size());
  }

  std::vector<std::string> violations() {
    judge_references();
    if (count_ == 0) {
      for (const PlanTensor& tensor : plan_.tensors) bytes_.push_back(tensor.shape.bytes(tensor.dtype).value);
      judge_places();
      judge_moments();
      judge_live_bytes();
      judge_space();
      judge_use();
    }
    if (count_ > kMostListed) listed_.push_back(fmt::format("… and {} more", count_ - kMostListed));
    return std::move(listed_);
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    std::string sentence = fmt::format(format, std::forward<Args>(args)...);
    // The second repetition of a phase meets what the first one did.
    if (std::find(listed_.begin(), listed_.end(), sentence) != listed_.end()) return;
    if (++count_ <= kMostListed) listed_.push_back(std::move(sentence));
  }

  std::string describe(size_t i) const {
    const PlanTensor& t = plan_.tensors[i];
    return fmt::format("{} ({} bytes at {}+{}, buffer {}, moments [{}, {}))", t.name, bytes_[i],
                       plan_.memories[t.place.memory.index()].name, t.place.offset.value, t.buffer, t.first,
                       t.last);
  }

  bool persists(PlanTensorId id) const {
    const std::string& storage = plan_.tensor(id).storage;
    return storage == "state" || storage == "carried";
  }

  bool share_storage(size_t i, size_t j) const {
    return i == j || (plan_.tensors[i].buffer >= 0 && plan_.tensors[i].buffer == plan_.tensors[j].buffer);
  }

  void judge_references() {
    std::unordered_set<std::string_view> names;
    for (const PlanTensor& tensor : plan_.tensors) {
      if (tensor.name.empty()) report("a tensor has no name");
      if (!names.insert(tensor.name).second) report("two tensors are named {}", tensor.name);
      if (!tensor.place.memory.valid() || tensor.place.memory.index() >= plan_.memories.size())
        report("{} lies in memory {}, the plan has {}", tensor.name, tensor.place.memory.value,
               plan_.memories.size());
      if (std::find(kStorages.begin(), kStorages.end(), tensor.storage) == kStorages.end())
        report("{}: \"{}\" is not a storage", tensor.name, tensor.storage);
    }
    const auto check = [&](const std::vector<PlanTensorId>& ids, const std::string& where) {
      for (PlanTensorId id : ids)
        if (!id.valid() || id.index() >= plan_.tensors.size())
          report("{} refers to tensor {}, the plan has {}", where, id.value, plan_.tensors.size());
    };
    std::unordered_set<std::string_view> phases;
    for (const PlanPhase& phase : plan_.phases) {
      if (!phases.insert(phase.name).second) report("two phases are named {}", phase.name);
      check(phase.inputs, "phase " + phase.name);
      check(phase.results, "phase " + phase.name);
      for (const PlanOp& op : phase.ops) {
        check(op.inputs, op.name);
        check(op.outputs, op.name);
        if (op.scratch.valid()) check({op.scratch}, op.name);
      }
    }
  }

  void judge_places() {
    std::vector<int64_t> end(plan_.memories.size(), 0);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const Place& place = plan_.tensors[i].place;
      const PlanMemory& memory = plan_.memories[place.memory.index()];
      if (place.offset.value < 0) report("{} begins below 0", describe(i));
      if (place.offset.value % alignment_.value != 0)
        report("{} is not aligned to {} bytes", describe(i), alignment_.value);
      const int64_t last_byte = checked_add(place.offset.value, bytes_[i]);
      if (last_byte > memory.arena_bytes.value)
        report("{} ends above the arena of {} bytes", describe(i), memory.arena_bytes.value);
      if (bytes_[i] > 0) end[place.memory.index()] = std::max(end[place.memory.index()], last_byte);
    }
    for (size_t m = 0; m < end.size(); ++m) {
      const PlanMemory& memory = plan_.memories[m];
      const int64_t needed = round_up(end[m], alignment_.value);
      if (memory.arena_bytes.value != needed)
        report("memory {}: the arena is {} bytes, its tensors end at {}", memory.name,
               memory.arena_bytes.value, needed);
      if (memory.lower_bound_bytes > memory.arena_bytes)
        report("memory {}: the lower bound of {} bytes is above the arena of {}", memory.name,
               memory.lower_bound_bytes.value, memory.arena_bytes.value);
    }
  }

  void judge_moments() {
    int64_t moment = 0;
    for (const PlanPhase& phase : plan_.phases) {
      if (phase.first_moment != moment)
        report("phase {} begins at moment {}, expected {}", phase.name, phase.first_moment, moment);
      moment += static_cast<int64_t>(phase.ops.size());
      if (phase.repeats < 0) report("phase {} is repeated {} times", phase.name, phase.repeats);
    }
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlanTensor& tensor = plan_.tensors[i];
      if (tensor.first < 0 || tensor.first >= tensor.last || tensor.last > moments_)
        report("{} lives outside [0, {})", describe(i), moments_);
      if (tensor.storage == "state" && (tensor.first != 0 || tensor.last != moments_))
        report("{} is state and does not live at every moment of [0, {})", describe(i), moments_);
      if (tensor.storage == "scratch" && tensor.last != tensor.first + 1)
        report("{} is scratch and lives for more than one moment", describe(i));
    }
    moment = 0;
    for (const PlanPhase& phase : plan_.phases) {
      const int64_t end = moment + static_cast<int64_t>(phase.ops.size());
      for (PlanTensorId id : phase.inputs)
        if (plan_.tensor(id).first > moment)
          report("{} is an input of phase {} and does not live at its first moment {}", describe(id.index()),
                 phase.name, moment);
      for (PlanTensorId id : phase.results)
        if (plan_.tensor(id).last < end)
          report("{} is a result of phase {} and does not live to its end {}", describe(id.index()),
                 phase.name, end);
      moment = end;
    }
  }

  // live[m] = bytes of memory `memory` held at moment m; tensors that share a buffer count once, with the
  // largest.
  std::vector<int64_t> live_bytes(size_t memory) const {
    // Tensors without a buffer number get one of their own below 0.
    std::map<int64_t, std::vector<size_t>> buffers;
    for (size_t i = 0; i < plan_.tensors.size(); ++i)
      if (plan_.tensors[i].place.memory.index() == memory)
        buffers[plan_.tensors[i].buffer >= 0 ? plan_.tensors[i].buffer : -1 - static_cast<int64_t>(i)]
            .push_back(i);
    std::vector<int64_t> change(static_cast<size_t>(moments_) + 1, 0);
    for (auto& [buffer, members] : buffers) {
      int64_t size = 0;
      for (size_t i : members) size = std::max(size, bytes_[i]);
      std::sort(members.begin(), members.end(),
                [&](size_t a, size_t b) { return plan_.tensors[a].first < plan_.tensors[b].first; });
      int64_t counted_to = 0;
      for (size_t i : members) {
        const int64_t first = std::clamp<int64_t>(std::max(plan_.tensors[i].first, counted_to), 0, moments_);
        const int64_t last = std::clamp<int64_t>(plan_.tensors[i].last, first, moments_);
        change[static_cast<size_t>(first)] += size;
        change[static_cast<size_t>(last)] -= size;
        counted_to = std::max(counted_to, last);
      }
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    change.pop_back();
    return change;
  }

  void judge_live_bytes() {
    for (size_t m = 0; m < plan_.memories.size(); ++m) {
      const std::vector<int64_t> live = live_bytes(m);
      const int64_t most = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
      if (plan_.memories[m].lower_bound_bytes.value < most)
        report("memory {}: {} bytes live at one moment, above the stated bound of {}", plan_.memories[m].name,
               most, plan_.memories[m].lower_bound_bytes.value);
      if (m != 0) continue;  // a phase states its peak in the first memory
      auto begin = live.begin();
      for (const PlanPhase& phase : plan_.phases) {
        const auto end = begin + static_cast<std::ptrdiff_t>(phase.ops.size());
        const int64_t peak = begin == end ? 0 : *std::max_element(begin, end);
        if (phase.peak_bytes.value < peak)
          report("phase {}: {} bytes live at one moment, above the stated peak of {}", phase.name, peak,
                 phase.peak_bytes.value);
        if (phase.peak_bytes > plan_.memories[0].arena_bytes)
          report("phase {}: the stated peak of {} bytes is above the arena of {}", phase.name,
                 phase.peak_bytes.value, plan_.memories[0].arena_bytes.value);
        begin = end;
      }
    }
  }

  // All pairs that share a byte, found in the order of offsets.
  void judge_space() {
    struct Box {
      int32_t memory;
      int64_t begin, end, first, last;
      size_t tensor;
    };
    std::vector<Box> boxes;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlanTensor& t = plan_.tensors[i];
      const int64_t begin = t.place.offset.value;
      if (bytes_[i] > 0)
        boxes.push_back({t.place.memory.value, begin, begin + bytes_[i], t.first, t.last, i});
    }
    std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) {
      return std::tie(a.memory, a.begin, a.tensor) < std::tie(b.memory, b.begin, b.tensor);
    });
    for (size_t a = 0; a < boxes.size(); ++a) {
      const Box left = boxes[a];
      for (size_t b = a + 1; b < boxes.size(); ++b) {
        const Box& right = boxes[b];
        if (right.memory != left.memory || right.begin >= left.end) break;
        const bool share_a_moment = left.first < right.last && right.first < left.last;
        if (share_a_moment && !share_storage(left.tensor, right.tensor))
          report("{} overlaps {}", describe(left.tensor), describe(right.tensor));
      }
    }
    std::map<int32_t, size_t> first_of_buffer;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (plan_.tensors[i].buffer < 0) continue;
      const size_t first = first_of_buffer.emplace(plan_.tensors[i].buffer, i).first->second;
      if (plan_.tensors[first].place != plan_.tensors[i].place)
        report("{} and {} share a buffer and begin at different places", describe(first), describe(i));
    }
  }

  void judge_use() {
    const size_t count = plan_.tensors.size();
    group_.resize(count);
    std::map<int32_t, size_t> first_of_buffer;
    for (size_t i = 0; i < count; ++i)
      group_[i] =
          plan_.tensors[i].buffer < 0 ? i : first_of_buffer.emplace(plan_.tensors[i].buffer, i).first->second;
    content_.assign(count, PlanTensorId());
    if (plan_.phase("load") == nullptr)
      for (size_t i = 0; i < count; ++i)
        if (plan_.tensors[i].storage == "state") content_[group_[i]] = PlanTensorId(i);
    for (const PlanPhase& phase : plan_.phases)
      for (int repetition = 0; repetition < (phase.repeats > 1 ? 2 : 1); ++repetition)
        judge_phase(phase, repetition);
  }

  void judge_phase(const PlanPhase& phase, int repetition) {
    // What an earlier phase or repetition left in a buffer is now the value of the buffer's state or carried
    // tensor.
    for (size_t i = 0; i < plan_.tensors.size(); ++i)
      if (persists(PlanTensorId(i)) && content_[group_[i]].valid()) content_[group_[i]] = PlanTensorId(i);
    for (PlanTensorId id : phase.inputs) content_[group_[id.index()]] = id;

    int64_t moment = phase.first_moment;
    for (const PlanOp& op : phase.ops) {
      const bool accumulator_is_free = repetition == 0 && op.attributes.integer_or("overwrite_first", 0) == 1;
      const auto lives = [&](PlanTensorId id) {
        const PlanTensor& tensor = plan_.tensor(id);
        if (moment < tensor.first || moment >= tensor.last)
          report("{} at moment {} uses {}, which does not live then", op.name, moment, describe(id.index()));
      };
      for (PlanTensorId id : op.inputs) {
        lives(id);
        const PlanTensorId held = content_[group_[id.index()]];
        if (repetition == 1 && plan_.tensor(id).storage == "carried") lives_through(phase, id);
        if (held == id || (accumulator_is_free && is_accumulator(op, id))) continue;
        report("{} at moment {} of phase {} reads {}, {}", op.name, moment, phase.name, describe(id.index()),
               held.valid() ? "whose buffer holds " + plan_.tensor(held).name : "which nothing has written");
      }
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        lives(op.outputs[i]);
        for (size_t j = 0; j < i; ++j)
          if (group_[op.outputs[i].index()] == group_[op.outputs[j].index()])
            report("{} at moment {} writes {} and {} to one buffer", op.name, moment,
                   describe(op.outputs[j].index()), describe(op.outputs[i].index()));
      }
      for (PlanTensorId id : op.outputs) content_[group_[id.index()]] = id;
      if (op.scratch.valid()) lives(op.scratch);
      ++moment;
    }
    for (PlanTensorId id : phase.results) {
      const PlanTensorId held = content_[group_[id.index()]];
      if (held == id || (held.valid() && persists(id))) continue;
      report("{} is a result of phase {}, {}", describe(id.index()), phase.name,
             held.valid() ? "but its buffer holds " + plan_.tensor(held).name : "but nothing has written it");
    }
  }

  // A carried tensor that a repeated phase reads keeps its bytes from one repetition to the next.
  void lives_through(const PlanPhase& phase, PlanTensorId id) {
    const PlanTensor& tensor = plan_.tensor(id);
    const int64_t end = phase.first_moment + static_cast<int64_t>(phase.ops.size());
    if (tensor.first > phase.first_moment || tensor.last < end)
      report("{} is carried by the repeated phase {} and does not live through [{}, {})",
             describe(id.index()), phase.name, phase.first_moment, end);
  }

  // Does an output of `op` stand in the storage of its input `id`? An operation with overwrite_first has no
  // other such input.
  bool is_accumulator(const PlanOp& op, PlanTensorId id) const {
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](PlanTensorId output) { return group_[output.index()] == group_[id.index()]; });
  }

  const Plan& plan_;
  Bytes alignment_;
  int64_t moments_ = 0;
  std::vector<int64_t> bytes_;
  std::vector<size_t> group_;          // per tensor: the first tensor of its buffer
  std::vector<PlanTensorId> content_;  // per group: the tensor whose value the buffer holds
  std::vector<std::string> listed_;
  size_t count_ = 0;
};

}  // namespace

std::vector<std::string> check_plan(const Plan& plan, Bytes alignment) {
  return Judge(plan, alignment).violations();
}

}  // namespace snug
