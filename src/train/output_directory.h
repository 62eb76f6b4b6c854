// train/output_directory.h — where a run writes: what an earlier run left there stays whole until the new model is in its place
//
// While a run goes on its record (plan.json, config.yaml, metrics.jsonl) and its checkpoint-N have their usual names; an earlier run's wait
// in earlier-run-N, and the earlier model stays where it is. When the new model is complete and on the disk under a temporary name, the
// earlier one moves into earlier-run-N, the new files get their names, config.json last, and only then is earlier-run-N removed. A
// process that is killed so leaves either model whole: at its place, or, without a config.json at the top, beside it.
//
// Removed is what runs write: weights, configuration, tokenizer, chat template, generation_config.json, checkpoint-N, the record.
// Files of other names, a model card and licences stay.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "train/run_options.h"

namespace snug {

// Name of the file that marks a finished run: it is written last.
inline constexpr std::string_view kFinishedRunFile = "memory.json";

// Under this name, made temporary, a model is written that is to replace an earlier one.
inline constexpr std::string_view kNewModel = ".new-model";

class OutputDirectory {
 public:
  // Makes options.output_dir. Throws UserError: kUsage when it holds a run or a model and may not be overwritten, or when the run's model
  // is one of the checkpoints that would be; kIo when it cannot be made or written.
  explicit OutputDirectory(const RunOptions& options);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // The run begins to write: record and checkpoints of an earlier one are moved aside.
  void begin();
  // The path of a file or directory of this run.
  std::string path_of(std::string_view name);
  // Puts the files of `staged`, a directory below this one whose files are on the disk, in the place of the earlier model.
  void replace_model(const std::string& staged);
  // The run is complete: what it did not write is removed.
  void finish();

  // The run ends without a model: an earlier run's files go back to their places, this one's record and checkpoints, where one was moved,
  // into failed-run-N. Returns a sentence about it, empty where nothing was moved. Throws nothing.
  std::string put_back() noexcept;

 private:
  // Gives `name` of the earlier run another place.
  void move_aside(const std::string& name);
  // Names at the top that belong to an earlier run and are of a kind that `is_kind` accepts.
  template <typename Kind>
  std::vector<std::string> earlier(const Kind& is_kind) const;
  std::string new_directory(std::string_view stem) const;

  std::string path_;
  bool overwrites_ = false;
  std::set<std::string, std::less<>> own_;  // names at the top that this run made
  std::vector<std::string> placed_;         // of them: the model's files
  std::string aside_;                       // empty: nothing was moved
  std::vector<std::string> moved_;
};

}  // namespace snug
