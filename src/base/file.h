// base/file.h — the one file layer: every byte Snug reads from or writes to a file passes here
//
// Contract:  a missing, unreadable or truncated input is UserError(kBadFile); a refusal by the system (EIO,
// ENOSPC, EACCES
//            while writing, …) is UserError(kIo). Both name the path and the system's own words.
//            Nothing is memory-mapped: a file that shrinks while it is read is an error and not a SIGBUS, and
//            the pages that a budget has to count are the caller's buffers alone.
// Durable:   what AtomicFile::commit or AtomicDirectory::commit returned from survives a power loss; before
// it, the old
//            state is untouched. A failed fsync is final: it is never repeated and believed.
// Faults:    tests put a hook in front of every system call (ScopedFileFault) and let the N-th one fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/worker.h"

namespace snug {

// The system calls a fault can be put on.
enum class FileOperation : uint8_t {
  kOpen,
  kRead,
  kWrite,
  kAllocate,  // reserving disk space ahead of the writes
  kSync,      // fsync of a file or a directory
  kClose,
  kRename,
  kMakeDirectory,
  kRemove,
};

std::string_view file_operation_name(FileOperation operation);

// What a hook answers: nothing (the call goes on), an errno to fail with, or the most bytes this one read or
// write may move.
struct FileFault {
  int error_number = 0;
  std::optional<size_t> at_most_bytes = std::nullopt;
};

using FileHook = std::function<FileFault(FileOperation operation, const std::string& path)>;

// Installs a process-wide hook (empty: none). For tests; the previous one is returned.
FileHook set_file_hook(FileHook hook);

// Fails one call, or every call from it on, while it lives. Counting starts at 1 over the calls of
// `operation`, or over all.
//
//   ScopedFileFault fault({.operation = FileOperation::kWrite, .nth = 3, .fault = {.error_number = ENOSPC}});
class ScopedFileFault {
 public:
  struct Plan {
    std::optional<FileOperation> operation = std::nullopt;
    int64_t nth = 1;
    FileFault fault = {};
    bool persistent = false;
  };

  explicit ScopedFileFault(Plan plan);
  ~ScopedFileFault();
  ScopedFileFault(const ScopedFileFault&) = delete;
  ScopedFileFault& operator=(const ScopedFileFault&) = delete;

  int64_t calls() const;  // calls counted so far
  bool fired() const;     // whether the fault was given at least once

 private:
  struct State;
  std::shared_ptr<State> state_;
  FileHook previous_;
};

// A regular file open for reading at any place. Moves; closes at the end.
class InputFile {
 public:
  // Throws UserError(kBadFile) for a missing, unreadable or not regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  // Size in bytes when it was opened.
  int64_t size() const { return size_; }

  // Fills `destination` with the bytes [offset, offset + destination.size()). The range must lie in [0,
  // size()), else UserError(kBadFile); so is a file that has become shorter since. Safe from several threads
  // at once.
  void read(int64_t offset, std::span<std::byte> destination) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A file being written from front to back without a promise about crashes: logs. For results use AtomicFile.
class OutputFile {
 public:
  enum class Mode : uint8_t { kReplace, kAppend, kExclusive };

  OutputFile(std::string path, Mode mode);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  // Bytes written through this object.
  int64_t position() const { return position_; }
  bool is_open() const { return descriptor_ >= 0; }

  // Writes all bytes; buffers nothing.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Reserves `size` bytes of disk for the file, so that a full disk or quota shows before the first write. A
  // file system that cannot do it is no error.
  void preallocate(Bytes size);
  void sync();
  // Closes and reports what the system says then. The destructor closes silently.
  void close();

 private:
  friend class AtomicFile;
  std::string path_;
  int descriptor_ = -1;
  int64_t position_ = 0;
};

// A file that appears whole or not at all: written under a temporary name in the same directory (O_EXCL, mode
// 0600, then the mode that the umask allows), fsynced, renamed, and the directory fsynced. Destroyed without
// commit() it removes the temporary file and leaves an older file of the name alone.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t position() const { return file_.position(); }
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  void write(std::string_view text) { file_.write(text); }
  void preallocate(Bytes size) { file_.preallocate(size); }

  // Makes the bytes durable under the temporary name and closes it. Files that belong together are all
  // prepared before the first is committed.
  void prepare();
  // prepare() unless that was done, then gives the file its name.
  void commit();

