#include "data/prepare_samples.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "base/testing.h"

namespace snug {
namespace {

constexpr Fingerprint kKey{1, 2};

// Rows 0 … count − 1: text of their number, one id a digit; a row with 77 in it cannot be read, with 88 it cannot be encoded.
class PrepareSamples : public testing::Test {
 protected:
  Preparation preparation(int64_t count, int threads, bool skip_bad_rows = false) {
    next_ = 0;
    skipped_ = {};
    Preparation made;
    made.next = [this, count, skip_bad_rows]() -> std::optional<PlacedRow> {
      while (next_ < count) {
        const int64_t row = next_++;
        const std::string text = std::to_string(row);
        if (text.find("77") == std::string::npos)
          return PlacedRow{TextRow{text}, {"a.jsonl", row}, {0, 0, next_}};
        if (!skip_bad_rows) throw_user(ExitCode::kBadFile, "a.jsonl:{}: cannot be read", row);
        skipped_.add(fmt::format("{} cannot be read", row));
      }
      return std::nullopt;
    };
    made.take_skipped = [this] { return std::exchange(skipped_, {}); };
    made.bytes_read = [this] { return 10 * next_; };
    made.all_bytes = 10 * count;
    made.encoder = [this] {
      ++encoders_;
      return [this](const Row& row, const RowPlace& place) {
        if (place.line < 2000)
          std::this_thread::sleep_for(
              std::chrono::microseconds(place.line % 7 * 10));  // they overtake each other
        const std::string& text = std::get<TextRow>(row).text;
        if (text.find("88") != std::string::npos)
          throw_user(ExitCode::kBadFile, "a.jsonl:{}: cannot be encoded", place.line);
        Sample sample;
        for (const char digit : text) sample.ids.push_back(digit - '0');
        sample.supervised.assign(sample.ids.size(), true);
        return sample;
      };
    };
    made.threads = threads;
    made.skip_bad_rows = skip_bad_rows;
    return made;
  }
  std::string path(std::string_view name) const { return directory_ / name; }

