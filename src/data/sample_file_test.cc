#include "data/sample_file.h"

#include <random>

#include "base/testing.h"
#include "data/sample.h"

namespace snug {
namespace {

constexpr Fingerprint kKey{1, 2};

Sample sample_of(uint32_t seed, int64_t vocabulary) {
  std::mt19937 random(seed);
  Sample sample;
  sample.ids.resize(random() % 40);
  for (int32_t& id : sample.ids) {
    id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
    sample.supervised.push_back(random() % 3 == 0);
  }
  return sample;
}

void add(SampleWriter& writer, const Sample& sample, bool is_document) {
  writer.add(sample.ids, sample.supervised, is_document);
}

// Rows [begin, end), of which every tenth is bad.
void add_rows(SampleWriter& writer, uint32_t begin, uint32_t end, int64_t vocabulary) {
  for (uint32_t i = begin; i < end; ++i) {
    if (i % 10 == 9)
      writer.add_bad_rows({.count = 1, .messages = {fmt::format("row {}", i)}});
    else
      add(writer, sample_of(i, vocabulary), i % 2 == 0);
  }
}

std::unique_ptr<const SampleFile> open_whole(const std::string& path, int64_t vocabulary) {
  std::string why;
  auto file = SampleFile::open(path, kKey, vocabulary, why);
  EXPECT_EQ(why, "");
  return file;
}

class Widths : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Vocabulary, Widths, testing::Values(65536, 65537));

TEST_P(Widths, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  SampleWriter writer(path, kKey, GetParam());
  add_rows(writer, 0, 100, GetParam());
  const SampleTotals written = writer.finish();
  EXPECT_EQ(written.rows, 100);
  EXPECT_EQ(written.bad_rows, 10);
  EXPECT_EQ(written.samples, 90);

  const auto file = open_whole(path, GetParam());
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->totals().ids, written.ids);
  EXPECT_EQ(file->totals().supervised, written.supervised);
  EXPECT_EQ(file->totals().bad_rows, 10);
  int64_t first = 0, supervised = 0, visited = 0;
  uint32_t row = 0;
  file->visit([&](const StoredSample& stored) {
    if (row % 10 == 9) ++row;
    const Sample sample = sample_of(row, GetParam());
    EXPECT_EQ(stored.index, visited);
    EXPECT_EQ(stored.first_id, first);
    ASSERT_EQ(stored.length, static_cast<int64_t>(sample.ids.size()));
    EXPECT_EQ(stored.is_document, row % 2 == 0);
    std::vector<int32_t> ids(sample.ids.size());
    file->read_ids(first, ids);
    EXPECT_EQ(ids, sample.ids);
    std::vector<uint8_t> marks(sample.ids.size());
    file->read_supervised(first, marks);
    int64_t count = 0;
    for (size_t i = 0; i < marks.size(); ++i) {
      EXPECT_EQ(marks[i] != 0, sample.supervised[i]) << i;
      if (i > 0) count += marks[i];
    }
    EXPECT_EQ(stored.supervised(1, stored.length), count);
    supervised += count;
    first += stored.length;
    ++visited;
    ++row;
  });
  EXPECT_EQ(visited, 90);
  EXPECT_EQ(supervised, written.supervised);
  // Any range, whatever samples it crosses.
  std::vector<int32_t> all(static_cast<size_t>(written.ids)), part(101);
  file->read_ids(0, all);
  file->read_ids(37, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 37));
}

// Segments end at 2^20 ids: three of 400,000 fill the first.
TEST(SampleFile, RangesCrossSegments) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  SampleWriter writer(path, kKey, 70000);
  std::vector<int32_t> ids(400000);
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>((static_cast<size_t>(round) * ids.size() + i) % 70000);
    writer.add(ids, {}, true);
  }
  writer.finish();
  const auto file = open_whole(path, 70000);
  ASSERT_NE(file, nullptr);
  std::vector<int32_t> out(1000);
  file->read_ids(1199500, out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<int32_t>((1199500 + i) % 70000));
  std::vector<uint8_t> marks(10000);
  file->read_supervised(1195003, marks);
  EXPECT_EQ(std::count(marks.begin(), marks.end(), 1), 10000);
}

