#include "data/sample_windows.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/testing.h"
#include "data/sample.h"

namespace snug {
namespace {

constexpr Fingerprint kKey{1, 2};
constexpr int64_t kVocabulary = 1000;

struct Row {
  Sample sample;
  bool is_document = false;
};

// Ids first, first + 1, …; `learned` of them, the last ones, are supervised.
Row row(int32_t first, int64_t size, int64_t learned, bool is_document = false) {
  Row made{.sample = {}, .is_document = is_document};
  for (int64_t i = 0; i < size; ++i) {
    made.sample.ids.push_back(first + static_cast<int32_t>(i));
    made.sample.supervised.push_back(i >= size - learned);
  }
  return made;
}

class SampleWindowsTest : public testing::Test {
 protected:
  std::shared_ptr<const SampleFile> file(const std::vector<Row>& rows) {
    const std::string path = directory_ / fmt::format("{}", ++files_);
    SampleWriter writer(path, kKey, kVocabulary);
    for (const Row& row : rows) writer.add(row.sample.ids, row.sample.supervised, row.is_document);
    writer.finish();
    std::string why;
    return SampleFile::open(path, kKey, kVocabulary, why);
  }
  SampleWindows windows(std::shared_ptr<const SampleFile> samples, int64_t length, Packing packing,
                        const SampleChoice& choice = {}) {
    return SampleWindows(std::move(samples), choice, length, packing, directory_.path(), "rows.jsonl");
  }
  static Batch all(SampleWindows& windows) {
    Batch batch = make_batch(windows.count() + 1, windows.length());
    for (int64_t i = 0; i <= windows.count(); ++i)
      windows.fill_row(batch, i, i < windows.count() ? std::optional(i) : std::nullopt);
    return batch;
  }
  TemporaryDirectory directory_;

