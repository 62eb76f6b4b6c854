#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "base/testing.h"

namespace snug {
namespace {

std::string contents(const std::string& path) { return read_small_file(path, kMiB); }

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

std::string read_at(const InputFile& file, int64_t offset, size_t count) {
  std::string text(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(InputFile, ReadsExactRanges) {
  const TemporaryDirectory directory;
  const InputFile file(directory.add("a", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(read_at(file, 0, 10), "0123456789");
  EXPECT_EQ(read_at(file, 7, 3), "789");
  EXPECT_EQ(read_at(file, 10, 0), "");
}

TEST(InputFile, RefusesRangesOutsideTheFile) {
  const TemporaryDirectory directory;
  const InputFile file(directory.add("a", "0123456789"));
  expect_user_error(ExitCode::kBadFile, "a: 3 bytes wanted at offset 8, but the file has 10 bytes",
                    [&] { read_at(file, 8, 3); });
  expect_user_error(ExitCode::kBadFile, "at offset -1", [&] { read_at(file, -1, 1); });
  expect_user_error(ExitCode::kBadFile, "at offset 9223372036854775807",
                    [&] { read_at(file, INT64_MAX, 1); });
}

TEST(InputFile, RefusesWhatCannotBeRead) {
  const TemporaryDirectory directory;
  expect_user_error(ExitCode::kBadFile, "none: cannot open: No such file or directory",
                    [&] { InputFile(directory / "none"); });
  expect_user_error(ExitCode::kBadFile, "is a directory; expected a regular file",
                    [&] { InputFile(directory.path()); });
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_user_error(ExitCode::kBadFile, "is a device, pipe or socket",
                    [&] { InputFile(directory / "pipe"); });
}

TEST(InputFile, AFileThatShrinksIsAnErrorAndNoSignal) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a", std::string(10000, 'x'));
  const InputFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  expect_user_error(ExitCode::kBadFile, "a: ends at byte 100 while it is read; it had 10000 bytes",
                    [&] { read_at(file, 0, 10000); });
}

TEST(InputFile, SurvivesShortReadsAndInterruptions) {
  const TemporaryDirectory directory;
  const InputFile file(directory.add("a", "0123456789"));
  {
    const ScopedFileFault fault(
        {.operation = FileOperation::kRead, .fault = {.at_most_bytes = 3}, .persistent = true});
    EXPECT_EQ(read_at(file, 0, 10), "0123456789");
    EXPECT_EQ(fault.calls(), 4);
  }
  const ScopedFileFault fault({.operation = FileOperation::kRead, .fault = {.error_number = EINTR}});
  EXPECT_EQ(read_at(file, 0, 10), "0123456789");
  EXPECT_TRUE(fault.fired());
}

TEST(InputFile, ReportsTheSystemsRefusal) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a", "0123456789");
  const InputFile file(path);
  {
    const ScopedFileFault fault({.operation = FileOperation::kRead, .fault = {.error_number = EIO}});
    expect_user_error(ExitCode::kIo, "a: cannot read: Input/output error", [&] { read_at(file, 0, 10); });
  }
  const ScopedFileFault fault({.operation = FileOperation::kOpen, .fault = {.error_number = EMFILE}});
  expect_user_error(ExitCode::kIo, "a: cannot open: Too many open files", [&] { InputFile again(path); });
}

TEST(InputFile, Moves) {
  const TemporaryDirectory directory;
  InputFile a(directory.add("a", "first"));
  InputFile b(directory.add("b", "other"));
  InputFile c(std::move(a));
  EXPECT_EQ(read_at(c, 0, 5), "first");
  c = std::move(b);
  EXPECT_EQ(read_at(c, 0, 5), "other");
}

TEST(OutputFile, ReplacesAppendsAndExcludes) {
  const TemporaryDirectory directory;
  const std::string path = directory / "log";
  {
    OutputFile file(path, OutputFile::Mode::kReplace);
    file.write("one");
    EXPECT_EQ(file.position(), 3);
    file.close();
  }
  {
    OutputFile file(path, OutputFile::Mode::kAppend);
    file.write(" two");
    file.sync();
  }
  EXPECT_EQ(contents(path), "one two");
  expect_user_error(ExitCode::kIo, "log: cannot open it for writing: File exists",
                    [&] { OutputFile file(path, OutputFile::Mode::kExclusive); });
  expect_user_error(ExitCode::kIo, "cannot open it for writing: No such file or directory",
                    [&] { OutputFile file(directory / "none/log", OutputFile::Mode::kAppend); });
}

TEST(AtomicFile, AppearsWholeWithTheModeOfTheUmask) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a", "old");
  const mode_t before = ::umask(0027);
  {
    AtomicFile file(path);
    file.write("new ");
    file.write("bytes");
    EXPECT_EQ(contents(path), "old");
    ASSERT_EQ(list_directory(directory.path()).size(), 2U);
    for (const std::string& name : list_directory(directory.path())) {
      EXPECT_EQ(is_temporary_name(name), name != "a");
      if (name == "a") continue;
      EXPECT_EQ(mode_of(directory / name), 0600U);
    }
    file.commit();
  }
  ::umask(before);
  EXPECT_EQ(contents(path), "new bytes");
  EXPECT_EQ(mode_of(path), 0640U);
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("a"));
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a", "old");
  {
    AtomicFile file(path);
    file.write("new");
    file.prepare();
  }
  EXPECT_EQ(contents(path), "old");
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("a"));
}

TEST(AtomicFile, ShortWritesAndInterruptionsAreFinished) {
  const TemporaryDirectory directory;
  const ScopedFileFault fault(
      {.operation = FileOperation::kWrite, .fault = {.at_most_bytes = 2}, .persistent = true});
  write_file(directory / "a", "0123456789");
  EXPECT_EQ(fault.calls(), 5);
  EXPECT_EQ(contents(directory / "a"), "0123456789");
}

// Every system call of a write fails in turn, once and for good: the old file stays, no temporary is left,
// and the error is the system's. The last round, in which nothing fails, must succeed.
TEST(AtomicFile, EveryCallMayFail) {
  for (const bool persistent : {false, true}) {
    for (const int error_number : {ENOSPC, EIO, EROFS}) {
      int failures = 0;
      for (int64_t nth = 1;; ++nth) {
        ASSERT_LT(nth, 50);
        const TemporaryDirectory directory;
        const std::string path = directory.add("a", "old");
        bool fired = false;
        std::string message;
        {
          const ScopedFileFault fault(
              {.nth = nth, .fault = {.error_number = error_number}, .persistent = persistent});
          try {
            AtomicFile file(path);
            file.preallocate(Bytes(100));
            file.write("new ");
            file.write("bytes");
            file.commit();
          } catch (const UserError& error) {
            EXPECT_EQ(error.code(), ExitCode::kIo) << error.what();
            message = error.what();
          }
          fired = fault.fired();
        }
        const auto names = list_directory(directory.path());
        if (!fired) {
          EXPECT_EQ(message, "");
          EXPECT_EQ(contents(path), "new bytes");
          break;
        }
        ++failures;
        EXPECT_THAT(message, testing::HasSubstr(std::generic_category().message(error_number)));
        EXPECT_THAT(message, testing::HasSubstr(directory.path()));
        EXPECT_THAT(names, testing::ElementsAre("a")) << "after call " << nth;
        // Once the rename is done, only the directory's fsync can still fail.
        EXPECT_THAT(contents(path), testing::AnyOf("old", "new bytes"));
      }
      // open, allocate, write, write, fsync, close, rename, open of the directory, its fsync
      EXPECT_EQ(failures, 9);
    }
  }
}

TEST(AtomicFile, AFullDiskNamesThePathAndTheReason) {
  const TemporaryDirectory directory;
  const ScopedFileFault fault(
      {.operation = FileOperation::kWrite, .fault = {.error_number = ENOSPC}, .persistent = true});
  expect_user_error(ExitCode::kIo, "cannot write: No space left on device",
                    [&] { write_file(directory / "a", "x"); });
}

TEST(AtomicFile, AFileSystemWithoutPreallocationIsNoError) {
  const TemporaryDirectory directory;
  const ScopedFileFault fault({.operation = FileOperation::kAllocate, .fault = {.error_number = EOPNOTSUPP}});
  AtomicFile file(directory / "a");
  file.preallocate(Bytes(1000));
  file.write("x");
  file.commit();
  EXPECT_TRUE(fault.fired());
  EXPECT_EQ(contents(directory / "a"), "x");
}

TEST(AtomicDirectory, AppearsWhole) {
  const TemporaryDirectory directory;
  const std::string target = directory / "checkpoint-5";
  {
    AtomicDirectory checkpoint(target + "/");
    EXPECT_EQ(checkpoint.target(), target);
    EXPECT_EQ(mode_of(checkpoint.path()), 0700U);
    write_file(join_path(checkpoint.path(), "a"), "bytes");
    EXPECT_FALSE(directory_exists(target));
    checkpoint.commit();
  }
  EXPECT_EQ(contents(target + "/a"), "bytes");
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("checkpoint-5"));
}

