#include "cli/options/option_sources.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "cli/options/option_values.h"

namespace snug {
namespace {

std::string place(const GivenOption& given) {
  return fmt::format("{} {} ({})", given.name, fmt::join(given.values, ","), given.where);
}

// The text of `target` after both are set in this order; none where a value cannot be set.
std::optional<std::string> outcome(const OptionInfo& target, const GivenOption& first,
                                   const GivenOption& second) {
  ProgramOptions options;
  Findings unset;
  apply(first, options, unset);
  apply(second, options, unset);
  if (!unset.problems.empty()) return std::nullopt;
  return target.get(options);
}

bool contradict(const GivenOption& a, const GivenOption& b) {
  const OptionInfo& target = target_of(*a.info);
  if (a.info->many == OptionInfo::Many::kRepeats || &target != &target_of(*b.info)) return false;
  return outcome(target, a, b) != outcome(target, b, a);
}

const GivenOption* find_given(std::span<const GivenOption> given, std::string_view option) {
  const auto found = std::find_if(given.rbegin(), given.rend(),
                                  [&](const GivenOption& g) { return g.info->name == option; });
  return found == given.rend() ? nullptr : &*found;
}

void erase(std::vector<GivenOption>& source, const GivenOption* given) {
  source.erase(source.begin() + (given - source.data()));
}

// A name that is written twice on a command line.
void settle_repeated(std::vector<GivenOption>& source, Findings& findings) {
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].info->many == OptionInfo::Many::kRepeats) continue;
    const auto later = std::find_if(
        source.begin() + static_cast<std::ptrdiff_t>(i) + 1, source.end(), [&](const GivenOption& g) {
          return g.info == source[i].info && g.name == source[i].name && g.where == source[i].where;
        });
    if (later == source.end()) continue;
    if (later->values != source[i].values)
      findings.notes.push_back(
          fmt::format("{} is given twice on the {}: {} goes before {}, which stands earlier", later->name,
                      later->where, fmt::join(later->values, ","), fmt::join(source[i].values, ",")));
    source.erase(source.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

// warmup_steps above 0 overrides any effect of warmup_ratio: TrainingArguments up to transformers 4, which had both.
void settle_warmup(std::vector<GivenOption>& source, Findings& findings) {
  const GivenOption *steps = find_given(source, "warmup_steps"), *ratio = find_given(source, "warmup_ratio");
  if (steps == nullptr || ratio == nullptr || !contradict(*steps, *ratio)) return;
  ProgramOptions options;
  apply(*steps, options, findings);
  const bool steps_win = options.run.warmup_steps > 0;
  const GivenOption *winner = steps_win ? steps : ratio, *loser = steps_win ? ratio : steps;
  findings.notes.push_back(
      fmt::format("{} goes before {}, as in Hugging Face's Trainer", place(*winner), place(*loser)));
  erase(source, loser);
}

// A strategy says whether the number of updates counts.
void settle_strategy(std::vector<GivenOption>& source, const char* strategy, const char* steps,
                     Findings& findings) {
  const GivenOption *word = find_given(source, strategy), *number = find_given(source, steps);
  if (word == nullptr || number == nullptr || truth_value(word->values.back()) != false ||
      !contradict(*word, *number))
    return;
  findings.notes.push_back(
      fmt::format("{} goes before {}, as in Hugging Face's Trainer", place(*word), place(*number)));
  erase(source, number);
}

}  // namespace

const OptionInfo& target_of(const OptionInfo& info) {
  if (info.sets.empty()) return info;
  for (const OptionInfo& other : all_options())
    if (other.name == info.sets && (other.commands & info.commands) == info.commands) return other;
  throw_user(ExitCode::kInternal, "the table of options has no {}, which {} sets", info.sets, info.name);
}

void apply(const GivenOption& given, ProgramOptions& options, Findings& findings) {
  for (const std::string& value : given.values) try {
      given.info->set(options, value);
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kUsage)
        throw UserError(error.code(), fmt::format("{}: {}: {}", given.where, given.info->name, error.what()));
      findings.problems.push_back(fmt::format("{}: {}: {}", given.where, given.info->name, error.what()));
    }
}

void settle_source(std::vector<GivenOption>& source, Findings& findings) {
  settle_repeated(source, findings);
  settle_warmup(source, findings);
  settle_strategy(source, "save_strategy", "save_steps", findings);
  settle_strategy(source, "eval_strategy", "eval_steps", findings);
  for (size_t i = 0; i < source.size(); ++i)
    for (size_t j = i + 1; j < source.size(); ++j)
      if (contradict(source[i], source[j]))
        findings.problems.push_back(fmt::format("{} and {} contradict each other; expected one of them",
                                                place(source[i]), place(source[j])));
}

void check_together(std::span<const GivenOption> given, const ProgramOptions& options, Findings& findings) {
  const RunOptions &run = options.run, defaults;
  const auto said = [&](const char* option) { return find_given(given, option); };
  for (const auto& [strategy, steps, number] : {std::tuple("save_strategy", "save_steps", run.save_steps),
                                                std::tuple("eval_strategy", "eval_steps", run.eval_steps)})
    if (const GivenOption* word = said(strategy);
        word != nullptr && number == 0 && truth_value(word->values.back()) != false)
      findings.problems.push_back(fmt::format("{} without {}; expected it beside it", place(*word), steps));
  const GivenOption* format = said("dataset_format");
  for (const auto& [option, wanted] :
       {std::pair("text_field", DatasetFormat::kJsonText), std::pair("token_dtype", DatasetFormat::kShards)})
    if (const GivenOption* field = said(option); field != nullptr && !field->values.back().empty() &&
                                                 format != nullptr && run.dataset_format &&
                                                 run.dataset_format != wanted)
      findings.problems.push_back(
          fmt::format("{} and {} contradict each other; expected {} with dataset_format {}", place(*field),
                      place(*format), option, dataset_format_name(wanted)));

  const GivenOption *steps = said("max_steps"), *epochs = said("num_train_epochs");
  if (steps != nullptr && epochs != nullptr && run.max_steps >= 0 &&
      run.num_train_epochs != defaults.num_train_epochs)
    findings.notes.push_back(
        fmt::format("{} goes before {}, as in Hugging Face's Trainer", place(*steps), place(*epochs)));
  if (const GivenOption* schedule = said("lr_scheduler_type");
      schedule != nullptr && run.lr_scheduler_type == LearningRateSchedule::kConstant && run.warmup_steps > 0)
    findings.notes.push_back(
        fmt::format("{} has no warm-up, as in Hugging Face's Trainer: warmup_steps {} counts for nothing "
                    "(constant_with_warmup has one)",
                    place(*schedule), run.warmup_steps));
  if (const GivenOption* every = said("eval_steps");
      every != nullptr && run.eval_steps > 0 && run.validation_file.empty() && run.validation_split == 0)
    findings.notes.push_back(
        fmt::format("{} counts for nothing without validation_file or validation_split", place(*every)));
  if (const GivenOption* cold = said("temperature"); cold != nullptr && run.temperature == 0)
    for (const char* option : {"top_k", "top_p"})
      if (const GivenOption* sampling = said(option))
        findings.notes.push_back(
            fmt::format("{} counts for nothing with {}, which always takes the likeliest token",
                        place(*sampling), place(*cold)));
}

}  // namespace snug