TEST(SampleWriter, GoesOnBehindTheLastWholeSegment) {
  const TemporaryDirectory directory;
  const std::string whole = directory / "whole", path = directory / "a";
  const std::vector<int32_t> row(300000, 5);
  const auto write = [&](SampleWriter& writer, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (i % 5 == 4)
        writer.add_bad_rows({.count = 1, .messages = {fmt::format("row {}", i)}});
      else {
        writer.set_state("behind row " + std::to_string(i));
        writer.add(row, {}, false, {7, i + 1, 0}, i % 4 == 0);
      }
  };
  {
    SampleWriter writer(whole, kKey, 100);
    write(writer, 0, 12);
    writer.finish();
  }
  {
    SampleWriter writer(path, kKey, 100);
    write(writer, 0, 10);  // 8 samples, each four of them a segment
  }
  const std::string part = path + ".part";
  {  // as a process leaves it that was killed while it wrote the second one
    const auto size = static_cast<int64_t>(std::filesystem::file_size(part));
    std::filesystem::resize_file(part, static_cast<uintmax_t>(size - 3));
  }
  {
    SampleWriter writer(path, kKey, 100);
    EXPECT_EQ(writer.kept().rows, 4);
    EXPECT_EQ(writer.kept_until(), (RowCursor{7, 4, 0}));
    EXPECT_EQ(writer.kept_state(), "behind row 3");
    EXPECT_EQ(writer.kept().samples, 4);
    write(writer, writer.kept().rows, 12);
    writer.finish();
  }
  EXPECT_EQ(read_small_file(path, 16 * kMiB), read_small_file(whole, 16 * kMiB));
  EXPECT_EQ(open_whole(path, 100)->totals().samples, 10);
  // Another key begins anew.
  { SampleWriter(path, kKey, 100).add(row, {}, false); }
  const SampleWriter other(path, {1, 3}, 100);
  EXPECT_EQ(other.kept().rows, 0);
}

// Of a file that is written in one go and of one that was begun by a process that was killed: see the test above.
TEST(SampleFile, KeepsTheFirstMessages) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  const std::vector<int32_t> row(300000, 5);
  const auto write = [&](SampleWriter& writer, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      writer.add_bad_rows({.count = 2, .messages = {fmt::format("{}\n{}", i, std::string(2000, 'x')), ""}});
      writer.add(row, {}, false, {0, i + 1, 0}, i % 2 == 0);
    }
  };
  {
    SampleWriter writer(path, kKey, 100);
    write(writer, 0, 5);  // four are a segment
  }
  SampleWriter writer(path, kKey, 100);
  EXPECT_EQ(writer.kept().samples, 4);
  EXPECT_EQ(writer.kept().began_with_answer, 2);
  write(writer, 4, 9);
  writer.finish();
  const auto file = open_whole(path, 100);
  EXPECT_EQ(file->totals().bad_rows, 18);
  EXPECT_EQ(file->totals().began_with_answer, 5);
  std::vector<std::string> expected;
  for (int i = 0; i < 5; ++i) {
    expected.push_back(fmt::format("{} {}", i, std::string(998, 'x')));
    expected.emplace_back();
  }
  EXPECT_EQ(file->bad_rows(), expected);
}

TEST(SampleFile, WhatIsBrokenIsNotOpened) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  std::string why;
  EXPECT_EQ(SampleFile::open(path, kKey, 100, why), nullptr);
  EXPECT_EQ(why, "");
  {
    SampleWriter writer(path, kKey, 100);
    add_rows(writer, 0, 50, 100);
    writer.finish();
  }
  const std::string good = read_small_file(path, kMiB);
  const auto expect_refused = [&](std::string_view bytes, std::string_view reason,
                                  const Fingerprint& key = kKey) {
    write_file(path, bytes);
    EXPECT_EQ(SampleFile::open(path, key, 100, why), nullptr);
    EXPECT_THAT(why, testing::HasSubstr(std::string(reason)));
  };
  expect_refused(good, "is of other data", {1, 3});
  expect_refused(good.substr(0, 50), "has 50 bytes");
  expect_refused(good.substr(0, good.size() - 8), "truncated or broken");
  expect_refused(good + "12345678", "truncated or broken");
  // No byte is without a check.
  for (size_t at = 0; at < good.size(); at += at < 256 || at + 256 > good.size() ? 1 : 29) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    expect_refused(bad, "");
  }
  write_file(path, good);
  EXPECT_NE(SampleFile::open(path, kKey, 100, why), nullptr);
}

TEST(SampleFile, IdsBeyondTheVocabularyAreNotGivenOut) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  {
    SampleWriter writer(path, kKey, 100);
    EXPECT_THROW(writer.add(std::vector<int32_t>{100}, {}, true), InternalError);
  }
  std::filesystem::remove(path + ".part");
  {
    SampleWriter writer(path, kKey, 100);
    writer.add(std::vector<int32_t>{1, 99}, {}, true);
    writer.finish();
  }
  std::string why;
  const auto file = SampleFile::open(path, kKey, 99, why);
  ASSERT_NE(file, nullptr);
  std::vector<int32_t> out(2);
  expect_user_error(ExitCode::kBadFile, "id 1 is 99; expected 0 to 98", [&] { file->read_ids(0, out); });
}

TEST(SampleWriter, AFullDiskIsTold) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  SampleWriter writer(path, kKey, 100);
  add_rows(writer, 0, 50, 100);
  const ScopedFileFault fault({.operation = FileOperation::kWrite, .fault = {.error_number = ENOSPC}});
  expect_user_error(ExitCode::kIo, "cannot write", [&] { writer.finish(); });
  EXPECT_FALSE(file_exists(path));
}

}  // namespace
}  // namespace snug
