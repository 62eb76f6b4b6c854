// train/allow.h — what the planner may change in a run's numbers when the budget asks for it
//
// A technique that the user names outright (`--optim adamw_8bit`) is its own permission. `--allow` says what the *planner* may
// choose by itself. The one exception is training without master weights, which is refused without `no_master_weights` even
// where it is named: a weight that is only rounded to bf16 may stand still without a word (docs/lossy.md).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace snug {

// Techniques that change numbers, in the order of the table. A row is there once its technique is.
enum class Allowance : uint8_t {
  kReassociation,
  kBF16Optimizer,    // OptimizerOptions::moments kBF16
  k8BitOptimizer,    // … kEightBit
  kBF16Gradients,    // OptimizerOptions::bf16_gradients
  kNoMasterWeights,  // MasterWeights::kNone
  kFp8Activations,   // CompileOptions::compress_activations
};

struct AllowanceInfo {
  Allowance allowance;
  std::string_view word;     // as the user writes it
  std::string_view changes;  // one sentence: what becomes of the numbers
};
std::span<const AllowanceInfo> allowances();

// Empty: exact choices only.
using Allowed = std::set<Allowance>;

// Reads "exact", or words separated by commas. Throws UserError(kUsage) that names the words there are, and the nearest.
Allowed parse_allowed(std::string_view text);
// The text that parse_allowed reads back, in the order of the table.
std::string to_string(const Allowed& allowed);

// Help of the option --allow: each word with its sentence.
std::string allowances_help();

}  // namespace snug
