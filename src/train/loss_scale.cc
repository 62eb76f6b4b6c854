#include "train/loss_scale.h"

#include <algorithm>

#include "base/json.h"

namespace snug {

void LossScale::note_applied() {
  if (++good_updates_ < kGoodUpdatesToDouble) return;
  scale_ = std::min(2 * scale_, kLargest);
  good_updates_ = 0;
}

bool LossScale::note_overflow() {
  if (scale_ / 2 < kFloor) return false;
  scale_ /= 2;
  good_updates_ = 0;
  return true;
}

Json LossScale::state() const { return {{"scale", scale_}, {"good_updates", good_updates_}}; }

}  // namespace snug
