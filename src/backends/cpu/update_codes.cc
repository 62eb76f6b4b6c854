#include "backends/cpu/update_codes.h"

#include <cmath>
#include <vector>

namespace snug::cpu {
namespace {

MomentMap make_map(bool is_signed) {
  constexpr int kDecades = 7;
  std::vector<double> magnitudes = {0};
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = 1 << (decade + (is_signed ? 0 : 1));
    const double unit = std::pow(10.0, decade - (kDecades - 1));
    for (int step = 0; step < steps; ++step) magnitudes.push_back(unit * (0.1 + 0.9 * (step + 0.5) / steps));
  }
  magnitudes.push_back(1);

  MomentMap map;
  map.is_signed = is_signed;
  map.magnitudes = static_cast<int64_t>(magnitudes.size());
  for (size_t p = 0; p < magnitudes.size(); ++p) {
    map.values[p] = static_cast<float>(magnitudes[p]);
    if (is_signed && p > 0 && p <= MomentMap::kLargestNegative)
      map.values[MomentMap::kNegative + p] = static_cast<float>(-magnitudes[p]);
    map.thresholds[p] =
        p + 1 < magnitudes.size() ? static_cast<float>((magnitudes[p] + magnitudes[p + 1]) / 2) : 2.0f;
  }
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const float least =
        bucket == 0 ? 0.0f
                    : std::bit_cast<float>(kFirstBucketBits + static_cast<uint32_t>(bucket << kBucketShift));
    map.first[bucket] = static_cast<int32_t>(
        std::lower_bound(map.thresholds, map.thresholds + map.magnitudes - 1, least) - map.thresholds);
  }
  return map;
}

}  // namespace

const MomentMap& signed_moment_map() {
  static const MomentMap kMap = make_map(true);
  return kMap;
}

const MomentMap& unsigned_moment_map() {
  static const MomentMap kMap = make_map(false);
  return kMap;
}

}  // namespace snug::cpu