TEST(AtomicDirectory, WithoutCommitNothingIsLeft) {
  const TemporaryDirectory directory;
  {
    const AtomicDirectory checkpoint(directory / "checkpoint-5");
    make_directories(join_path(checkpoint.path(), "inner"));
    write_file(join_path(checkpoint.path(), "inner/a"), "bytes");
  }
  EXPECT_THAT(list_directory(directory.path()), testing::IsEmpty());
}

TEST(AtomicDirectory, RefusesAnExistingTarget) {
  const TemporaryDirectory directory;
  make_directories(directory / "there");
  expect_user_error(ExitCode::kIo, "there: cannot create the directory: File exists",
                    [&] { AtomicDirectory again(directory / "there"); });
  AtomicDirectory late(directory / "late");
  make_directories(directory / "late");
  expect_user_error(ExitCode::kIo, "late: cannot rename the finished temporary to it: File exists",
                    [&] { late.commit(); });
}

TEST(AtomicDirectory, EveryCallMayFail) {
  for (int64_t nth = 1;; ++nth) {
    ASSERT_LT(nth, 50);
    const TemporaryDirectory directory;
    bool fired = false;
    std::string message;
    {
      const ScopedFileFault fault({.nth = nth, .fault = {.error_number = EIO}});
      try {
        AtomicDirectory checkpoint(directory / "c");
        write_file(join_path(checkpoint.path(), "a"), "bytes");
        checkpoint.commit();
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::kIo) << error.what();
        message = error.what();
      }
      fired = fault.fired();
    }
    const auto names = list_directory(directory.path());
    if (!fired) {
      EXPECT_EQ(message, "");
      EXPECT_EQ(contents(directory / "c/a"), "bytes");
      break;
    }
    EXPECT_THAT(message, testing::HasSubstr("Input/output error"));
    // Whole or absent, never half; nothing temporary.
    if (!names.empty()) {
      EXPECT_THAT(names, testing::ElementsAre("c"));
      EXPECT_EQ(contents(directory / "c/a"), "bytes");
    }
  }
}

