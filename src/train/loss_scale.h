// train/loss_scale.h — the dynamic loss scale of fp16: its states and nothing else
//
// Gradients of the loss are multiplied by a power of two so that f16 can hold them (Micikevicius et al. 2018, §3.2). Whether the
// scale is too large shows in a gradient that is not finite: that update is skipped and the scale halved. After 2,000 good updates
// in a row it is doubled. The numbers are those of PyTorch's GradScaler.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json_type.h"

namespace snug {

// The state of fp16's loss scale beside the weights: LossScale::state().
inline constexpr std::string_view kLossScaleFile = "loss_scale.json";

class LossScale {
 public:
  static constexpr double kFirst = 65536, kFloor = 1, kLargest = 0x1p64;
  static constexpr int64_t kGoodUpdatesToDouble = 2000;

  double value() const { return scale_; }
  // Updates that were applied since the scale last changed or an update was skipped.
  int64_t good_updates() const { return good_updates_; }

  // An update was applied.
  void note_applied();
  // An update was skipped because a gradient overflowed. False: the scale is at its floor and cannot be halved, so nothing changed
  // and no later update can be expected to do better.
  [[nodiscard]] bool note_overflow();
  // An update was skipped because its loss is not finite: the forward overflowed, in which the scale has no part.
  void note_bad_loss() { good_updates_ = 0; }

  // {"scale": 65536.0, "good_updates": 17}: what has to be known to go on.
  Json state() const;

 private:
  double scale_ = kFirst;
  int64_t good_updates_ = 0;
};

}  // namespace snug
