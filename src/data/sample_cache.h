// data/sample_cache.h — a directory of prepared samples, one file for each key
//
// Files are named KEY.samples; KEY.samples.part is one that a process writes, or wrote when it was killed. A run that needs a key reads the
// finished file, goes on with the part, or begins one; while another process writes the part, it waits for that, as long as that process
// goes on writing (ContinuedFile).
// Cleaning: files that no run has opened for 30 days go, and parts that no process has and none wrote to for a day.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/sample_file.h"

namespace snug {

class SampleCache {
 public:
  // Makes the directory if need be, and cleans it. `note` is told in a sentence what a user should know of: a broken file, a wait.
  // Throws UserError(kIo) for a directory that cannot be made.
  SampleCache(std::string directory, std::function<void(std::string_view)> note);

  const std::string& directory() const { return directory_; }

  struct Found {
    std::shared_ptr<const SampleFile> samples;
    bool was_there = false;  // nothing had to be made
  };
  // The file of `key`; `make` writes all rows behind writer.kept() and does not call finish(). Throws what it throws, and UserError(kIo)
  // where the directory cannot be written.
  Found find(const Fingerprint& key, int64_t vocabulary,
             const std::function<void(SampleWriter&)>& make) const;

 private:
  void clean() const;

  std::string directory_;
  std::function<void(std::string_view)> note_;
};

}  // namespace snug
