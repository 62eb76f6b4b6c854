// data/stream_windows.h — a stream of tokens cut into windows
//
// Window i of length L holds tokens i·L … i·L+L−1 of the stream, with targets one further on. A stream of N tokens has N−1 targets
// and ceil((N−1)/L) windows.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/windows.h"
#include "formats/token_shard.h"

namespace snug {

// Several files, or a part of them, as one stream, in the order given. Bounded memory whatever their size.
class JoinedStream {
 public:
  // At least one stream.
  explicit JoinedStream(std::vector<std::shared_ptr<const TokenStream>> streams);
  int64_t size() const { return last_ - first_; }
  // Tokens first … first+out.size()−1; the range must lie inside the stream.
  void read(int64_t first, std::span<int32_t> out) const;
  // Tokens [first, last) of this stream.
  JoinedStream part(int64_t first, int64_t last) const;

 private:
  std::vector<std::shared_ptr<const TokenStream>> streams_;
  std::vector<int64_t> begins_;  // first token of each stream
  int64_t first_ = 0, last_ = 0;
};

class StreamWindows : public Windows {
 public:
  // length >= 1. Throws UserError(kBadFile) when the stream has fewer than two tokens: no target exists.
  StreamWindows(JoinedStream stream, int64_t length, const std::string& source_name);

  const std::string& source() const override { return source_name_; }
  int64_t count() const override { return count_; }
  int64_t length() const override { return length_; }
  int64_t tokens() const override { return stream_.size(); }
  // tokens() − 1.
  int64_t targets() const override { return stream_.size() - 1; }
  // L, or what is left for the last.
  int64_t targets_of(int64_t window) const override;
  void fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) override;

 private:
  JoinedStream stream_;
  std::string source_name_;
  int64_t length_, count_;
  std::vector<int32_t> buffer_;  // length + 1 tokens
};

}  // namespace snug