 private:
  int files_ = 0;
};

// Length 4. The sample of 4 ids has 3 positions; padding looks at itself alone.
TEST_F(SampleWindowsTest, PaddedByPosition) {
  SampleWindows made = windows(file({row(10, 4, 2), row(20, 5, 4)}), 4, Packing::kOff);
  ASSERT_EQ(made.count(), 2);
  EXPECT_EQ(made.targets(), 6);
  EXPECT_EQ(made.targets_of(0), 2);
  const Batch batch = all(made);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 11, 12, 0, 20, 21, 22, 23, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets,
            (std::vector<int32_t>{-100, 12, 13, -100, 21, 22, 23, 24, -100, -100, -100, -100}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 0, 0}));
  EXPECT_EQ(batch.document_starts, (std::vector<int32_t>{0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.supervised_tokens, 6);
  EXPECT_EQ(batch.windows, 2);
}

// The end of text is also the id that other programs pad with: [a b eos] and [c d e f eos] have 6 targets, two of them eos.
TEST_F(SampleWindowsTest, AnEndOfTextIsLearnedWhateverPaddingIs) {
  const int32_t eos = 0;
  const Row first{{{7, 8, eos}, {true, true, true}}, true},
      second{{{3, 4, 5, 6, eos}, {true, true, true, true, true}}, true};
  SampleWindows made = windows(file({first, second}), 5, Packing::kOff);
  const Batch batch = all(made);
  EXPECT_EQ(batch.supervised_tokens, 6);
  EXPECT_EQ(std::count(batch.targets.begin(), batch.targets.end(), eos), 2);
}

// Length 5: 3, 2 and 1 positions; first fit decreasing puts 3 + 2 together.
TEST_F(SampleWindowsTest, PackedSamplesDoNotSeeEachOther) {
  SampleWindows made = windows(file({row(10, 4, 2), row(20, 2, 1), row(30, 3, 2)}), 5, Packing::kOn);
  ASSERT_EQ(made.count(), 2);
  const Batch batch = all(made);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 11, 12, 30, 31, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(std::vector(batch.targets.begin(), batch.targets.begin() + 6),
            (std::vector<int32_t>{-100, 12, 13, 31, 32, 21}));
  EXPECT_EQ(std::vector(batch.positions.begin(), batch.positions.begin() + 6),
            (std::vector<int32_t>{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(std::vector(batch.document_starts.begin(), batch.document_starts.begin() + 6),
            (std::vector<int32_t>{0, 0, 0, 3, 3, 0}));
  EXPECT_EQ(made.report().positions, 6);
  EXPECT_DOUBLE_EQ(made.report().filled(5), 0.6);
}

// A document of 10 ids at length 4: pieces of 4, 4 and 1 positions; every target once.
TEST_F(SampleWindowsTest, DocumentsAreCutSoThatEveryTargetIsThereOnce) {
  SampleWindows made = windows(file({row(100, 10, 10, true)}), 4, Packing::kOff);
  ASSERT_EQ(made.count(), 3);
  const Batch batch = all(made);
  std::vector<int32_t> targets;
  for (const int32_t target : batch.targets)
    if (target != kIgnoredTarget) targets.push_back(target);
  EXPECT_EQ(targets, (std::vector<int32_t>{101, 102, 103, 104, 105, 106, 107, 108, 109}));
  EXPECT_EQ(made.report().cut, 1);
  EXPECT_EQ(made.report().truncated, 0);
  EXPECT_EQ(made.report().longest, 9);
}

// 20 ids of prompt, 4 of completion. 16 positions end before it: the sample is in no window, and is told.
TEST_F(SampleWindowsTest, OtherSamplesAreTruncatedAndCounted) {
  SampleWindows made = windows(file({row(100, 18, 4), row(200, 24, 4), row(300, 5, 2)}), 16, Packing::kOff);
  const WindowsReport& report = made.report();
  EXPECT_EQ(report.samples, 3);
  EXPECT_EQ(report.truncated, 2);
  EXPECT_EQ(report.truncated_targets, 1 + 4);
  EXPECT_EQ(report.unsupervised, 1);
  EXPECT_EQ(report.first_unsupervised, 1);
  EXPECT_EQ(report.windows, 2);
  EXPECT_EQ(made.targets(), 3 + 2);
  const Batch batch = all(made);
  EXPECT_EQ(batch.targets[15], 116);  // the 17th id is the last target
}

TEST_F(SampleWindowsTest, NothingToLearnIsRefused) {
  expect_user_error(ExitCode::kBadFile,
                    "rows.jsonl: none of 2 samples has a supervised token within max_length 16", [&] {
                      windows(file({row(200, 24, 4), row(1, 1, 1)}), 16, Packing::kAuto);
                    });
}

TEST_F(SampleWindowsTest, ShortSamplesArePackedUnlessToldOtherwise) {
  const auto samples = file({row(10, 4, 2), row(20, 4, 1), row(30, 3, 2)});  // 3, 3 and 2 positions
  EXPECT_TRUE(windows(samples, 4, Packing::kAuto).report().packed);          // 8 of 12
  EXPECT_FALSE(windows(samples, 3, Packing::kAuto).report().packed);         // 8 of 9
  EXPECT_FALSE(windows(samples, 4, Packing::kOff).report().packed);
  EXPECT_TRUE(windows(samples, 3, Packing::kOn).report().packed);
}

// 20,000 samples: more than are packed together. Every target is there once, no window is overfull, and nearly all of each is used.
TEST_F(SampleWindowsTest, ManySamples) {
  std::mt19937 random(3);
  std::vector<Row> rows;
  std::map<int32_t, int64_t> expected;
  int64_t positions = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto size = static_cast<int64_t>(2 + random() % 30);
    rows.push_back(row(static_cast<int32_t>(random() % 900), size,
                       static_cast<int64_t>(1 + random() % static_cast<uint64_t>(size - 1))));
    const Sample& sample = rows.back().sample;
    for (size_t p = 1; p < sample.ids.size(); ++p)
      if (sample.supervised[p]) ++expected[sample.ids[p]];
    positions += size - 1;
  }
  SampleWindows made = windows(file(rows), 128, Packing::kOn);
  EXPECT_EQ(made.tokens(), positions);
  EXPECT_GT(made.report().filled(128), 0.99);
  std::map<int32_t, int64_t> found;
  Batch batch = make_batch(1, 128);
  int64_t targets = 0;
  for (int64_t i = 0; i < made.count(); ++i) {
    batch.supervised_tokens = 0;
    made.fill_row(batch, 0, i);
    EXPECT_EQ(batch.supervised_tokens, made.targets_of(i));
    targets += batch.supervised_tokens;
    for (const int32_t target : batch.targets)
      if (target != kIgnoredTarget) ++found[target];
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(targets, made.targets());
}

// Documents of several pieces: none has pieces on both sides, and the seed says which are where.
TEST_F(SampleWindowsTest, TheValidationPartIsDisjointByDocument) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < 50; ++i) rows.push_back(row(i * 20, 20, 20, true));
  const auto samples = file(rows);
  const auto documents = [&](SampleChoice::Part part, uint64_t seed) {
    SampleWindows made = windows(samples, 6, Packing::kOn, {.part = part, .held_out = 7, .seed = seed});
    const Batch batch = all(made);
    std::multiset<int32_t> found;
    for (size_t i = 0; i < batch.targets.size(); ++i)
      if (batch.targets[i] != kIgnoredTarget) found.insert(batch.targets[i] / 20);
    return found;
  };
  const auto training = documents(SampleChoice::Part::kTraining, 1),
             validation = documents(SampleChoice::Part::kValidation, 1);
  EXPECT_EQ(training.size(), 43u * 19);
  EXPECT_EQ(validation.size(), 7u * 19);
  for (const int32_t document : std::set(validation.begin(), validation.end())) {
    EXPECT_EQ(validation.count(document), 19u);
    EXPECT_EQ(training.count(document), 0u);
  }
  EXPECT_EQ(documents(SampleChoice::Part::kValidation, 1), validation);
  EXPECT_NE(documents(SampleChoice::Part::kValidation, 2), validation);
}

}  // namespace
}  // namespace snug
