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
                    "other orders of the same sums: micro-batch (the global batch stays) and rows of the head at a time"},
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
      throw_user(ExitCode::kUsage, "found \"{}\"; expected {} to stand alone: it allows nothing else", text, kExact);
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
      "What the planner may change in the numbers when the budget asks for it, separated by commas; what an option names outright "
      "needs no permission. exact: nothing.";
  for (const AllowanceInfo& info : allowances()) text += fmt::format(" {}: {}.", info.word, info.changes);
  return text;
}

}  // namespace snug
