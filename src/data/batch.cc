#include "data/batch.h"

#include "base/checked.h"

namespace snug {

Batch make_batch(int64_t batch, int64_t length) {
  const auto elements = static_cast<size_t>(checked_mul(batch, length));
  Batch made;
  made.tokens.assign(elements, 0);
  made.targets.assign(elements, kIgnoredTarget);
  made.positions.resize(elements);
  made.document_starts.assign(elements, 0);
  made.randomness.assign(static_cast<size_t>(batch) * 4, 0);
  for (size_t i = 0; i < elements; ++i)
    made.positions[i] = static_cast<int32_t>(i % static_cast<size_t>(length));
  return made;
}

int64_t batch_bytes(int64_t batch, int64_t length) {
  constexpr int64_t kArrays = 4, kRandomWords = 4, kWordBytes = 4;
  return checked_mul(batch, checked_mul(checked_add(checked_mul(length, kArrays), kRandomWords), kWordBytes));
}

}  // namespace snug
