// cli/options/foreign_options.h — options of other trainers that Snug has not, and what becomes of them
//
// Files for Hugging Face's Trainer, TRL, axolotl and LLaMA-Factory hold dozens of names that mean nothing here. Those that cannot change
// what a run computes or saves are ignored with a reason; those that people rely on are refused with what there is instead.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/run_config.h"

namespace snug {

struct ForeignOption {
  std::string_view name;
  // The values that change nothing, separated by |; "*": all. A missing or empty value, none and null never ask for anything.
  std::string_view harmless;
  // Why such a value is ignored; a phrase behind "ignored because".
  std::string_view because;
  // What another value is answered with; empty with harmless "*".
  std::string_view instead;
};

std::span<const ForeignOption> foreign_options();

// The entry of `name`, which has underscores; null for other names.
const ForeignOption* find_foreign_option(std::string_view name);

// Whether what stands at the key of `setting` is one of the values that change nothing.
bool is_harmless(const ForeignOption& option, const RunSetting& setting);

}  // namespace snug
