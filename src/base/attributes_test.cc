#include "base/attributes.h"

#include <limits>

#include "base/testing.h"

namespace snug {
namespace {

TEST(Attributes, PrintInNameOrderWithDistinctKinds) {
  const Attributes attributes = {
      {"weight", std::string("oi")}, {"eps", 1e-5}, {"accumulate", int64_t{1}}, {"scale", 2.0}};
  EXPECT_EQ(to_string(attributes), "{accumulate=1, eps=1e-05, scale=2.0, weight=oi}");
  EXPECT_EQ(to_string(Attributes()), "{}");
}

TEST(Attributes, RoundTripThroughText) {
  const Attributes attributes = {{"a", int64_t{-7}},
                                 {"b", 0.1},
                                 {"c", 1.0},
                                 {"d", -3e300},
                                 {"e", std::string("gelu_tanh")},
                                 {"f", std::numeric_limits<double>::denorm_min()},
                                 {"g", std::numeric_limits<int64_t>::min()}};
  EXPECT_EQ(parse_attributes(to_string(attributes)), attributes);
  EXPECT_EQ(parse_attributes("{}"), Attributes());
  EXPECT_EQ(parse_attributes("  { a = 1 ,b=x }"), Attributes({{"a", int64_t{1}}, {"b", std::string("x")}}));
}

TEST(Attributes, ReadByKind) {
  const Attributes attributes = {{"n", int64_t{3}}, {"p", 0.5}, {"kind", std::string("tanh")}};
  EXPECT_EQ(attributes.integer("n"), 3);
  EXPECT_EQ(attributes.real("p"), 0.5);
  EXPECT_EQ(attributes.word("kind"), "tanh");
  EXPECT_EQ(attributes.integer_or("m", 9), 9);
  EXPECT_EQ(attributes.real_or("p", 9), 0.5);
  EXPECT_EQ(attributes.word_or("other", "none"), "none");
  EXPECT_THROW(attributes.integer("m"), InternalError);
  EXPECT_THROW(attributes.integer("p"), InternalError);  // of another kind
  EXPECT_THROW(attributes.real("n"), InternalError);
}

TEST(Attributes, SetReplacesAndEraseForgets) {
  Attributes attributes;
  attributes.set("a", int64_t{1});
  attributes.set("a", 2.5);
  EXPECT_EQ(attributes.real("a"), 2.5);
  attributes.erase("a");
  attributes.erase("never there");
  EXPECT_TRUE(attributes.empty());
}

TEST(Attributes, RefuseMalformedText) {
  for (const auto& [text, why] :
       std::initializer_list<std::pair<const char*, const char*>>{{"a=1", "not in braces"},
                                                                  {"{a}", "has no \"=\""},
                                                                  {"{=1}", "empty or repeated"},
                                                                  {"{a=1, a=2}", "empty or repeated"},
                                                                  {"{a=}", "neither a number nor a word"},
                                                                  {"{a=1x}", "neither a number nor a word"}})
    expect_user_error(ExitCode::kBadFile, why, [text = text] { parse_attributes(text); });
}

}  // namespace
}  // namespace snug
