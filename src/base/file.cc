#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>

namespace snug {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
// Between two looks at a lock that another process has.
constexpr std::chrono::milliseconds kLockPause(100);
constexpr size_t kCopyBufferBytes = size_t{1} << 20;
// One call of read(2) or write(2) moves at most this; Linux itself stops at 2 GiB - 4096.
constexpr size_t kLargestTransferBytes = size_t{1} << 30;

std::mutex hook_mutex;
FileHook hook;
std::atomic<bool> has_hook = false;

FileFault ask_hook(FileOperation operation, const std::string& path) {
  if (!has_hook.load(std::memory_order_acquire)) return {};
  FileHook current;
  {
    const std::lock_guard lock(hook_mutex);
    current = hook;
  }
  return current ? current(operation, path) : FileFault{};
}

// True when the hook lets the call fail; errno is then set.
bool fails(FileOperation operation, const std::string& path) {
  const FileFault fault = ask_hook(operation, path);
  if (fault.error_number == 0) return false;
  errno = fault.error_number;
  return true;
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] void throw_io(const std::string& path, std::string_view action, int error_number) {
  throw_user(ExitCode::kIo, "{}: cannot {}: {}", path, action, errno_text(error_number));
}

// A path that names nothing usable is the user's file; anything else is the system's refusal.
ExitCode open_error_code(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
      return ExitCode::kBadFile;
    default:
      return ExitCode::kIo;
  }
}

int open_with_hook(const std::string& path, int flags, mode_t mode) {
  if (fails(FileOperation::kOpen, path)) return -1;
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// close(2) is not repeated after EINTR: on Linux the descriptor is gone by then.
int close_with_hook(int descriptor, const std::string& path) {
  const FileFault fault = ask_hook(FileOperation::kClose, path);
  int result = ::close(descriptor);
  if (result != 0 && errno == EINTR) result = 0;
  if (fault.error_number != 0) {
    errno = fault.error_number;
    return -1;
  }
  return result;
}

int sync_with_hook(int descriptor, const std::string& path) {
  if (fails(FileOperation::kSync, path)) return -1;
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

void rename_with_hook(const std::string& from, const std::string& to) {
  if (fails(FileOperation::kRename, to) || ::rename(from.c_str(), to.c_str()) != 0)
    throw_io(to, "rename the finished temporary to it", errno);
}

// The process's umask. It can only be read by setting it; the value set meanwhile is the strictest.
mode_t current_umask() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const mode_t mask = ::umask(0077);
  ::umask(mask);
  return mask;
}

// The temporary name of `target`: NAME.tmp-PID-RANDOM, in the same directory.
std::string temporary_name(const std::string& target) {
  static std::atomic<uint32_t> counter = std::random_device{}();
  return fmt::format("{}{}{}-{:08x}", target, kTemporaryMark, ::getpid(), counter.fetch_add(1));
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool make_one_directory(const std::string& path, mode_t mode) {
  if (!fails(FileOperation::kMakeDirectory, path) && ::mkdir(path.c_str(), mode) == 0) return true;
  if (errno == EEXIST && directory_exists(path)) return false;
  throw_io(path, "create the directory", errno);
}

void remove_tree(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw_io(path, "remove it", errno);
  }
  if (S_ISDIR(status.st_mode)) {
    for (const std::string& name : list_directory(path)) remove_tree(join_path(path, name));
    if (fails(FileOperation::kRemove, path) || ::rmdir(path.c_str()) != 0)
      throw_io(path, "remove the directory", errno);
  } else if (fails(FileOperation::kRemove, path) || ::unlink(path.c_str()) != 0) {
    throw_io(path, "remove it", errno);
  }
}

// Fills `destination` from `offset` of a file that had `size` bytes.
void read_at(int descriptor, const std::string& path, int64_t size, int64_t offset,
             std::span<std::byte> destination) {
  const auto wanted = static_cast<int64_t>(destination.size());
  if (offset < 0 || offset > size || wanted > size - offset)
    throw_user(ExitCode::kBadFile, "{}: {} bytes wanted at offset {}, but the file has {} bytes", path,
               wanted, offset, size);
  size_t done = 0;
  while (done < destination.size()) {
    size_t count = std::min(destination.size() - done, kLargestTransferBytes);
    const FileFault fault = ask_hook(FileOperation::kRead, path);
    if (fault.error_number != 0 && fault.error_number != EINTR) throw_io(path, "read", fault.error_number);
    if (fault.error_number == EINTR) continue;
    if (fault.at_most_bytes) count = std::min(count, *fault.at_most_bytes);
    const ssize_t got = count == 0 ? 0
                                   : ::pread(descriptor, destination.data() + done, count,
                                             offset + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_io(path, "read", errno);
    }
    if (got == 0)
      throw_user(ExitCode::kBadFile,
                 "{}: ends at byte {} while it is read; it had {} bytes when it was opened", path,
                 offset + static_cast<int64_t>(done), size);
    done += static_cast<size_t>(got);
  }
}

// Writes all bytes: at `offset`, or where the file stands without one.
void write_all(int descriptor, const std::string& path, std::optional<int64_t> offset,
               std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    size_t count = std::min(bytes.size() - done, kLargestTransferBytes);
    const FileFault fault = ask_hook(FileOperation::kWrite, path);
    if (fault.error_number != 0 && fault.error_number != EINTR) throw_io(path, "write", fault.error_number);
    if (fault.error_number == EINTR) continue;
    if (fault.at_most_bytes) count = std::min(count, std::max<size_t>(1, *fault.at_most_bytes));
    const ssize_t put =
        offset ? ::pwrite(descriptor, bytes.data() + done, count, *offset + static_cast<int64_t>(done))
               : ::write(descriptor, bytes.data() + done, count);
    if (put < 0) {
      if (errno == EINTR) continue;
      throw_io(path, "write", errno);
    }
    done += static_cast<size_t>(put);
  }
}

