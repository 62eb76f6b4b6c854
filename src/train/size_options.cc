#include "train/size_options.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace snug {
namespace {

struct SizeOption {
  const char* name;
  int64_t RunOptions::*field;
};

// Every option that multiplies into a shape or a count.
constexpr std::array<SizeOption, 5> kSizeOptions = {{
    {"per_device_train_batch_size", &RunOptions::per_device_train_batch_size},
    {"per_device_eval_batch_size", &RunOptions::per_device_eval_batch_size},
    {"gradient_accumulation_steps", &RunOptions::gradient_accumulation_steps},
    {"max_length", &RunOptions::max_length},
    {"max_new_tokens", &RunOptions::max_new_tokens},
}};

}  // namespace

void explain_sizes(const RunOptions& options, const RunOptions& usual, const std::string& config_path, const UserError& error,
                   const std::function<void(const RunOptions&)>& plan_with) {
  // Whether the sizes can be counted; that they do not fit the budget is known once they were.
  const auto countable = [&](const RunOptions& tried) {
    try {
      plan_with(tried);
      return true;
    } catch (const UserError& refusal) {
      return refusal.code() == ExitCode::kDoesNotFit;
    }
  };
  std::vector<const SizeOption*> blamed, unusual;
  RunOptions small = options;
  for (const SizeOption& option : kSizeOptions) {
    if (options.*option.field <= usual.*option.field) continue;
    unusual.push_back(&option);
    RunOptions without = options;
    without.*option.field = small.*option.field = usual.*option.field;
    if (countable(without)) blamed.push_back(&option);
  }
  if (blamed.empty()) {
    // Either several options overflow each on its own, or none is to blame.
    if (countable(small)) {
      blamed = unusual;
    } else {
      RunOptions plain = small;
      plain.recompute = RecomputePolicy{};
      plain.precision = Precision{};
      if (countable(plain)) throw error;  // not a matter of sizes: an option that was given does not go with the model
      throw_user(ExitCode::kBadFile, "{}: the model's own sizes are beyond 64 bits ({})", config_path, error.what());
    }
  }
  std::string found;
  for (const SizeOption* option : blamed)
    found += fmt::format("{}{} is {}", found.empty() ? "" : ", ", option->name, options.*option->field);
  throw_user(ExitCode::kUsage, "{}: too large, a size of the run is beyond 64 bits ({})", found, error.what());
}

}  // namespace snug