TEST(Directories, AreMadeWithTheirParents) {
  const TemporaryDirectory directory;
  make_directories(directory / "a/b/c/");
  make_directories(directory / "a/b/c");
  EXPECT_TRUE(directory_exists(directory / "a/b/c"));
  directory.add("file", "x");
  expect_user_error(ExitCode::kIo, "file: cannot create the directory: File exists",
                    [&] { make_directories(directory / "file/x"); });
  expect_user_error(ExitCode::kIo, "file: cannot create the directory: File exists",
                    [&] { make_directories(directory / "file"); });
  const ScopedFileFault fault(
      {.operation = FileOperation::kMakeDirectory, .fault = {.error_number = EACCES}});
  expect_user_error(ExitCode::kIo, "d: cannot create the directory: Permission denied",
                    [&] { make_directories(directory / "d"); });
}

TEST(Directories, AreListedAndRemoved) {
  const TemporaryDirectory directory;
  directory.add("b", "");
  directory.add("a/x/y", "1");
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("a", "b"));
  remove_all(directory / "a");
  remove_all(directory / "a");
  EXPECT_THAT(list_directory(directory.path()), testing::ElementsAre("b"));
  expect_user_error(ExitCode::kBadFile, "a: cannot open the directory: No such file",
                    [&] { list_directory(directory / "a"); });
  // A link is removed, not what it points to.
  directory.add("kept/file", "1");
  ASSERT_EQ(::symlink((directory / "kept").c_str(), (directory / "link").c_str()), 0);
  remove_all(directory / "link");
  EXPECT_TRUE(file_exists(directory / "kept/file"));
}

TEST(CopyFile, CopiesEveryByteThroughABoundedBuffer) {
  const TemporaryDirectory directory;
  std::string bytes;
  for (int i = 0; i < 1'500'000; ++i) bytes += static_cast<char>(i * 7 % 251);  // more than one buffer
  copy_file(directory.add("a", bytes), directory / "b");
  EXPECT_EQ(read_small_file(directory / "b", 2 * kMiB), bytes);
  copy_file(directory.add("empty", ""), directory / "c");
  EXPECT_EQ(contents(directory / "c"), "");
  expect_user_error(ExitCode::kBadFile, "none: cannot open",
                    [&] { copy_file(directory / "none", directory / "d"); });
  EXPECT_FALSE(file_exists(directory / "d"));
}

TEST(FreeSpace, IsThatOfTheNearestParent) {
  const TemporaryDirectory directory;
  EXPECT_GT(free_space(directory.path()), Bytes(0));
  EXPECT_GT(free_space(directory / "not/yet/there"), Bytes(0));
  require_free_space(directory.path(), Bytes(1), "the model");
  expect_user_error(ExitCode::kIo, "the model needs 4.00 EiB of disk, but",
                    [&] { require_free_space(directory.path(), Bytes(int64_t{1} << 62), "the model"); });
}

