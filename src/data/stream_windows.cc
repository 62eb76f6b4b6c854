#include "data/stream_windows.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace snug {

JoinedStream::JoinedStream(std::vector<std::shared_ptr<const TokenStream>> streams)
    : streams_(std::move(streams)) {
  require(!streams_.empty(), "a joined stream of no files");
  for (const auto& stream : streams_) {
    begins_.push_back(last_);
    last_ = checked_add(last_, stream->size());
  }
}

void JoinedStream::read(int64_t first, std::span<int32_t> out) const {
  require(first >= 0 && first + static_cast<int64_t>(out.size()) <= size(),
          "tokens [{}, {}) of a stream of {}", first, first + static_cast<int64_t>(out.size()), size());
  first += first_;
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

JoinedStream JoinedStream::part(int64_t first, int64_t last) const {
  require(0 <= first && first <= last && last <= size(), "part [{}, {}) of a stream of {}", first, last,
          size());
  JoinedStream part = *this;
  part.first_ = first_ + first;
  part.last_ = first_ + last;
  return part;
}

StreamWindows::StreamWindows(JoinedStream stream, int64_t length, const std::string& source_name)
    : stream_(std::move(stream)), source_name_(source_name), length_(length) {
  require(length >= 1, "windows of {} tokens", length);
  if (stream_.size() < 2)
    throw_user(ExitCode::kBadFile,
               "{}: {} token(s) found; at least 2 are needed, one to read and one to predict", source_name,
               stream_.size());
  count_ = ceil_div(targets(), length);
  buffer_.resize(static_cast<size_t>(length) + 1);
}

int64_t StreamWindows::targets_of(int64_t window) const {
  return std::min(length_, targets() - window * length_);
}

void StreamWindows::fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) {
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

}  // namespace snug
