// train/size_options.h — which options made a size that 64 bits cannot count
//
// A batch of 10^15 overflows somewhere inside an operation's shape, where nobody knows of options any more. Whether an option is to
// blame is tried: the same run with the option's default in its place either has countable sizes or has not.
#pragma once

#include <functional>
#include <string>

#include "base/errors.h"
#include "train/run_options.h"

namespace snug {

// Throws what the user should read instead of `error`, a UserError(kUsage) that `plan_with(options)` has thrown:
//   kUsage    that names every option without which, or all those without which together, the sizes are countable;
//   kBadFile  that names `config_path`, when the model overflows with the defaults of all of them: its own sizes do;
//   `error`   itself, when it has nothing to do with sizes.
// `usual` holds the defaults, `max_length` filled in. `plan_with` computes the sizes of a run, and throws as it did for `options`.
[[noreturn]] void explain_sizes(const RunOptions& options, const RunOptions& usual, const std::string& config_path,
                                const UserError& error, const std::function<void(const RunOptions&)>& plan_with);

}  // namespace snug