TEST(ScratchFile, HasNoNameAndReadsWhatWasWritten) {
  const TemporaryDirectory directory;
  ScratchFile file(directory.path());
  EXPECT_TRUE(list_directory(directory.path()).empty());
  file.write(std::as_bytes(std::span("01234", 5)));
  file.write(std::as_bytes(std::span("56789", 5)));
  std::string text(4, '?');
  file.read(3, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "3456");
  EXPECT_EQ(file.size(), 10);
  expect_user_error(ExitCode::kBadFile, "4 bytes wanted at offset 7, but the file has 10 bytes",
                    [&] { file.read(7, std::as_writable_bytes(std::span(text))); });
}

TEST(ContinuedFile, GoesOnWhereAnEarlierOneStopped) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  {
    ContinuedFile file(path);
    EXPECT_EQ(file.size(), 0);
    file.write(std::as_bytes(std::span("whole, then half", 16)));
  }
  EXPECT_FALSE(file_exists(path));
  ContinuedFile file(path);
  EXPECT_EQ(file.size(), 16);
  file.truncate(7);
  file.write(std::as_bytes(std::span("whole", 5)));
  file.commit();
  EXPECT_EQ(contents(path), "whole, whole");
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"a"});
}

TEST(ContinuedFile, OneWritesAtATime) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  std::optional<ContinuedFile> first(std::in_place, path);
  ContinuedFile::remove_abandoned(path, 0);  // it is not
  EXPECT_TRUE(file_exists(path + ".part"));
  std::atomic<bool> waits = false;
  std::thread other([&] {
    const ContinuedFile second(path, [&](const FileWait& wait) {
      EXPECT_EQ(wait.process.value_or(::getpid()), ::getpid());  // unknown where /proc does not show it
      waits = true;
    });
    EXPECT_FALSE(first.has_value());
    EXPECT_EQ(second.size(), 0) << "a new file: the first one has its name";
  });
  while (!waits) std::this_thread::yield();
  first->write(std::as_bytes(std::span("1", 1)));
  first->commit();
  first.reset();
  other.join();
  EXPECT_EQ(contents(path), "1");
  ContinuedFile::remove_abandoned(path, 3600);  // too young
  EXPECT_TRUE(file_exists(path + ".part"));
  ContinuedFile::remove_abandoned(path, 0);
  EXPECT_FALSE(file_exists(path + ".part"));
}

// The limit is over when a look finds the file as the one before did.
TEST(ContinuedFile, WhoHasItAndDoesNotWriteIsNotWaitedFor) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  ContinuedFile first(path);
  int looks = 0;
  const auto grows = [&](const FileWait&) {
    if (++looks < 3) first.write(std::as_bytes(std::span("1", 1)));
  };
  expect_user_error(ExitCode::kIo, "has it and has written nothing for 0 s",
                    [&] { ContinuedFile(path, grows, 1e-9); });
  EXPECT_EQ(looks, 3) << "it was waited for as long as it grew";
}

TEST(ContinuedFile, AWaitCanBeEnded) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  const ContinuedFile first(path);
  int looks = 0;
  const auto ends = [&](const FileWait&) {
    if (++looks == 2) throw_user(ExitCode::kInterrupted, "enough");
  };
  expect_user_error(ExitCode::kInterrupted, "enough", [&] { ContinuedFile(path, ends); });
}

TEST(ContinuedFile, AFailedSyncGivesNoName) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  ContinuedFile file(path);
  file.write(std::as_bytes(std::span("1", 1)));
  const ScopedFileFault fault({.operation = FileOperation::kSync, .fault = {.error_number = EIO}});
  expect_user_error(ExitCode::kIo, "cannot fsync", [&] { file.commit(); });
  EXPECT_FALSE(file_exists(path));
}

TEST(Paths, SplitAndJoin) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(file_name("/x/y.txt"), "y.txt");
  EXPECT_EQ(file_name("x/y/"), "y");
  EXPECT_EQ(file_name("y"), "y");
  EXPECT_EQ(file_name("/"), "/");
  EXPECT_EQ(parent_directory("x/y"), "x");
  EXPECT_EQ(parent_directory("/y"), "/");
  EXPECT_EQ(parent_directory("y"), ".");
  EXPECT_EQ(parent_directory("x/y/"), "x");
}

TEST(ReadSmallFile, RefusesLargeOnes) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a", "12345");
  EXPECT_EQ(read_small_file(path, Bytes(5)), "12345");
  expect_user_error(ExitCode::kBadFile, "a: is 5 B; expected at most 4 B",
                    [&] { read_small_file(path, Bytes(4)); });
}

}  // namespace
}  // namespace snug
