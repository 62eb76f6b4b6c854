#include "data/stream_statistics.h"

#include "base/testing.h"

namespace snug {
namespace {

TEST(StreamStatistics, CountsIdsEndsAndWindowsThatAreThereTwice) {
  const TemporaryDirectory directory;
  // Windows of 4: abab, abab, aab and an end, c and an end.
  std::vector<std::shared_ptr<const TokenStream>> streams = {
      open_text(directory.add("a.txt", "ababababaab"), 300), open_text(directory.add("b.txt", "c"), 300)};
  const JoinedStream stream(std::move(streams));
  ASSERT_EQ(stream.size(), 14);
  for (const int64_t most : {kMostHashes, int64_t{1}}) {
    const StreamStatistics found = stream_statistics(stream, 300, 256, 4, most);
    EXPECT_EQ(found.different_ids, 4);
    EXPECT_EQ(found.largest_id, 256);
    EXPECT_EQ(found.ends_of_text, 2);
    EXPECT_EQ(found.repeated_windows, 1);
  }
  EXPECT_EQ(stream_statistics(stream, 300, std::nullopt, 1, 3).ends_of_text, 0);
  EXPECT_EQ(stream_statistics(stream, 300, std::nullopt, 1, 3).repeated_windows, 14 - 4);
  EXPECT_EQ(stream_statistics(stream, 300, std::nullopt, 100).repeated_windows, 0);
}

}  // namespace
}  // namespace snug
