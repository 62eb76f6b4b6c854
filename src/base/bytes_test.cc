#include "base/bytes.h"

#include "base/testing.h"

namespace snug {
namespace {

TEST(Bytes, FormatsInBinaryUnits) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(512)), "512 B");
  EXPECT_EQ(format_bytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(format_bytes(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(format_bytes(Bytes(4LL * 1024 * 50304 * 4)),
            "786.0 MiB");  // the logits of 4 × 1024 tokens over 50,304 ids
  EXPECT_EQ(format_bytes(Bytes(2'136'746'230)), "1.99 GiB");
  EXPECT_EQ(format_bytes(Bytes(-1536)), "-1.50 KiB");
  // 1023.95 KiB would print as 1024.0 KiB; it is the next unit already.
  EXPECT_EQ(format_bytes(Bytes(1024 * 1024 - 1)), "1.00 MiB");
}

TEST(Bytes, ParsesEveryUnit) {
  EXPECT_EQ(parse_bytes("4096").value, 4096);
  EXPECT_EQ(parse_bytes("4096B").value, 4096);
  EXPECT_EQ(parse_bytes("1KiB").value, 1024);
  EXPECT_EQ(parse_bytes("1kb").value, 1000);
  EXPECT_EQ(parse_bytes("900MiB").value, 900LL * 1024 * 1024);
  EXPECT_EQ(parse_bytes("2GB").value, 2'000'000'000);
  EXPECT_EQ(parse_bytes(" 1.5 GiB ").value, 3LL * 512 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("1TiB").value, 1LL << 40);
  EXPECT_EQ(parse_bytes("1pib").value, 1LL << 50);
}

TEST(Bytes, RefusesWhatIsNotASize) {
  for (const auto& [text, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "does not begin with a number"},
           {"GiB", "does not begin with a number"},
           {"-1GiB", "does not begin with a number"},
           {"1.2.3MiB", "malformed"},
           {"2G", "\"G\" is ambiguous; write GiB or GB"},
           {"2m", "\"m\" is ambiguous"},
           {"2 gigs", "unknown unit \"gigs\""},
           {"0.5", "must be whole"},
           {"99999999999GiB", "exceeds 64 bits"}})
    expect_user_error(ExitCode::kUsage, why, [text = text] { parse_bytes(text); });
}

TEST(Bytes, ArithmeticIsChecked) {
  EXPECT_EQ(Bytes(3) + Bytes(4), Bytes(7));
  EXPECT_EQ(Bytes(3) - Bytes(4), Bytes(-1));
  EXPECT_EQ(3 * Bytes(4), Bytes(12));
  EXPECT_EQ(round_up(Bytes(65), Bytes(64)), Bytes(128));
  EXPECT_LT(kMiB, kGiB);
  expect_user_error(ExitCode::kUsage, "exceeds 64 bits", [] { (void)(Bytes(INT64_MAX) + Bytes(1)); });
  expect_user_error(ExitCode::kUsage, "exceeds 64 bits", [] { (void)(kGiB * (int64_t{1} << 40)); });
}

}  // namespace
}  // namespace snug
