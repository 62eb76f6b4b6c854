#include "train/allow.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/errors.h"
#include "base/nearest.h"

namespace snug {
namespace {

constexpr std::string_view kExact = "exact";

[[noreturn]] void refuse_word(const std::string& word) {
  std::vector<std::string> words{std::string(kExact)};
  for (const AllowanceInfo& info : allowances()) words.emplace_back(info.word);
  const std::string guess = nearest(word, words);
  throw_user(ExitCode::kUsage, "found \"{}\"; expected {}{}", word, fmt::join(words, ", "),
             guess.empty() ? "" : fmt::format("; did you mean {}?", guess));
}

}  // namespace

std::span<const AllowanceInfo> allowances() {
  static constexpr std::array kAllowances = {
      AllowanceInfo{Allowance::kReassociation, "reassociation",
                    "other orders of the same sums: micro-batch (the global batch stays), rows of the head and of the MLPs at a time"},
      AllowanceInfo{Allowance::kBF16Optimizer, "bf16_optimizer",
                    "Adam's moments are rounded to bf16, up or down at random so that their means stay right"},
      AllowanceInfo{Allowance::k8BitOptimizer, "8bit_optimizer",
                    "Adam's moments of large tensors are rounded to one of 256 values a block of 256 elements"},
      AllowanceInfo{Allowance::kBF16Gradients, "bf16_gradients",
                    "the gradients of large matrices are rounded to bf16, once each, where they wait for the update"},
      AllowanceInfo{Allowance::kNoMasterWeights, "no_master_weights",
                    "bf16 weights lose the low 16 bits of their fp32 masters: every update is rounded, up or down at random "
                    "(needed for master_weights none also where it is named)"},
      AllowanceInfo{Allowance::kFp8Activations, "fp8_activations",
                    "what blocks hold for the backward may be rounded to 8-bit numbers (e4m3, a scale for each 128), which changes "
                    "gradients, not the loss of given weights"},
  };
  return kAllowances;
}

Allowed parse_allowed(std::string_view text) {
  Allowed allowed;
  if (text == kExact) return allowed;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string word(text.substr(begin, comma - begin));
    if (word == kExact)
      throw_user(ExitCode::kUsage, "found \"{}\"; expected {} to stand alone: it allows nothing else", text,
                 kExact);
    const auto info = std::find_if(allowances().begin(), allowances().end(),
                                   [&](const AllowanceInfo& known) { return known.word == word; });
    if (info == allowances().end()) refuse_word(word);
    allowed.insert(info->allowance);
    begin = comma + 1;
  }
  return allowed;
}

std::string to_string(const Allowed& allowed) {
  std::string text;
  for (const AllowanceInfo& info : allowances())
    if (allowed.contains(info.allowance)) text += fmt::format("{}{}", text.empty() ? "" : ",", info.word);
  return text.empty() ? std::string(kExact) : text;
}

std::string allowances_help() {
  std::string text =
      "What the planner may change in the numbers when the budget asks for it, separated by commas; what an "
      "option names outright "
      "needs no permission. exact: nothing.";
  for (const AllowanceInfo& info : allowances()) text += fmt::format(" {}: {}.", info.word, info.changes);
  return text;
}

}  // namespace snug
