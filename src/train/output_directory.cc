#include "train/output_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/errors.h"
#include "formats/model_directory.h"
#include "train/loss_scale.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.json";
constexpr std::string_view kEarlierRun = "earlier-run", kFailedRun = "failed-run";

// STEM-17
bool is_numbered(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || name.size() < stem.size() + 2 || name[stem.size()] != '-') return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(stem.size()) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_checkpoint(std::string_view name) { return is_numbered(name, "checkpoint"); }

bool is_record(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"plan.json", "config.yaml", "metrics.jsonl",
                                                      kFinishedRunFile};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_of_a_model(std::string_view name) {
  return is_model_file(name) || is_weights_file(name) || name == kLossScaleFile;
}

// The first component of `path` below `directory`; empty when it is not below it.
std::string first_name_below(const fs::path& directory, const fs::path& path) {
  std::error_code ignored;
  const fs::path below =
      fs::weakly_canonical(path, ignored).lexically_relative(fs::weakly_canonical(directory, ignored));
  if (below.empty() || *below.begin() == "..") return {};
  return below.begin()->string();
}

}  // namespace

OutputDirectory::OutputDirectory(const RunOptions& options)
    : path_(options.output_dir), overwrites_(options.overwrite_output_dir) {
  if (fs::exists(path_) && !fs::is_directory(path_))
    throw_user(ExitCode::kIo, "output_dir {} is a file; expected a directory", path_);
  make_directories(path_);
  if (overwrites_) {
    if (const std::string name = first_name_below(path_, options.model);
        is_checkpoint(name) || is_numbered(name, kEarlierRun))
      throw_user(ExitCode::kUsage,
                 "model is {}, which --overwrite_output_dir replaces in {}; expected another output_dir",
                 options.model, path_);
  } else {
    const std::vector<std::string> names = list_directory(path_);
    const auto refuse_if = [&](const auto& is_kind, std::string_view what) {
      if (const auto found = std::find_if(names.begin(), names.end(), is_kind); found != names.end())
        throw_user(ExitCode::kUsage,
                   "output_dir {} holds {} ({}); choose another or add --overwrite_output_dir", path_, what,
                   *found);
    };
    refuse_if([](std::string_view name) { return name == kFinishedRunFile; }, "a finished run");
    refuse_if(is_checkpoint, "checkpoints of an earlier run");
    refuse_if([](std::string_view name) { return is_numbered(name, kEarlierRun); }, "an earlier run");
    refuse_if(is_weights_file, "a model");
  }
  // Found out now and not after hours: may this user write here?
  const std::string probe = join_path(path_, ".snug-write-probe");
  write_file(probe, "");
  remove_all(probe);
}

template <typename Kind>
std::vector<std::string> OutputDirectory::earlier(const Kind& is_kind) const {
  std::vector<std::string> names = list_directory(path_);
  std::erase_if(names, [&](const std::string& name) { return own_.contains(name) || !is_kind(name); });
  return names;
}

std::string OutputDirectory::new_directory(std::string_view stem) const {
  for (int64_t number = 1;; ++number) {
    std::string path = join_path(path_, fmt::format("{}-{}", stem, number));
    if (fs::exists(fs::symlink_status(path))) continue;
    make_directories(path);
    return path;
  }
}

void OutputDirectory::move_aside(const std::string& name) {
  if (aside_.empty()) aside_ = new_directory(kEarlierRun);
  rename_path(join_path(path_, name), join_path(aside_, name));
  moved_.push_back(name);
}

void OutputDirectory::begin() {
  if (!overwrites_) return;  // there is neither a finished run nor a checkpoint
  for (const std::string& name : earlier([](std::string_view n) { return is_record(n) || is_checkpoint(n); }))
    move_aside(name);
}

std::string OutputDirectory::path_of(std::string_view name) {
  own_.emplace(name);
  return join_path(path_, name);
}

void OutputDirectory::replace_model(const std::string& staged) {
  const std::vector<std::string> names = list_directory(staged);
  const auto is_new = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  // From here to the end no reader finds a config.json, and so none takes files of two models for one.
  if (!earlier([](std::string_view name) { return name == kConfigFile; }).empty()) {
    move_aside(std::string(kConfigFile));
    fsync_directory(path_);
  }
  for (const std::string& name :
       earlier([&](std::string_view n) { return is_new(n) || (overwrites_ && is_of_a_model(n)); }))
    move_aside(name);
  if (!aside_.empty()) fsync_directory(aside_);
  const auto place = [&](const std::string& name) {
    const std::string path = path_of(name);
    placed_.push_back(name);
    rename_path(join_path(staged, name), path);
  };
  for (const std::string& name : names)
    if (name != kConfigFile) place(name);
  fsync_directory(path_);
  if (is_new(kConfigFile)) place(std::string(kConfigFile));
  fsync_directory(path_);
}

void OutputDirectory::finish() {
  if (overwrites_)
    for (const std::string& name : earlier([](std::string_view n) {
           const bool is_left_over =
               is_temporary_name(n) && (n.starts_with(kNewModel) || n.starts_with("checkpoint-"));
           return is_record(n) || is_checkpoint(n) || is_of_a_model(n) || is_left_over;
         }))
      remove_all(join_path(path_, name));
  // One of a run that was killed holds the same kinds of files.
  for (const std::string& name : earlier([](std::string_view n) { return is_numbered(n, kEarlierRun); }))
    if (overwrites_ || join_path(path_, name) == aside_) remove_all(join_path(path_, name));
  aside_.clear();
  moved_.clear();
  fsync_directory(path_);
}

std::string OutputDirectory::put_back() noexcept {
  std::string kept;  // where this run's record is
  try {
    for (const std::string& name : placed_) {
      remove_all(join_path(path_, name));
      own_.erase(name);
    }
    placed_.clear();
    if (aside_.empty()) return {};
    for (const std::string& name : own_) {
      const std::string path = join_path(path_, name);
      if (!fs::exists(path)) continue;
      if (kept.empty()) kept = new_directory(kFailedRun);
      rename_path(path, join_path(kept, name));
    }
    while (!moved_.empty()) {
      rename_path(join_path(aside_, moved_.back()), join_path(path_, moved_.back()));
      moved_.pop_back();
    }
    remove_all(aside_);
    fsync_directory(path_);
    aside_.clear();
    return fmt::format("{} holds the earlier run as it was{}", path_,
                       kept.empty() ? "" : fmt::format("; what this one wrote is in {}", kept));
  } catch (const std::exception& error) {
    return aside_.empty() ? std::string(error.what())
                          : fmt::format("{}; files of the earlier run are in {}", error.what(), aside_);
  }
}

}  // namespace snug
