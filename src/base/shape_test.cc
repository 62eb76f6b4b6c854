#include "base/shape.h"

#include "base/testing.h"

namespace snug {
namespace {

TEST(Shape, CountsElementsRowsAndBytes) {
  const Shape shape = {4, 1024, 768};
  EXPECT_EQ(shape.rank(), 3U);
  EXPECT_EQ(shape.elements(), 4 * 1024 * 768);
  EXPECT_EQ(shape.rows(), 4 * 1024);
  EXPECT_EQ(shape.bytes(DType::kF32), Bytes(4LL * 4 * 1024 * 768));
  EXPECT_EQ(shape.bytes(DType::kBF16), Bytes(2LL * 4 * 1024 * 768));
  EXPECT_EQ(to_string(shape), "[4,1024,768]");
}

TEST(Shape, RankZeroIsOneElement) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape().bytes(DType::kF64), Bytes(8));
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_EQ(Shape({5}).rows(), 1);
  EXPECT_EQ(Shape({0, 3}).elements(), 0);
}

TEST(Shape, DimensionsCountFromBothEnds) {
  const Shape shape = {2, 3, 5};
  EXPECT_EQ(shape.dim(0), 2);
  EXPECT_EQ(shape.dim(-1), 5);
  EXPECT_EQ(shape.dim(-3), 2);
  EXPECT_EQ(shape.last(), 5);
  EXPECT_THROW(shape.dim(3), InternalError);
  EXPECT_THROW(shape.dim(-4), InternalError);
  EXPECT_THROW(Shape().last(), InternalError);
}

TEST(Shape, RefusesOverflow) {
  const Shape huge = {int64_t{1} << 32, int64_t{1} << 32};
  expect_user_error(ExitCode::kUsage, "exceeds 64 bits", [&] { huge.elements(); });
  expect_user_error(ExitCode::kUsage, "exceeds 64 bits",
                    [] { Shape({int64_t{1} << 61}).bytes(DType::kF32); });
}

TEST(DType, NamesRoundTripAndWidthsAreTheirs) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32,
                            DType::kU32, DType::kU8})
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_EQ(parse_dtype("F32"), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kF64), 8);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2);
  EXPECT_EQ(dtype_bytes(DType::kU8), 1);
  EXPECT_TRUE(is_floating(DType::kBF16));
  EXPECT_FALSE(is_floating(DType::kU32));
}

}  // namespace
}  // namespace snug
