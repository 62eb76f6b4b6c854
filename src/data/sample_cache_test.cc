#include "data/sample_cache.h"

#include <chrono>
#include <filesystem>

#include "base/testing.h"

namespace snug {
namespace {

constexpr Fingerprint kKey{1, 2};

class SampleCacheTest : public testing::Test {
 protected:
  // Writes ids 0 … 9, a row each.
  SampleCache::Found find(const SampleCache& cache, const Fingerprint& key = kKey) {
    return cache.find(key, 100, [this](SampleWriter& writer) {
      ++made_;
      for (int32_t id = static_cast<int32_t>(writer.kept().rows); id < 10; ++id)
        writer.add(std::vector<int32_t>{id}, {}, true);
    });
  }
  SampleCache cache() {
    return SampleCache(directory_ / "data", [this](std::string_view note) { notes_ += note; });
  }
  std::string only_file() {
    return join_path(directory_ / "data", list_directory(directory_ / "data").at(0));
  }

  TemporaryDirectory directory_;
  int made_ = 0;
  std::string notes_;
};

TEST_F(SampleCacheTest, TheSecondTimeNothingIsMade) {
  const SampleCache first = cache();
  EXPECT_FALSE(find(first).was_there);
  const SampleCache::Found again = find(cache());
  EXPECT_TRUE(again.was_there);
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(again.samples->totals().samples, 10);
  EXPECT_FALSE(find(first, {1, 3}).was_there);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(notes_, "");
}

TEST_F(SampleCacheTest, ABrokenFileIsMadeAnew) {
  find(cache());
  const std::string path = only_file();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const SampleCache::Found found = find(cache());
  EXPECT_FALSE(found.was_there);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(found.samples->totals().samples, 10);
  EXPECT_THAT(notes_, testing::HasSubstr("prepared data is made anew"));
  EXPECT_TRUE(find(cache()).was_there);
}

TEST_F(SampleCacheTest, WhatAMakerThrowsLeavesAPartToGoOnWith) {
  const SampleCache data = cache();
  expect_user_error(ExitCode::kBadFile, "row 3", [&] {
    data.find(kKey, 100, [](SampleWriter&) { throw_user(ExitCode::kBadFile, "row 3 is bad"); });
  });
  EXPECT_THAT(only_file(), testing::EndsWith(".samples.part"));
  EXPECT_EQ(find(data).samples->totals().samples, 10);
  EXPECT_THAT(only_file(), testing::EndsWith(".samples"));
}

TEST_F(SampleCacheTest, OldFilesAndAbandonedPartsGo) {
  find(cache());
  const std::string used = only_file(), part = join_path(directory_ / "data", "1.samples.part"),
                    young = join_path(directory_ / "data", "2.samples.part"),
                    other = join_path(directory_ / "data", "costs.json");
  for (const std::string& path : {part, young, other}) write_file(path, "");
  const auto age = [](const std::string& path, int hours) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  age(part, 25);
  age(young, 23);
  age(other, 24 * 100);
  age(used, 24 * 29);
  cache();
  EXPECT_FALSE(file_exists(part));
  EXPECT_TRUE(file_exists(young) && file_exists(other) && file_exists(used));
  find(cache());  // used: young again
  age(used, 24 * 31);
  cache();
  EXPECT_FALSE(file_exists(used));
}

}  // namespace
}  // namespace snug
