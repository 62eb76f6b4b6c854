#include "data/windows.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/errors.h"

namespace snug {

JoinedStream::JoinedStream(std::vector<std::unique_ptr<TokenStream>> streams) : streams_(std::move(streams)) {
  require(!streams_.empty(), "a joined stream of no files");
  for (const auto& stream : streams_) {
    begins_.push_back(size_);
    size_ = checked_add(size_, stream->size());
  }
}

void JoinedStream::read(int64_t first, std::span<int32_t> out) const {
  require(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_,
          "tokens [{}, {}) of a stream of {}", first, first + static_cast<int64_t>(out.size()), size_);
  size_t index =
      static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) - begins_.begin()) - 1;
  while (!out.empty()) {
    const int64_t inside = first - begins_[index];
    const int64_t available = streams_[index]->size() - inside;
    const size_t take = std::min(out.size(), static_cast<size_t>(available));
    if (take > 0) streams_[index]->read(inside, out.first(take));
    out = out.subspan(take);
    first += static_cast<int64_t>(take);
    ++index;
  }
}

Windows::Windows(JoinedStream stream, int64_t length, const std::string& source_name)
    : stream_(std::move(stream)), length_(length) {
  require(length >= 1, "windows of {} tokens", length);
  if (stream_.size() < 2)
    throw_user(ExitCode::kBadFile,
               "{}: {} token(s) found; at least 2 are needed, one to read and one to predict", source_name,
               stream_.size());
  count_ = ceil_div(targets(), length);
  buffer_.resize(static_cast<size_t>(length) + 1);
}

int64_t Windows::targets_of(int64_t window) const { return std::min(length_, targets() - window * length_); }

void Windows::fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) {
  const auto length = static_cast<size_t>(length_);
  int32_t* tokens = batch.tokens.data() + static_cast<size_t>(row) * length;
  int32_t* targets = batch.targets.data() + static_cast<size_t>(row) * length;
  const size_t supervised = window ? static_cast<size_t>(targets_of(*window)) : 0;
  if (window) {
    const std::span<int32_t> found(buffer_.data(), supervised + 1);
    stream_.read(*window * length_, found);
    std::copy_n(found.begin(), supervised, tokens);
    std::copy_n(found.begin() + 1, supervised, targets);
    ++batch.windows;
  }
  // The stream's very last token is only a target; what follows it is padding.
  std::fill(tokens + supervised, tokens + length, 0);
  std::fill(targets + supervised, targets + length, kIgnoredTarget);
  batch.supervised_tokens += static_cast<int64_t>(supervised);
}

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

int64_t Schedule::updates_per_epoch() const { return ceil_div(windows, windows_per_update()); }

std::optional<int64_t> Schedule::window(int64_t update, int64_t micro_step, int64_t row) const {
  const int64_t epoch = update / updates_per_epoch();
  const int64_t position = update % updates_per_epoch() * windows_per_update() + micro_step * batch + row;
  if (position >= windows) return std::nullopt;
  if (!shuffle) return position;
  return Permutation(windows, seed, static_cast<uint64_t>(epoch))(position);
}

}  // namespace snug