  TemporaryDirectory directory_;
  std::atomic<int64_t> next_ = 0;
  SkippedRows skipped_;
  std::atomic<int> encoders_ = 0;
};

TEST_F(PrepareSamples, IsTheSameForAnyNumberOfThreads) {
  std::string first;
  for (const int threads : {1, 3, 8}) {
    const std::string file = path(std::to_string(threads));
    SampleWriter writer(file, kKey, 10);
    prepare_samples(writer, preparation(2000, threads, true));
    const SampleTotals totals = writer.finish();
    EXPECT_EQ(totals.rows, 2000);
    EXPECT_EQ(totals.bad_rows,
              2 * (20 + 18));  // 77, 177, …, 770–779, 1770–1779, less 777 and 1777 twice; so 88
    EXPECT_EQ(totals.samples, 2000 - totals.bad_rows);
    const std::string bytes = read_small_file(file, kMiB);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads;
    std::string why;
    // Those that cannot be read and those that cannot be encoded, in the order of the rows.
    EXPECT_THAT(SampleFile::open(file, kKey, 10, why)->bad_rows(),
                testing::ElementsAre("77 cannot be read", "a.jsonl:88: cannot be encoded",
                                     "177 cannot be read", "a.jsonl:188: cannot be encoded",
                                     "277 cannot be read", "a.jsonl:288: cannot be encoded",
                                     "377 cannot be read", "a.jsonl:388: cannot be encoded",
                                     "477 cannot be read", "a.jsonl:488: cannot be encoded"));
  }
  EXPECT_EQ(encoders_, 12);
}

TEST_F(PrepareSamples, TheFirstBadRowIsTold) {
  for (const int threads : {1, 4}) {
    SampleWriter writer(path("a"), kKey, 10);
    expect_user_error(ExitCode::kBadFile, "a.jsonl:77: cannot be read",
                      [&] { prepare_samples(writer, preparation(2000, threads)); });
  }
  SampleWriter writer(path("b"), kKey, 10);
  Preparation other = preparation(2000, 4);
  other.next = [this]() -> std::optional<PlacedRow> {
    return PlacedRow{TextRow{std::to_string(next_)}, {"a.jsonl", next_++}, {}};  // never ends
  };
  expect_user_error(ExitCode::kBadFile, "a.jsonl:88: cannot be encoded",
                    [&] { prepare_samples(writer, other); });
}

// A refusal by the system is no bad row.
TEST_F(PrepareSamples, OtherErrorsAreNotSkipped) {
  SampleWriter writer(path("a"), kKey, 10);
  Preparation broken = preparation(100, 2, true);
  broken.next = [this]() -> std::optional<PlacedRow> {
    if (next_++ == 5) throw_user(ExitCode::kIo, "the disk is gone");
    return PlacedRow{TextRow{"1"}, {"a", next_}, {}};
  };
  expect_user_error(ExitCode::kIo, "the disk is gone", [&] { prepare_samples(writer, broken); });
  Preparation none = preparation(100, 2, true);
  none.encoder = []() -> EncodeRow { throw_internal("no encoder"); };
  EXPECT_THROW(prepare_samples(writer, none), InternalError);
}

TEST_F(PrepareSamples, GoesOnBehindTheRowsThatAreThere) {
  {
    SampleWriter writer(path("whole"), kKey, 10);
    prepare_samples(writer, preparation(300000, 2, true));
    writer.finish();
  }
  {
    SampleWriter writer(path("a"), kKey, 10);
    prepare_samples(writer, preparation(200000, 2, true));
  }
  SampleWriter writer(path("a"), kKey, 10);
  EXPECT_EQ(writer.kept().samples, 1 << 17);
  Preparation rest = preparation(300000, 2, true);
  next_ = writer.kept_until().value()[2];
  PreparationProgress last;
  rest.progress = [&](const PreparationProgress& progress) { last = progress; };
  prepare_samples(writer, rest);
  writer.finish();
  EXPECT_EQ(last.rows, 300000);
  EXPECT_GT(last.kept_bytes, 10 << 17);
  EXPECT_EQ(last.bytes, last.all_bytes);
  EXPECT_EQ(read_small_file(path("a"), 16 * kMiB), read_small_file(path("whole"), 16 * kMiB));
}

// What hangs is told and left behind, with what it reads from.
TEST_F(PrepareSamples, AReaderThatDoesNotAnswerIsLeftBehind) {
  const auto comes_back = std::make_shared<std::promise<void>>();
  const auto rows = std::make_shared<int>(0);
  {
    SampleWriter writer(path("a"), kKey, 10);
    Preparation hanging = preparation(0, 2);
    hanging.source = "a.jsonl";
    hanging.next = [comes_back, rows]() -> std::optional<PlacedRow> {
      if (++*rows == 100) comes_back->get_future().wait();
      return PlacedRow{TextRow{"1"}, {"a.jsonl", *rows}, {}};
    };
    hanging.limit_seconds = 0.05;
    expect_user_error(ExitCode::kIo,
                      "a.jsonl: no row came within 0 s: the thread that reads it does not answer",
                      [&] { prepare_samples(writer, hanging); });
  }
  EXPECT_GT(rows.use_count(), 1);
  comes_back->set_value();
  while (rows.use_count() > 1) std::this_thread::yield();
}

// The reader does not run ahead: of 100 million rows only what the chunks hold is read before the first error ends it.
TEST_F(PrepareSamples, HoldsAFewChunksOnly) {
  SampleWriter writer(path("a"), kKey, 10);
  Preparation endless = preparation(100'000'000, 2);
  endless.next = [this]() -> std::optional<PlacedRow> {
    return PlacedRow{TextRow{std::to_string(next_)}, {"a", next_++}, {}};
  };
  expect_user_error(ExitCode::kBadFile, "cannot be encoded", [&] { prepare_samples(writer, endless); });
  EXPECT_LE(next_, 7 * 64);
  // Long rows, whatever they come to: one a chunk.
  Preparation long_rows = preparation(100'000'000, 2);
  long_rows.next = [this]() -> std::optional<PlacedRow> {
    return PlacedRow{TextRow{std::to_string(next_)}, {"a", next_++}, {}, 300 << 10};
  };
  SampleWriter other(path("b"), kKey, 10);
  expect_user_error(ExitCode::kBadFile, "cannot be encoded", [&] { prepare_samples(other, long_rows); });
  EXPECT_LE(next_, 88 + 7 + 1);
}

TEST(PreparationProgress, TellsWhatIsLeft) {
  const PreparationProgress progress{.bytes = 300, .all_bytes = 900, .seconds = 10, .kept_bytes = 100};
  EXPECT_EQ(progress.seconds_left(), 30);
  EXPECT_EQ(PreparationProgress{}.seconds_left(), std::nullopt);
}

}  // namespace
}  // namespace snug
