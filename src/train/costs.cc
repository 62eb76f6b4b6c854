#include "train/costs.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backends/cpu/cost_timer.h"
#include "base/errors.h"
#include "base/file.h"
#include "observe/process_memory.h"

namespace snug {
namespace {

using cpu::CostSample;
using cpu::MeasuredCosts;
using Source = MeasuredCosts::Source;

constexpr double kMeasuringSeconds = 3;
constexpr Bytes kMostMemory{256 << 20}, kLeastMemory{64 << 10};
// Compilations with measuring between them; what the last one newly asks about is estimated.
constexpr int kRounds = 3;

// Answers as the target does and notes the samples it was asked about.
class AskedTarget : public Target {
 public:
  explicit AskedTarget(const cpu::CpuTarget& target) : target_(target) {}

  std::string name() const override { return target_.name(); }
  std::optional<std::string> refusal(const OpQuery& query) const override { return target_.refusal(query); }
  Bytes scratch_bytes(const OpQuery& query) const override { return target_.scratch_bytes(query); }
  Bytes alignment() const override { return target_.alignment(); }
  double seconds(const OpQuery& query, const OpCost& cost) const override {
    const cpu::CpuTarget::Priced& priced = target_.priced(query, cost);
    answers_[&priced] += priced.seconds;
    return priced.seconds;
  }

  struct Asked {
    const CostSample* sample = nullptr;
    double seconds = 0;  // all answers together: what matters most was asked about most
  };
  // By the samples' keys. Valid until the target's next set_costs.
  std::map<std::string, Asked> asked() const {
    std::map<std::string, Asked> result;
    for (const auto& [priced, seconds] : answers_) {
      Asked& asked = result[priced->sample.key];
      asked.sample = &priced->sample;
      asked.seconds += seconds;
    }
    return result;
  }

 private:
  const cpu::CpuTarget& target_;
  mutable std::unordered_map<const cpu::CpuTarget::Priced*, double> answers_;
};
using Asked = AskedTarget::Asked;

// Those of `asked` that should be timed now, most seconds first.
std::vector<Asked> untimed(const std::map<std::string, Asked>& all, const MeasuredCosts& costs,
                           const cpu::Dispatch& dispatch, Bytes memory) {
  std::vector<Asked> result;
  for (const auto& [key, asked] : all) {
    const MeasuredCosts::Entry* entry = costs.find(key);
    const bool again = entry != nullptr &&
                       (entry->source == Source::kNoMemory || entry->source == Source::kDoubted) &&
                       asked.sample->known && cpu::sample_bytes(*asked.sample, dispatch) <= memory;
    if (entry == nullptr || again) result.push_back(asked);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Asked& a, const Asked& b) { return a.seconds > b.seconds; });
  return result;
}

// Estimates for samples that have no entry, all from the measured ones.
void estimate(const std::vector<Asked>& unknown, const cpu::Dispatch& dispatch, Bytes memory,
              MeasuredCosts& costs) {
  for (const Asked& asked : unknown) {
    const CostSample& sample = *asked.sample;
    if (const MeasuredCosts::Entry* entry = costs.find(sample.key); entry != nullptr) {
      // Now it fits; that it was not timed has another reason.
      if (entry->source == Source::kNoMemory)
        costs.set(sample.key, {entry->seconds, entry->roofline_seconds, Source::kNoTime});
      continue;
    }
    const bool fits = !sample.known || cpu::sample_bytes(sample, dispatch) <= memory;
    costs.set(sample.key, {.seconds = costs.sample_seconds(sample, dispatch),
                           .roofline_seconds =
                               cpu::roofline_seconds(sample.query(), sample.cost, dispatch, costs.rates()),
                           .source = fits ? Source::kNoTime : Source::kNoMemory});
  }
}

// Half of what the run will hold itself.
Bytes measuring_memory(const Compiled& compiled, Bytes budget) {
  const Bytes left = budget - std::min(budget, process_memory().peak());
  return std::min({Bytes(compiled.report.arena.value / 2), Bytes(left.value / 2), kMostMemory});
}

// With what another run has written since. Of two first runs at once the first one's stays, with its rates.
void write_cache(MeasuredCosts& costs, const std::string& file, const cpu::CostsKey& key) {
  if (file_exists(file)) {
    try {
      const MeasuredCosts there = MeasuredCosts::read(file, key);
      if (there.rates() != costs.rates()) return;
      costs.add_missing(there);
    } catch (const UserError&) {  // broken: replaced
    }
  }
  costs.write(file, key);
}

}  // namespace

