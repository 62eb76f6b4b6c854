#include "data/stream_statistics.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/checked.h"
#include "base/xxhash.h"

namespace snug {

StreamStatistics stream_statistics(const JoinedStream& stream, int64_t vocabulary,
                                   std::optional<int32_t> end_of_text, int64_t length, int64_t most_hashes) {
  StreamStatistics found;
  std::vector<bool> seen(static_cast<size_t>(vocabulary));
  std::vector<int32_t> buffer(static_cast<size_t>(std::min(length, stream.size())));
  bool is_first = true;
  found.repeated_windows = count_repetitions(
      ceil_div(stream.size(), length),
      [&](const auto& take) {
        for (int64_t first = 0; first < stream.size(); first += length) {
          const auto ids =
              std::span(buffer).first(static_cast<size_t>(std::min(length, stream.size() - first)));
          stream.read(first, ids);
          Xxh64 hash;
          hash.add(std::as_bytes(ids));
          take(hash.value());
          if (!is_first) continue;
          for (const int32_t id : ids) {
            seen[static_cast<size_t>(id)] = true;
            found.largest_id = std::max(found.largest_id, id);
          }
          if (end_of_text) found.ends_of_text += std::count(ids.begin(), ids.end(), *end_of_text);
        }
        is_first = false;
      },
      most_hashes);
  found.different_ids = std::count(seen.begin(), seen.end(), true);
  return found;
}

}  // namespace snug
