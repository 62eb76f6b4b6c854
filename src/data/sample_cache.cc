#include "data/sample_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".samples", kPartEnding = ".samples.part";
constexpr auto kUnusedFor = std::chrono::hours(24 * 30);
constexpr int64_t kAbandonedSeconds = 24 * 60 * 60;
constexpr double kFirstReminderSeconds = 10;

// Tells of a wait at its beginning, after ten seconds, and whenever it has lasted twice as long as when it was told last.
class WaitNotes {
 public:
  WaitNotes(std::string name, const std::function<void(std::string_view)>& note)
      : name_(std::move(name)), note_(note) {}
  void operator()(const FileWait& wait) {
    if (wait.seconds < next_) return;
    next_ = std::max(kFirstReminderSeconds, 2 * wait.seconds);
    note_(fmt::format("waiting for another run{} to finish {}: {:.0f} s",
                      wait.process ? fmt::format(" (process {})", *wait.process) : "", name_, wait.seconds));
  }

 private:
  std::string name_;
  const std::function<void(std::string_view)>& note_;
  double next_ = 0;
};

}  // namespace

SampleCache::SampleCache(std::string directory, std::function<void(std::string_view)> note)
    : directory_(std::move(directory)), note_(std::move(note)) {
  make_directories(directory_);
  clean();
}

void SampleCache::clean() const {
  for (const std::string& name : list_directory(directory_)) {
    const std::string path = join_path(directory_, name);
    std::error_code ignored;  // a file that another process has just removed
    if (name.ends_with(kPartEnding))
      ContinuedFile::remove_abandoned(path.substr(0, path.size() - (kPartEnding.size() - kEnding.size())),
                                      kAbandonedSeconds);
    else if (name.ends_with(kEnding) &&
             fs::file_time_type::clock::now() - fs::last_write_time(path, ignored) > kUnusedFor)
      fs::remove(path, ignored);
  }
}

SampleCache::Found SampleCache::find(const Fingerprint& key, int64_t vocabulary,
                                     const std::function<void(SampleWriter&)>& make) const {
  const std::string path = join_path(directory_, to_string(key) + std::string(kEnding));
  std::string why;
  const auto open = [&]() -> std::shared_ptr<const SampleFile> {
    std::shared_ptr<const SampleFile> file = SampleFile::open(path, key, vocabulary, why);
    std::error_code ignored;  // somebody else's file in a shared directory
    if (file) fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
    return file;
  };
  if (auto file = open()) return {std::move(file), true};
  if (!why.empty()) {
    note_(fmt::format("prepared data is made anew: {}", why));
    remove_all(path);
  }
  try {
    SampleWriter writer(path, key, vocabulary, WaitNotes(path, note_));
    if (!file_exists(path)) {
      if (writer.kept().ids > 0)
        note_(fmt::format("going on where a run that prepared the same data was stopped: {} tokens are there",
                          writer.kept().ids));
      make(writer);
      writer.finish();
    }
  } catch (const UserError& error) {
    // What could not be read speaks of another file.
    if (error.code() != ExitCode::kIo || !std::string_view(error.what()).starts_with(path)) throw;
    throw_user(ExitCode::kIo, "{}; --data_cache DIR names another place for prepared data", error.what());
  }
  auto file = open();
  // Of the part that was begun while another process finished the file.
  ContinuedFile::remove_abandoned(path, 0);
  if (!file) throw_user(ExitCode::kIo, "prepared data cannot be read back: {}", why);
  return {std::move(file), false};
}

}  // namespace snug
