// The cache of prepared data as users meet it: runs that were killed, two at once, places that cannot be written, files that broke.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class PreparedData : public testing::Test {
 protected:
  PreparedData() : model_(make_model(here_ / "model", llama_json({.positions = 64, .vocabulary = 640}))) {
    fs::copy(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/gpt2.json",
             model_ + "/tokenizer.json");
  }

  std::vector<std::string> inspecting(const std::string& file,
                                      const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {"data",      "inspect", file,        "--model", model_,
                                      "--samples", "0",       "--threads", "1"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  std::vector<std::string> in_cache(const std::string& file) const {
    return inspecting(file, {"--data_cache", here_ / "cache"});
  }
  std::string add(const std::string& name, const std::string& text) const {
    write_text(here_ / name, text);
    return here_ / name;
  }
  std::string rows(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i) text += Json{{"text", "row " + std::to_string(i)}}.dump() + "\n";
    return add("rows.jsonl", text);
  }
  static fs::path only_file(const fs::path& directory) {
    std::vector<fs::path> files;
    if (fs::exists(directory))
      for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
    EXPECT_LE(files.size(), 1u);
    return files.empty() ? fs::path() : files.front();
  }
  // Its file prepared, taken away again, and the part of the same name, which this process holds.
  int hold_part(const std::string& file) {
    expect_done(in_cache(file));
    const fs::path prepared = only_file(here_ / "cache");
    fs::remove(prepared);
    const int part = ::open((prepared.string() + ".part").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::flock(part, LOCK_EX), 0);
    return part;
  }

  TemporaryDirectory here_;
  std::string model_;
};

// A text that was killed while it was encoded: the next run encodes what is left, and comes to the same file.
TEST_F(PreparedData, ATextThatWasKilledGoesOn) {
  std::string text;
  while (text.size() < 40'000'000) text += "In the beginning was line " + std::to_string(text.size()) + ".\n";
  const std::string file = add("text.txt", text);
  {
    RunningProgram killed(in_cache(file));
    const auto size = [&] {
      const fs::path part = only_file(here_ / "cache");
      return part.empty() ? uintmax_t{0} : fs::file_size(part);
    };
    for (int i = 0; i < 20000 && size() < 5 << 20; ++i) usleep(1000);
    killed.send(SIGKILL);
    killed.wait();
  }
  if (only_file(here_ / "cache").extension() == ".samples")
    GTEST_SKIP() << "it was done before it could be killed";
  const ProgramEnd resumed = expect_done(in_cache(file));
  const std::string told = "the same data was stopped: ";
  const size_t at = resumed.err.find(told);
  ASSERT_NE(at, std::string::npos) << resumed.err;
  EXPECT_GE(std::stoll(resumed.err.substr(at + told.size())), 1 << 20);  // 4 bytes each, of at least 5 MiB
  const std::string bytes = file_text(only_file(here_ / "cache"));
  fs::remove(only_file(here_ / "cache"));
  const ProgramEnd whole = expect_done(in_cache(file));
  EXPECT_THAT(whole.err, Not(HasSubstr("was stopped")));
  EXPECT_EQ(whole.out, resumed.out);
  EXPECT_TRUE(file_text(only_file(here_ / "cache")) == bytes);
}

TEST_F(PreparedData, ARunWaitsForAnotherThatPreparesTheSame) {
  const std::string file = rows(10);
  const int part = hold_part(file);
  RunningProgram waiting(in_cache(file));
  EXPECT_TRUE(waiting.wait_for_error("note: waiting for another run (process " + std::to_string(getpid()) +
                                     ") to finish " + (here_ / "cache/")));
  ::close(part);
  const ProgramEnd end = waiting.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("10 samples"));
  EXPECT_EQ(only_file(here_ / "cache").extension(), ".samples");
}

TEST_F(PreparedData, AWaitEndsWithASignal) {
  const std::string file = rows(10);
  const int part = hold_part(file);
  for (const int signal : {SIGINT, SIGTERM}) {
    RunningProgram waiting(in_cache(file));
    EXPECT_TRUE(waiting.wait_for_error("waiting for another run"));
    waiting.send(signal);
    const ProgramEnd end = waiting.wait();
    EXPECT_FALSE(end.timed_out);
    EXPECT_EQ(end.signal, signal);
  }
  ::close(part);
  expect_done(in_cache(file));
}

// The cache cannot be written: a run that has an output directory prepares there, and the next one finds it.
TEST_F(PreparedData, LiesBesideTheOutputWhereTheCacheCannotBeWritten) {
  const std::string home = here_ / "home", file = rows(200);
  fs::create_directory(home);
  fs::permissions(home, fs::perms::owner_read | fs::perms::owner_exec);
  const Surroundings read_only{.obeys_permissions = true, .cache_home = home};
  const std::vector<std::string> training = {
      "train",        "--model",      model_,        "--from_scratch", "--train_file",
      file,           "--output_dir", here_ / "out", "--max_steps",    "1",
      "--max_length", "16",           "--costs",     "roofline",       "--overwrite_output_dir"};
  const ProgramEnd first = expect_done(training, read_only);
  EXPECT_THAT(first.err, HasSubstr("prepared data lie in " + (here_ / "out/prepared_data") + ": " + home));
  EXPECT_THAT(first.err, HasSubstr("Permission denied"));
  EXPECT_EQ(only_file(here_ / "out/prepared_data").extension(), ".samples");
  EXPECT_THAT(expect_done(training, read_only).out, HasSubstr("(prepared by an earlier run)"));
  expect_refusal(inspecting(file), kIo,
                 {home, "Permission denied; --data_cache DIR names another place for prepared data"},
                 read_only);
}

// A disk that is full half-way: told, and when there is room the next run goes on.
TEST_F(PreparedData, AFullDiskIsToldAndNothingIsLost) {
  std::string text;
  while (text.size() < 8'000'000) text += "Line " + std::to_string(text.size()) + " of a text.\n";
  const std::string file = add("text.txt", text);
  expect_refusal(
      in_cache(file), kIo,
      {here_ / "cache/", ".samples.part: cannot write: File too large; --data_cache DIR names another place"},
      {.largest_file_bytes = 5 << 20});
  EXPECT_EQ(only_file(here_ / "cache").extension(), ".part");
  EXPECT_THAT(expect_done(in_cache(file)).err, HasSubstr("was stopped"));
  EXPECT_EQ(only_file(here_ / "cache").extension(), ".samples");
}

TEST_F(PreparedData, WhatBrokeIsToldAndMadeAnew) {
  const std::string file = rows(1000);
  const ProgramEnd good = expect_done(in_cache(file));
  const fs::path prepared = only_file(here_ / "cache");
  const std::string bytes = file_text(prepared);
  const auto expect_made_anew = [&](std::string_view broken) {
    write_text(prepared, broken);
    const ProgramEnd again = expect_done(in_cache(file));
    EXPECT_THAT(again.err, HasSubstr("prepared data is made anew: " + prepared.string()));
    EXPECT_EQ(again.out, good.out);
    EXPECT_TRUE(file_text(prepared) == bytes);
  };
  expect_made_anew(std::string_view(bytes).substr(0, bytes.size() / 2));
  for (const size_t at : {size_t{10}, bytes.size() / 3, bytes.size() - 5}) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    expect_made_anew(flipped);
  }
}

}  // namespace
}  // namespace snug