// Locks an open file, or tells that another process has it. A file system without locks locks nothing.
bool lock_file(int descriptor) {
  int result = 0;
  do {
    result = ::flock(descriptor, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno != EWOULDBLOCK;
}

// The process that has the lock of an open file, as far as the kernel's list shows it to this one:
// "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF".
std::optional<int64_t> lock_holder(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  std::FILE* const locks = std::fopen("/proc/locks", "re");
  if (locks == nullptr) return std::nullopt;
  std::optional<int64_t> holder;
  char line[256];
  while (!holder && std::fgets(line, sizeof line, locks) != nullptr) {
    long process = 0;
    unsigned major_number = 0, minor_number = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%lu", &process, &major_number, &minor_number,
                    &inode) == 4 &&
        inode == status.st_ino && major_number == major(status.st_dev) &&
        minor_number == minor(status.st_dev) && process > 0)
      holder = process;
  }
  std::fclose(locks);
  return holder;
}

// Whether `path` names the open file still.
bool is_same_file(int descriptor, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

std::string_view file_operation_name(FileOperation operation) {
  switch (operation) {
    case FileOperation::kOpen:
      return "open";
    case FileOperation::kRead:
      return "read";
    case FileOperation::kWrite:
      return "write";
    case FileOperation::kAllocate:
      return "allocate";
    case FileOperation::kSync:
      return "sync";
    case FileOperation::kClose:
      return "close";
    case FileOperation::kRename:
      return "rename";
    case FileOperation::kMakeDirectory:
      return "make directory";
    case FileOperation::kRemove:
      return "remove";
  }
  return "?";
}

FileHook set_file_hook(FileHook new_hook) {
  const std::lock_guard lock(hook_mutex);
  std::swap(hook, new_hook);
  has_hook.store(static_cast<bool>(hook), std::memory_order_release);
  return new_hook;
}

struct ScopedFileFault::State {
  Plan plan;
  std::atomic<int64_t> calls = 0;
  std::atomic<bool> fired = false;
};

ScopedFileFault::ScopedFileFault(Plan plan) : state_(std::make_shared<State>()) {
  state_->plan = plan;
  previous_ = set_file_hook([state = state_](FileOperation operation, const std::string&) -> FileFault {
    if (state->plan.operation && *state->plan.operation != operation) return {};
    const int64_t call = ++state->calls;
    if (call < state->plan.nth || (call > state->plan.nth && !state->plan.persistent)) return {};
    state->fired = true;
    return state->plan.fault;
  });
}

ScopedFileFault::~ScopedFileFault() { set_file_hook(std::move(previous_)); }
int64_t ScopedFileFault::calls() const { return state_->calls; }
bool ScopedFileFault::fired() const { return state_->fired; }

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer before it is refused below.
  descriptor_ = open_with_hook(path_, O_RDONLY | O_NONBLOCK, 0);
  if (descriptor_ < 0) {
    const int error_number = errno;
    throw_user(open_error_code(error_number), "{}: cannot open: {}", path_, errno_text(error_number));
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error_number = errno;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    descriptor_ = -1;
    if (!known) throw_io(path_, "read its size", error_number);
    throw_user(ExitCode::kBadFile, "{}: is {}; expected a regular file", path_,
               S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  size_ = status.st_size;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close_with_hook(descriptor_, path_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(int64_t offset, std::span<std::byte> destination) const {
  read_at(descriptor_, path_, size_, offset, destination);
}

OutputFile::OutputFile(std::string path, Mode mode) : path_(std::move(path)) {
  int flags = O_WRONLY | O_CREAT;
  if (mode == Mode::kReplace) flags |= O_TRUNC;
  if (mode == Mode::kAppend) flags |= O_APPEND;
  if (mode == Mode::kExclusive) flags |= O_EXCL | O_NOFOLLOW;
  descriptor_ = open_with_hook(path_, flags, mode == Mode::kExclusive ? 0600 : 0666);
  if (descriptor_ < 0) throw_io(path_, "open it for writing", errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close_with_hook(descriptor_, path_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  require(is_open(), "write to {} after it was closed", path_);
  write_all(descriptor_, path_, std::nullopt, bytes);
  position_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::preallocate(Bytes size) {
  if (size.value <= 0) return;
  if (fails(FileOperation::kAllocate, path_) ||
      ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, size.value) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return;
    throw_io(path_, fmt::format("reserve {} of disk", format_bytes(size)), errno);
  }
}

void OutputFile::sync() {
  require(is_open(), "sync of {} after it was closed", path_);
  if (sync_with_hook(descriptor_, path_) != 0) throw_io(path_, "fsync", errno);
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  if (close_with_hook(std::exchange(descriptor_, -1), path_) != 0) throw_io(path_, "close", errno);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), file_(temporary_name(path_), OutputFile::Mode::kExclusive) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(file_.path().c_str());
}

void AtomicFile::prepare() {
  if (prepared_) return;
  if (::fchmod(file_.descriptor_, 0666 & ~current_umask()) != 0)
    throw_io(file_.path(), "set its mode", errno);
  file_.sync();
  file_.close();
  prepared_ = true;
}

void AtomicFile::commit() {
  require(!committed_, "{} is committed twice", path_);
  prepare();
  rename_with_hook(file_.path(), path_);
  committed_ = true;
  fsync_directory(parent_directory(path_));
}

AtomicDirectory::AtomicDirectory(std::string target)
    : target_(without_trailing_slashes(std::move(target))), temporary_(temporary_name(target_)) {
  struct stat status {};
  if (::lstat(target_.c_str(), &status) == 0) throw_io(target_, "create the directory", EEXIST);
  if (!make_one_directory(temporary_, 0700)) throw_io(temporary_, "create the directory", EEXIST);
}

AtomicDirectory::~AtomicDirectory() {
  if (committed_) return;
  try {
    remove_tree(temporary_);
  } catch (const UserError&) {
    // A leftover under a temporary name is passed over by every reader; the failure that led here is already
    // on its way.
  }
}

void AtomicDirectory::commit() {
  require(!committed_, "{} is committed twice", target_);
  if (::chmod(temporary_.c_str(), 0777 & ~current_umask()) != 0) throw_io(temporary_, "set its mode", errno);
  fsync_directory(temporary_);
  struct stat status {};
  if (::lstat(target_.c_str(), &status) == 0)
    throw_io(target_, "rename the finished temporary to it", EEXIST);
  rename_with_hook(temporary_, target_);
  committed_ = true;
  fsync_directory(parent_directory(target_));
}

ScratchFile::ScratchFile(const std::string& directory) : path_(join_path(directory, "scratch")) {
  descriptor_ = open_with_hook(directory, O_TMPFILE | O_RDWR, 0600);
  if (descriptor_ < 0 &&
      (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {  // a file system without nameless files
    path_ = temporary_name(path_);
    descriptor_ = open_with_hook(path_, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (descriptor_ >= 0) ::unlink(path_.c_str());
  }
  if (descriptor_ < 0) throw_io(directory, "create a file in it", errno);
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

void ScratchFile::write(std::span<const std::byte> bytes) {
  write_all(descriptor_, path_, size_, bytes);
  size_ += static_cast<int64_t>(bytes.size());
}

void ScratchFile::read(int64_t offset, std::span<std::byte> destination) const {
  read_at(descriptor_, path_, size_, offset, destination);
}

ContinuedFile::ContinuedFile(std::string path, const std::function<void(const FileWait&)>& waits,
                             double limit_seconds)
    : path_(std::move(path)), part_(path_ + ".part") {
  while (true) {
    descriptor_ = open_with_hook(part_, O_RDWR | O_CREAT, 0666);
    if (descriptor_ < 0) throw_io(part_, "open it for writing", errno);
    try {
      wait_for_lock(waits, limit_seconds);
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
    // While this process waited, the other one may have finished or removed the file.
    if (is_same_file(descriptor_, part_)) break;
    ::close(std::exchange(descriptor_, -1));
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int error_number = errno;
    ::close(descriptor_);
    throw_io(part_, "read its size", error_number);
  }
  size_ = status.st_size;
}

void ContinuedFile::wait_for_lock(const std::function<void(const FileWait&)>& waits,
                                  double limit_seconds) const {
  const auto begin = std::chrono::steady_clock::now();
  FileWait wait;
  off_t seen_size = -1;
  double grown_at = 0;
  while (!lock_file(descriptor_)) {
    wait.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    wait.process = lock_holder(descriptor_);
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && status.st_size != seen_size) {
      seen_size = status.st_size;
      grown_at = wait.seconds;
    }
    if (wait.seconds - grown_at >= limit_seconds)
      throw_user(ExitCode::kIo,
                 "{}: {} has it and has written nothing for {:.0f} s; expected it to go on or to end", part_,
                 wait.process ? fmt::format("process {}", *wait.process) : "another process", limit_seconds);
    if (waits) waits(wait);
    std::this_thread::sleep_for(kLockPause);
  }
}

ContinuedFile::~ContinuedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void ContinuedFile::read(int64_t offset, std::span<std::byte> destination) const {
  read_at(descriptor_, part_, size_, offset, destination);
}

void ContinuedFile::truncate(int64_t size) {
  if (::ftruncate(descriptor_, size) != 0) throw_io(part_, "truncate", errno);
  size_ = size;
}

void ContinuedFile::write(std::span<const std::byte> bytes) {
  write_all(descriptor_, part_, size_, bytes);
  size_ += static_cast<int64_t>(bytes.size());
}

void ContinuedFile::commit() {
  require(descriptor_ >= 0, "{} is committed twice", path_);
  if (sync_with_hook(descriptor_, part_) != 0) throw_io(part_, "fsync", errno);
  rename_with_hook(part_, path_);
  if (close_with_hook(std::exchange(descriptor_, -1), path_) != 0) throw_io(path_, "close", errno);
  fsync_directory(parent_directory(path_));
}

void ContinuedFile::remove_abandoned(const std::string& path, int64_t seconds) {
  const std::string part = path + ".part";
  const int descriptor = open_with_hook(part, O_RDWR, 0);
  if (descriptor < 0) return;
  struct stat status {};
  if (lock_file(descriptor) && ::fstat(descriptor, &status) == 0 &&
      ::time(nullptr) - status.st_mtime >= seconds)
    ::unlink(part.c_str());
  ::close(descriptor);
}

bool is_temporary_name(std::string_view name) { return name.find(kTemporaryMark) != std::string_view::npos; }

void make_directories(const std::string& path) {
  const std::string clean = without_trailing_slashes(path);
  if (clean.empty() || directory_exists(clean)) return;
  const std::string parent = parent_directory(clean);
  if (parent != clean) make_directories(parent);
  if (make_one_directory(clean, 0777)) fsync_directory(parent);
}

void fsync_directory(const std::string& path) {
  const int descriptor = open_with_hook(path, O_RDONLY | O_DIRECTORY, 0);
  if (descriptor < 0) throw_io(path, "open the directory", errno);
  // Some file systems have no fsync for directories; they answer EINVAL, and there is nothing more to ask
  // for.
  const bool failed = sync_with_hook(descriptor, path) != 0 && errno != EINVAL;
  const int error_number = errno;
  ::close(descriptor);
  if (failed) throw_io(path, "fsync the directory", error_number);
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool directory_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> list_directory(const std::string& path) {
  DIR* directory = fails(FileOperation::kOpen, path) ? nullptr : ::opendir(path.c_str());
  if (directory == nullptr) {
    const int error_number = errno;
    throw_user(open_error_code(error_number), "{}: cannot open the directory: {}", path,
               errno_text(error_number));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error_number = errno;
  ::closedir(directory);
  if (error_number != 0) throw_io(path, "list the directory", error_number);
  std::sort(names.begin(), names.end());
  return names;
}

namespace {
constexpr std::string_view kGitLfsPointer = "version https://git-lfs.github.com/spec/";

[[noreturn]] void throw_git_lfs_pointer(const std::string& path) {
  throw_user(ExitCode::kBadFile,
             "{}: is a pointer of git-lfs and not the file itself; expected the file: fetch it with "
             "`git lfs pull` in its repository, or download it",
             path);
}
}  // namespace

std::string read_small_file(const std::string& path, Bytes limit) {
  const InputFile file(path);
  if (file.size() > limit.value)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected at most {}", path, format_bytes(Bytes(file.size())),
               format_bytes(limit));
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (text.starts_with(kGitLfsPointer)) throw_git_lfs_pointer(path);
  return text;
}

void refuse_git_lfs_pointer(const std::string& path) {
  const InputFile file(path);
  std::array<char, kGitLfsPointer.size()> begin{};
  if (file.size() < static_cast<int64_t>(begin.size())) return;
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (std::string_view(begin.data(), begin.size()) == kGitLfsPointer) throw_git_lfs_pointer(path);
}

void write_file(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void copy_file(const std::string& from, const std::string& to) {
  const InputFile source(from);
  AtomicFile destination(to);
  destination.preallocate(Bytes(source.size()));
  std::vector<std::byte> buffer(std::min(kCopyBufferBytes, static_cast<size_t>(source.size())));
  for (int64_t offset = 0; offset < source.size();) {
    const auto part =
        std::span(buffer).first(std::min(buffer.size(), static_cast<size_t>(source.size() - offset)));
    source.read(offset, part);
    destination.write(part);
    offset += static_cast<int64_t>(part.size());
  }
  destination.commit();
}

void rename_path(const std::string& from, const std::string& to) {
  if (fails(FileOperation::kRename, to) || ::rename(from.c_str(), to.c_str()) != 0)
    throw_io(to, fmt::format("rename {} to it", from), errno);
}

void remove_all(const std::string& path) { remove_tree(without_trailing_slashes(path)); }

Bytes free_space(const std::string& path) {
  std::string place = without_trailing_slashes(path);
  struct statvfs status {};
  while (::statvfs(place.c_str(), &status) != 0) {
    if (errno == EINTR) continue;
    const std::string parent = parent_directory(place);
    if (errno != ENOENT || parent == place) throw_io(path, "read the free space", errno);
    place = parent;
  }
  return Bytes(checked_mul(static_cast<int64_t>(status.f_bavail), static_cast<int64_t>(status.f_frsize)));
}

void require_free_space(const std::string& path, Bytes needed, std::string_view what) {
  const Bytes available = free_space(path);
  if (available < needed)
    throw_user(ExitCode::kIo, "{}: {} needs {} of disk, but {} are free", path, what, format_bytes(needed),
               format_bytes(available));
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.back() == '/' ? "" : "/", name);
}

std::string file_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos || path.size() == 1 ? path : path.substr(slash + 1));
}

std::string parent_directory(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

}  // namespace snug
