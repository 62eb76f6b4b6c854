// backends/cpu/measured_costs.h — what this machine's operations were measured to take, and the file that keeps it between runs
//
// Entries are by CostSample::key. An operation whose sample was never timed is estimated: roofline × the median of measured ÷ roofline
// over the operations nearest to it (its own kind, else its family, else 1).
//
// Stable: what a run answered once it stores, estimates too. So a later run with the same options gets the same answers and chooses the
// same plan, whatever the machine is doing meanwhile.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cost_sample.h"
#include "backends/cpu/dispatch.h"
#include "backends/cpu/roofline.h"

namespace snug::cpu {

// For whom measured costs hold.
struct CostsKey {
  std::string processor;  // brand and signature
  std::string dispatch;   // cpu_class_name
  int64_t threads = 1;
  std::string onednn, snug;  // versions
  friend bool operator==(const CostsKey&, const CostsKey&) = default;
};
CostsKey costs_key(const Dispatch& dispatch);

// "costs-avx2-2-1f3c….json": a name for each key.
std::string costs_file_name(const CostsKey& key);

class MeasuredCosts {
 public:
  // Where an entry's seconds come from.
  enum class Source : uint8_t {
    kMeasured,
    kDoubted,    // measured, but a run was faster than that: measured again when it is asked for next
    kConfirmed,  // measured twice with about the same result: not doubted any more
    kNoMemory,   // estimated: its operands did not fit; measured when a later run has more
    kNoTime,     // estimated: the time for measuring was over, or no kernel to measure is known
  };
  struct Entry {
    double seconds = 0;           // of the sample
    double roofline_seconds = 0;  // of the sample
    Source source = Source::kMeasured;
    bool was_timed() const { return source != Source::kNoMemory && source != Source::kNoTime; }
  };

  // Entries beyond these are forgotten, oldest first.
  static constexpr size_t kMostEntries = 4096;

  explicit MeasuredCosts(const CpuRates& rates) : rates_(rates) {}

  // The rates with which every roofline and every sample's size is computed.
  const CpuRates& rates() const { return rates_; }
  size_t size() const { return entries_.size(); }
  const Entry* find(const std::string& key) const;
  // Seconds are rounded to three digits. Replaces an entry of the same key.
  void set(const std::string& key, const Entry& entry);
  // What a sample was just timed to take. Of a doubted entry the lesser of both times stays: what disturbs makes longer.
  void set_timed(const std::string& key, double seconds, double roofline_seconds);
  // A run was faster than these entries say: what was measured once is to be measured again, what was estimated is forgotten. Whether
  // there was anything to do.
  bool doubt(std::span<const std::string> keys);
  // Entries of `others` whose keys are new here, as the oldest.
  void add_missing(const MeasuredCosts& others);
  // Puts an entry last in age, if it is there.
  void touch(const std::string& key);

  // Of the sample, not of the operation it stands for.
  double sample_seconds(const CostSample& sample, const Dispatch& dispatch) const;

  // The file, format 1.
  std::string to_json(const CostsKey& key) const;
  // Throws UserError(kBadFile): no JSON, of another format or key, or with numbers that are no times.
  static MeasuredCosts read(const std::string& path, const CostsKey& key);
  // Writes it whole or not at all, with its directory. Throws UserError(kIo).
  void write(const std::string& path, const CostsKey& key) const;

 private:
  struct Stored {
    Entry entry;
    uint64_t age = 0;  // the higher, the younger
  };

  CpuRates rates_;
  std::map<std::string, Stored, std::less<>> entries_;
  uint64_t next_age_ = 1;
};

}  // namespace snug::cpu
