#include "observe/frontier.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace snug {
namespace {

Frontier three_points() {
  return {.title = "tiny & <small>",
          .keep_all_seconds = 10,
          .line = {{"", 2 * kGiB, 12.5, 0.004}, {"", 3 * kGiB, 11, 0.002}, {"", 4 * kGiB, 10, 0}},
          .policies = {{"none", 4 * kGiB, 10, 0}, {"block", 2200 * kMiB, 13, 0}}};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result(1);
  for (char c : text)
    if (c == '\n')
      result.emplace_back();
    else
      result.back() += c;
  return result;
}

TEST(Frontier, SpeedIsAShareOfKeepAll) {
  const Frontier frontier = three_points();
  EXPECT_DOUBLE_EQ(frontier.speed(frontier.line[0]), 0.8);
  EXPECT_DOUBLE_EQ(frontier.speed(frontier.line[2]), 1.0);
}

TEST(Frontier, TableHasARowAPointWithItsNumbers) {
  const std::vector<std::string> rows = lines(frontier_table(three_points()));
  ASSERT_EQ(rows.size(), 7u);  // heading, 3 + 2 points, the end
  EXPECT_EQ(rows[1], "    2.00 GiB       12.5    80.0 %    0.40 %  smallest that works");
  EXPECT_EQ(rows[3], "    4.00 GiB         10   100.0 %    0.00 %  everything kept");
  EXPECT_EQ(rows[5], "    2.15 GiB         13    76.9 %            B --recompute block");
}

// The plot's left edge is 2 GiB, its right edge 4 GiB; the bottom is the slowest, the top 100 %.
TEST(Frontier, PlotPlacesPointsByMemoryAndSpeed) {
  const std::vector<std::string> rows = lines(frontier_plot(three_points(), 80));
  EXPECT_EQ(rows[0], "tiny & <small>");
  const auto row_of = [&](char mark) {
    return std::find_if(rows.begin() + 2, rows.end() - 4,
                        [&](const std::string& row) { return row.find(mark, 8) != std::string::npos; });
  };
  const auto none = row_of('A'), block = row_of('B');
  EXPECT_EQ(none->substr(0, 8), "   100 |");
  EXPECT_EQ(none->find('A'), 73u);  // the last column: policies are drawn over the line
  EXPECT_GT(block, none);
  EXPECT_EQ(block->find('B'), 8u + 5u);  // 2200 MiB of [2, 4] GiB: 7.4 % of 66 columns
  for (const std::string& row : rows) EXPECT_LE(row.size(), 80u) << row;
}

TEST(Frontier, PlotOfOnePointHasAxesAllTheSame) {
  const Frontier frontier{
      .title = "one", .keep_all_seconds = 1, .line = {{"", 100 * kMiB, 1, 0}}, .policies = {}};
  EXPECT_NE(frontier_plot(frontier, 60).find('o'), std::string::npos);
  EXPECT_NE(frontier_svg(frontier).find("<circle"), std::string::npos);
}

TEST(Frontier, SvgIsOneDocumentWithAMarkAPoint) {
  const std::string svg = frontier_svg(three_points());
  const auto count = [&](std::string_view what) {
    size_t found = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_EQ(count("<circle"), 3u);
  EXPECT_EQ(count("<rect"), 3u);  // background and two policies
  EXPECT_EQ(count("tiny &amp; &lt;small&gt;"), 2u);
}

}  // namespace
}  // namespace snug
