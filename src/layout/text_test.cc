#include "layout/text.h"

#include <gmock/gmock.h>

#include "layout/check.h"

namespace snug::layout {
namespace {

using testing::HasSubstr;

Problem problem() {
  return {
      .buffers = {{.first = 0, .last = 3, .size = Bytes(4096)}, {.first = 1, .last = 2, .size = Bytes(64)}},
      .alignment = Bytes(64)};
}

TEST(Text, PrintsAProblem) {
  EXPECT_EQ(print_csv(problem()),
            "id,lower,upper,size\n"
            "0,0,3,4096\n"
            "1,1,2,64\n");
  EXPECT_EQ(print_csv(Problem{}), "id,lower,upper,size\n");
}

TEST(Text, PrintsPersistenceAndOffsetsWhereThereAreAny) {
  Problem mixed = problem();
  mixed.buffers.push_back({.size = Bytes(8), .persistent = true});
  const Solution solution{.offsets = {Bytes(64), Bytes(4160), Bytes(0)}, .peak = Bytes(4224)};
  EXPECT_EQ(print_csv(mixed, solution),
            "id,lower,upper,size,persistent,offset\n"
            "0,0,3,4096,0,64\n"
            "1,1,2,64,0,4160\n"
            "2,0,0,8,1,0\n");
}

TEST(Text, RoundTrips) {
  Problem mixed = problem();
  mixed.buffers.push_back({.size = Bytes(8), .persistent = true});
  const Solution solution{.offsets = {Bytes(64), Bytes(4160), Bytes(0)}, .peak = Bytes(4224)};
  for (const Problem& tried : {Problem{}, problem(), mixed}) {
    const Document read = parse_csv(print_csv(tried), "p.csv", tried.alignment);
    EXPECT_EQ(read.problem, tried);
    EXPECT_FALSE(read.solution.has_value());
  }
  const Document read = parse_csv(print_csv(mixed, solution), "p.csv", Bytes(64));
  EXPECT_EQ(read.problem, mixed);
  ASSERT_TRUE(read.solution.has_value());
  EXPECT_EQ(*read.solution, solution);
  EXPECT_TRUE(check(read.problem, *read.solution));
}

TEST(Text, ReadsAnyColumnOrderLabelsSpacesAndOtherLineEnds) {
  const Document read = parse_csv("size, upper,lower ,id\r\n\n 8,9,2,b7\r\n16,10,0,conv.weight", "p.csv");
  EXPECT_EQ(read.problem, (Problem{.buffers = {{.first = 2, .last = 9, .size = Bytes(8)},
                                               {.first = 0, .last = 10, .size = Bytes(16)}}}));
}

std::string refusal(std::string_view text) {
  try {
    parse_csv(text, "p.csv");
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadFile);
    return error.what();
  }
  return "accepted";
}

TEST(Text, RefusesBadRowsWithTheirLine) {
  const std::string header = "id,lower,upper,size\n";
  EXPECT_EQ(refusal(header + "0,0,1,4\n1,0,1,4x\n"),
            "p.csv:3: size is \"4x\", expected a whole number of at least 0");
  EXPECT_THAT(refusal(header + "\n0,0,1,-4"), HasSubstr("p.csv:3: size is \"-4\""));
  EXPECT_THAT(refusal(header + "0,,1,4"), HasSubstr("p.csv:2: lower is \"\""));
  EXPECT_THAT(refusal(header + "0,0,1,99999999999999999999"), HasSubstr("p.csv:2: size is"));
  EXPECT_EQ(refusal(header + "0,0,1"), "p.csv:2: 3 fields, expected 4 as in the header");
  EXPECT_EQ(refusal(header + "0,5,5,1"), "p.csv:2: lifetime [5, 5) is empty, expected lower < upper");
  EXPECT_THAT(refusal(header + "0,0,1,4\n0,0,1,4"),
              HasSubstr("p.csv:3: id is \"0\", expected a label that no other"));
  EXPECT_THAT(refusal("id,lower,upper,size,persistent\n0,0,1,4,2"), HasSubstr("p.csv:2: persistent is 2"));
}

TEST(Text, RefusesBadHeaders) {
  EXPECT_EQ(refusal(""), "p.csv: empty, expected the header id,lower,upper,size");
  EXPECT_EQ(refusal("\n\n"), "p.csv: empty, expected the header id,lower,upper,size");
  EXPECT_THAT(refusal("id,lower,upper\n"), HasSubstr("p.csv:1: no column \"size\""));
  EXPECT_THAT(refusal("id,lower,upper,size,gap\n"), HasSubstr("p.csv:1: unknown column \"gap\""));
  EXPECT_THAT(refusal("id,lower,upper,size,size\n"), HasSubstr("p.csv:1: column \"size\" appears twice"));
}

TEST(Text, RefusesAFileThatCannotBeRead) {
  try {
    read_csv("no/such/file.csv");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadFile);
    EXPECT_STREQ(error.what(), "no/such/file.csv: cannot be read");
  }
  EXPECT_THROW(read_csv("."), UserError);
}

}  // namespace
}  // namespace snug::layout
