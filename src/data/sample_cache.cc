#include "data/sample_cache.h"

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
  {
    SampleWriter writer(path, key, vocabulary,
                        [&] { note_("another run is preparing the same data; waiting for it"); });
    if (!file_exists(path)) {
      make(writer);
      writer.finish();
    }
  }
  auto file = open();
  // Of the part that was begun while another process finished the file.
  ContinuedFile::remove_abandoned(path, 0);
  if (!file) throw_user(ExitCode::kIo, "prepared data cannot be read back: {}", why);
  return {std::move(file), false};
}

}  // namespace snug