std::string costs_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return join_path(cache, "snug");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return join_path(home, ".cache/snug");
  return "";
}

std::string costs_line(const CostsReport& report) {
  if (report.source == CostSource::kRoofline) return "Costs: estimated by the roofline\n";
  const bool kept = !report.file.empty() && report.note.empty();
  std::string line = report.timed > 0
                         ? fmt::format("Costs: measured {} operations in {:.1f} s{}", report.timed,
                                       report.seconds, kept ? fmt::format(", cached in {}", report.file) : "")
                         : fmt::format("Costs: {} operations measured earlier{}", report.measured,
                                       kept ? fmt::format(" ({})", report.file) : "");
  if (report.measured < report.operations)
    line +=
        fmt::format("; {} of {} estimated from them", report.operations - report.measured, report.operations);
  line += "\n";
  if (!report.note.empty()) line += fmt::format("Note: {}\n", report.note);
  return line;
}

Compiled compile_by_costs(cpu::CpuBackend& backend, CostSource source, Bytes budget,
                          const std::function<Compiled(const Target&)>& compile_for, CostsReport& report) {
  report = {};
  report.source = source;
  if (source == CostSource::kRoofline) return compile_for(backend.target());

  const cpu::Dispatch& dispatch = backend.target().dispatch();
  const cpu::CostsKey key = cpu::costs_key(dispatch);
  const std::string directory = costs_directory();
  auto costs = std::make_shared<MeasuredCosts>(backend.target().rates());
  if (directory.empty()) {
    report.note = "costs are not cached: neither XDG_CACHE_HOME nor HOME is an absolute path";
  } else {
    report.file = join_path(directory, cpu::costs_file_name(key));
    try {
      if (file_exists(report.file)) *costs = MeasuredCosts::read(report.file, key);
    } catch (const UserError& error) {
      report.note = fmt::format("the cache of costs was not used: {}", error.what());
    }
  }

  bool changed = false;
  double seconds_left = kMeasuringSeconds;
  std::optional<Compiled> compiled;
  std::map<std::string, Asked> asked;
  for (int round = 1;; ++round) {
    backend.set_costs(costs);
    const AskedTarget target(backend.target());
    compiled.reset();  // never two plans at once
    compiled = compile_for(target);
    asked = target.asked();
    const Bytes memory = measuring_memory(*compiled, budget);
    const auto unknown = untimed(asked, *costs, dispatch, memory);
    if (unknown.empty()) break;
    changed = true;
    if (round == kRounds) {
      // As it was answered: the plan stays what it is.
      estimate(unknown, dispatch, memory, *costs);
      break;
    }
    if (memory >= kLeastMemory && seconds_left > 0) {
      std::vector<CostSample> samples;
      for (const Asked& one : unknown) samples.push_back(*one.sample);
      const auto begin = std::chrono::steady_clock::now();
      const auto times =
          cpu::time_samples_in_child(samples, dispatch, costs->rates(), {seconds_left, memory});
      const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      for (size_t i = 0; i < samples.size(); ++i) {
        if (!times[i]) continue;
        costs->set_timed(
            samples[i].key, *times[i],
            cpu::roofline_seconds(samples[i].query(), samples[i].cost, dispatch, costs->rates()));
        ++report.timed;
      }
      report.seconds += spent;
      seconds_left -= spent;
    }
    estimate(unknown, dispatch, memory, *costs);
  }

  report.operations = asked.size();
  for (const auto& [name, one] : asked) {
    costs->touch(name);
    if (costs->find(name)->was_timed()) ++report.measured;
    report.keys.push_back(name);
  }
  // Estimates alone are not worth keeping: a later run may measure.
  if (changed && report.measured > 0 && !report.file.empty()) {
    try {
      write_cache(*costs, report.file, key);
    } catch (const UserError& error) {
      if (report.note.empty()) report.note = fmt::format("costs are not cached: {}", error.what());
    }
  }
  // A run that measured is to hold what a later one holds.
  asked.clear();
  malloc_trim(0);
  return std::move(*compiled);
}

bool doubt_costs(const CostsReport& report, const cpu::Dispatch& dispatch) {
  if (report.file.empty()) return false;
  try {
    const cpu::CostsKey key = cpu::costs_key(dispatch);
    MeasuredCosts costs = MeasuredCosts::read(report.file, key);
    if (!costs.doubt(report.keys)) return false;
    costs.write(report.file, key);
    return true;
  } catch (const UserError&) {  // gone, broken or not to be written
    return false;
  }
}

}  // namespace snug