 private:
  std::string path_;
  OutputFile file_;
  bool prepared_ = false;
  bool committed_ = false;
};

// A directory that appears whole or not at all: its files are written under path() (a temporary name beside
// the target, mode 0700) and commit() gives it its name. An existing target is refused: old directories are
// removed only after the new one is durable, and by the one who knows which. Destroyed without commit() it
// removes what was written.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::string target);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::string& path() const { return temporary_; }
  const std::string& target() const { return target_; }
  // The caller has made each file durable (AtomicFile does).
  void commit();

 private:
  std::string target_;
  std::string temporary_;
  bool committed_ = false;
};

// A file without a name: written from front to back, read anywhere, gone with the object and with the process.
class ScratchFile {
 public:
  // In `directory`, which exists.
  explicit ScratchFile(const std::string& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int64_t size() const { return size_; }
  void write(std::span<const std::byte> bytes);
  // As InputFile::read.
  void read(int64_t offset, std::span<std::byte> destination) const;

 private:
  std::string path_;  // for messages
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A wait for a file that another process has.
struct FileWait {
  // That has it; unknown where it runs on another machine or in another container.
  std::optional<int64_t> process;
  double seconds = 0;  // so far
};

// A file that many runs of the program may be needed for: written under the name PATH.part by one process at a time, which goes on where
// an earlier one was stopped, and renamed to PATH when it is whole. What a part holds is for the caller to check.
class ContinuedFile {
 public:
  // Opens or creates the part. Waits while another process has it, which may end with PATH being there; `waits` is called before and
  // then several times a second, and may throw to end the wait. Throws UserError(kIo) where the part has not grown for `limit_seconds`.
  explicit ContinuedFile(std::string path, const std::function<void(const FileWait&)>& waits = {},
                         double limit_seconds = kAnswerSeconds);
  ~ContinuedFile();  // leaves the part where it is
  ContinuedFile(const ContinuedFile&) = delete;
  ContinuedFile& operator=(const ContinuedFile&) = delete;

  const std::string& part() const { return part_; }
  int64_t size() const { return size_; }
  // As InputFile::read.
  void read(int64_t offset, std::span<std::byte> destination) const;
  // Forgets the bytes from `size` on; what is written follows there.
  void truncate(int64_t size);
  void write(std::span<const std::byte> bytes);
  // Makes the bytes durable and gives the file its name.
  void commit();

  // Removes the part of `path`, unless a process has it or it was written to within `seconds`.
  static void remove_abandoned(const std::string& path, int64_t seconds);

 private:
  void wait_for_lock(const std::function<void(const FileWait&)>& waits, double limit_seconds) const;

  std::string path_, part_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// True for the names under which AtomicFile and AtomicDirectory write: readers of a directory pass over them.
bool is_temporary_name(std::string_view name);

// Creates `path` and its missing parents (mode as the umask allows), each made durable in its parent. An
// existing directory is no error.
void make_directories(const std::string& path);

// Makes the entries of a directory (new names, renames) durable.
void fsync_directory(const std::string& path);

bool file_exists(const std::string& path);       // a regular file, after links
bool directory_exists(const std::string& path);  // a directory, after links

// Names in a directory, sorted, without "." and "..". Throws UserError(kBadFile) when it cannot be read.
std::vector<std::string> list_directory(const std::string& path);

// The whole of a small file. Throws UserError(kBadFile) when it is larger than `limit`.
std::string read_small_file(const std::string& path, Bytes limit);

// Throws UserError(kBadFile) where the file is what git leaves in the place of a large one that git-lfs did not fetch; read_small_file
// refuses these, too.
void refuse_git_lfs_pointer(const std::string& path);

// AtomicFile with these bytes.
void write_file(const std::string& path, std::string_view bytes);

// A byte-for-byte copy through a bounded buffer, published like an AtomicFile.
void copy_file(const std::string& from, const std::string& to);

// Gives a file or directory another name on the same file system. The caller makes both directories durable.
void rename_path(const std::string& from, const std::string& to);

// Removes one file, or a directory with everything in it. Nothing there is no error.
void remove_all(const std::string& path);

// Bytes an unprivileged writer may still put on the file system that holds `path` (or its nearest existing
// parent).
Bytes free_space(const std::string& path);

// Throws UserError(kIo) with both numbers when less than `needed` is free at `path`. `what` names it: "the
// checkpoint".
void require_free_space(const std::string& path, Bytes needed, std::string_view what);

// directory + "/" + name, without doubling the slash.
std::string join_path(std::string_view directory, std::string_view name);
// The last component, and what stands before it ("." when nothing does).
std::string file_name(std::string_view path);
std::string parent_directory(std::string_view path);

}  // namespace snug
