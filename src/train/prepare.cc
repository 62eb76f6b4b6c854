#include "train/prepare.h"

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/errors.h"
#include "models/load_model.h"
#include "train/batch.h"
#include "train/fit.h"
#include "train/learning_rate.h"
#include "train/size_options.h"
#include "train/text_tokenizer.h"
#include "train/variants.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

// What the process grows by while its plan is sought.
constexpr Bytes kPlanningGrowth{2 << 20};

// The one technique that needs a permission although it is named.
void check_no_master_weights(const RunOptions& options) {
  if (options.precision != Precision::kBF16)
    throw_user(ExitCode::kUsage,
               "master_weights none goes with precision bf16 alone: an fp32 weight is its own master, and an fp16 weight has too short "
               "a range for one");
  if (!options.allow.contains(Allowance::kNoMasterWeights))
    throw_user(ExitCode::kUsage,
               "master_weights none keeps 2 bytes of a weight where split keeps 4, and rounds each weight to "
               "8 significant bits at "
               "every update; write --allow no_master_weights beside it, or --master_weights split");
}

void check_options(const RunOptions& options, RunKind kind) {
  if (options.model.empty())
    throw_user(ExitCode::kUsage, "--model is missing; expected a Hugging Face model directory");
  if (options.threads > 4096 || options.threads < 0)
    throw_user(ExitCode::kUsage, "threads is {}; expected 0 to 4096", options.threads);
  if (kind == RunKind::kTrain && options.update_placement == UpdatePlacement::kInBackward &&
      options.gradient_accumulation_steps > 1)
    throw_user(ExitCode::kUsage,
               "update_placement in_backward with gradient_accumulation_steps {}; expected 1: the gradients of several micro-steps "
               "must be kept until the last",
               options.gradient_accumulation_steps);
  if (kind == RunKind::kTrain && options.gradients == DType::kBF16 && options.gradient_accumulation_steps > 1)
    throw_user(ExitCode::kUsage,
               "gradients bf16 with gradient_accumulation_steps {}; expected 1: sums over several "
               "micro-steps are kept in fp32",
               options.gradient_accumulation_steps);
  if (kind == RunKind::kTrain && options.master_weights == MasterWeights::kNone)
    check_no_master_weights(options);
  if (kind == RunKind::kTrain && options.precision == Precision::kF16) {
    if (options.update_placement == UpdatePlacement::kInBackward)
      throw_user(ExitCode::kUsage,
                 "update_placement in_backward with precision fp16; expected after: a gradient that overflows makes the whole update "
                 "be skipped, which is known only when all gradients are");
    if (options.master_weights == MasterWeights::kSplit)
      throw_user(ExitCode::kUsage,
                 "master_weights split with precision fp16; expected full: a bf16 weight is the upper half of its fp32 master, an fp16 "
                 "weight is not");
  }
  if (kind == RunKind::kTrain && options.max_steps < 0 && options.num_train_epochs <= 0)
    throw_user(ExitCode::kUsage, "num_train_epochs is {}; expected a number above 0 (or set max_steps)",
               options.num_train_epochs);
}

// Updates of the whole run; 0 without data and with max_steps 0.
int64_t updates_of(const RunOptions& options, const Schedule& schedule) {
  if (options.max_steps >= 0 || schedule.windows == 0) return std::max<int64_t>(0, options.max_steps);
  constexpr double kMost = int64_t{1} << 50;  // the limit of max_steps
  const double updates = static_cast<double>(schedule.updates_per_epoch()) * options.num_train_epochs;
  if (updates > kMost)
    throw_user(ExitCode::kUsage, "num_train_epochs is {}, which makes {:.3g} updates; expected at most {:.3g}",
               options.num_train_epochs, updates, kMost);
  return updates_of_epochs(options.num_train_epochs, schedule.updates_per_epoch());
}

// Drafts what each form that is allowed makes of the run, for the operations that costs are needed of.
void draft_forms(const Prepared& run, const Target& target) {
  for (const RunVariant& variant : variants_of(run.options))
    if (variant.forms.size() == 1)
      draft(run.model, compile_options(variant.options, run.model, run.kind, run.evaluates), target, Checks::kNone);
  if (!run.options.allow.contains(Allowance::kFp8Activations)) return;
  CompileOptions compressed = compile_options(run.options, run.model, run.kind, run.evaluates);
  compressed.recompute = {.kind = RecomputePolicy::Kind::kCompress};
  draft(run.model, compressed, target, Checks::kNone);
}

// Compiles the run; where a size does not fit 64 bits, the refusal names the options that made it.
Compiled compile_run(const Model& model, const RunOptions& options, RunKind kind, bool evaluates, const Target& target,
                     const std::string& config_path) {
  const auto plan_with = [&](const RunOptions& tried) {
    if (kind == RunKind::kTrain)  // what reports and schedules count
      checked_mul(checked_mul(tried.per_device_train_batch_size, tried.gradient_accumulation_steps), tried.max_length);
    return compile(model, compile_options(tried, model, kind, evaluates), target);
  };
  try {
    return plan_with(options);
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kUsage) throw;
    RunOptions usual;
    settle_batch(usual);
    usual.max_length = std::min<int64_t>(1024, model.max_positions);
    explain_sizes(options, usual, config_path, error, plan_with);
  }
}

// What will lie outside the arena, before a micro-batch is chosen: none changes it much.
Reserve reserve_before_planning(const Prepared& run) {
  const int64_t size = open_micro_batches(run.asked).front();
  const CompileOptions smallest =
      compile_options(with_micro_batch(run.asked, size), run.model, run.kind, run.evaluates);
  const Plan plan = compile(run.model, smallest, run.backend->target()).plan;
  Reserve reserve = reserve_beside(plan, *run.backend, process_memory(),
                                   host_batches(with_micro_batch(run.asked, size), run.kind, run.evaluates));
  reserve.allowance += kPlanningGrowth;
  return reserve;
}

// Compiles the plan of `run.options` and what follows from it.
void plan(Prepared& run, const PlanQuestion& question) {
  const RunOptions& options = run.options;
  run.compile_options = compile_options(options, run.model, run.kind, run.evaluates);
  run.compiled = {};
  run.compiled = compile_by_costs(
      *run.backend, run.kind == RunKind::kTrain ? options.costs : CostSource::kRoofline,
      options.memory.value_or(run.allowance.bytes),
      [&](const Target& target) {
        if (run.kind == RunKind::kTrain && !options.allow.empty()) draft_forms(run, target);
        return compile_run(run.model, options, run.kind, run.evaluates, target, run.directory.config_path());
      },
      run.costs);
  run.schedule = {.windows = run.data.train ? run.data.train->count() : 0,
                  .batch = options.per_device_train_batch_size,
                  .accumulation = options.gradient_accumulation_steps,
                  .shuffle = options.shuffle,
                  .seed = options.seed};
  run.updates = updates_of(options, run.schedule);
  run.outside = process_memory();
  run.reserve = reserve_beside(run.compiled.plan, *run.backend, run.outside,
                               host_batches(run.options, run.kind, run.evaluates));
  run.summary = summarize(run.compiled.plan, run.reserve, run.budget, 0, parameter_count(run.model));
  fit_to_budget(run, question);
}

}  // namespace

CompileOptions compile_options(const RunOptions& options, const Model& model, RunKind kind, bool evaluates) {
  CompileOptions compile;
  compile.batch = options.per_device_train_batch_size;
  compile.length = options.max_length;
  compile.eval_batch = options.per_device_eval_batch_size;
  compile.accumulation = options.gradient_accumulation_steps;
  if (options.head_chunk_rows > 0) compile.head_chunk = options.head_chunk_rows;
  compile.mlp_chunk = options.mlp_chunk_rows.value_or(0);
  compile.precision = options.precision;
  if (!needs_budget(options.recompute)) compile.recompute = options.recompute;
  compile.optimizer = {.beta1 = options.adam_beta1,
                       .beta2 = options.adam_beta2,
                       .eps = options.adam_epsilon,
                       .weight_decay = options.weight_decay,
                       .max_grad_norm = options.max_grad_norm,
                       .moments = options.moments,
                       .bf16_gradients = options.gradients == DType::kBF16};
  compile.compress_activations = options.allow.contains(Allowance::kFp8Activations);
  compile.update_placement = options.update_placement.value_or(UpdatePlacement::kAfter);
  compile.master_weights = options.master_weights.value_or(
      options.precision == Precision::kF16 ? MasterWeights::kFull : MasterWeights::kSplit);
  compile.train = kind == RunKind::kTrain;
  compile.evaluate = evaluates;
  compile.save = kind == RunKind::kTrain;
  if (kind == RunKind::kGenerate) {
    const auto prompt = static_cast<int64_t>(options.prompt_tokens.empty() ? options.prompt.size() : options.prompt_tokens.size());
    const int64_t longest = std::min(model.max_positions, std::max<int64_t>(1, prompt) + options.max_new_tokens);
    for (int64_t length = 16; compile.generate_lengths.empty() || compile.generate_lengths.back() < longest; length *= 2)
      compile.generate_lengths.push_back(std::min(length, model.max_positions));
  }
  return compile;
}

Bytes host_batches(const RunOptions& options, RunKind kind, bool evaluates) {
  int64_t bytes = 0;
  if (kind == RunKind::kTrain) bytes = batch_bytes(options.per_device_train_batch_size, options.max_length);
  if (evaluates) bytes = checked_add(bytes, batch_bytes(options.per_device_eval_batch_size, options.max_length));
  return Bytes(checked_mul(2, bytes));
}

Reserve reserve_beside(const Plan& plan, const cpu::CpuBackend& backend, const ProcessMemory& outside,
                       Bytes batches) {
  // Beside the threads that compute stand those that make batches, to train and to evaluate (data/prefetch.h).
  const int64_t threads = std::max<int64_t>(backend.target().dispatch().threads, outside.threads) + 2;
  Reserve reserve = compute_reserve(outside, plan.memories.at(0).arena_bytes, threads,
                                    kGrowthAllowance + backend.library_bytes(plan));
  reserve.batches = batches;
  return reserve;
}

void keep_heap_small() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

Prepared prepare(const RunOptions& given, RunKind kind, const DataWatch& watch, const PlanQuestion& question) {
  RunOptions options = given;
  if (kind == RunKind::kTrain) settle_batch(options);
  check_options(options, kind);
  keep_heap_small();

  ModelDirectory directory = ModelDirectory::open(given.model);
  Model model = load_model(directory);
  if (options.max_length == 0) options.max_length = std::min<int64_t>(1024, model.max_positions);
  if (options.max_length > model.max_positions)
    throw_user(ExitCode::kUsage, "max_length is {}; expected at most {}, the model's positions", options.max_length,
               model.max_positions);
  if (options.threads == 0) options.threads = static_cast<int>(default_threads());

  const RunFiles files = kind == RunKind::kGenerate ? RunFiles{} : find_run_files(options);
  std::unique_ptr<const Tokenizer> tokenizer;
  if (hold_text(files.train) || hold_text(files.validation) ||
      (kind == RunKind::kGenerate && !options.prompt.empty()))
    tokenizer = text_tokenizer(options, model, watch.note);
  const bool trains_on_bytes = hold_text(files.train) && !tokenizer;
  std::optional<ChatPrompt> chat;
  if (kind == RunKind::kGenerate && options.chat) {
    chat = chat_prompt(options, tokenizer.get());
    options.prompt_tokens = chat->ids;
  } else if (tokenizer && !options.prompt.empty()) {
    options.prompt_tokens = encode_prompt(*tokenizer, options.prompt);
  }
  RunData data = open_run_data(files, options, directory, model.vocabulary, tokenizer.get(), watch);
  if (kind != RunKind::kGenerate) tokenizer.reset();
  auto backend = std::make_unique<cpu::CpuBackend>(cpu::choose_dispatch(options.threads));
  const bool evaluates =
      kind == RunKind::kEvaluate || (kind == RunKind::kTrain && data.validation != nullptr);

  Prepared run{.kind = kind,
               .asked = std::move(options),
               .options = {},
               .directory = std::move(directory),
               .model = std::move(model),
               .tokenizer = std::move(tokenizer),
               .chat = std::move(chat),
               .trains_on_bytes = trains_on_bytes,
               .evaluates = evaluates,
               .compile_options = {},
               .backend = std::move(backend),
               .compiled = {},
               .costs = {},
               .data = std::move(data),
               .schedule = {},
               .updates = 0,
               .outside = {},
               .reserve = {},
               .allowance = memory_allowance(),
               .budget = {},
               .margin = {},
               .summary = {}};
  run.margin = run.asked.memory ? Bytes(0) : margin_below(run.allowance.bytes);
  run.budget = run.asked.memory.value_or(budget_within(run.allowance.bytes));
  // What is measured around a plan is known once there is one; a micro-batch that it leaves no room for is chosen again.
  const bool chooses_batch = kind == RunKind::kTrain && plans_micro_batch(run.asked);
  for (Bytes held_back;; held_back += run.summary.peak - run.budget + kMiB) {
    ChosenBatch chosen{run.asked};
    if (chooses_batch)
      chosen = with_sought_micro_batch(
          run, run.asked, arena_within(run.budget - std::min(run.budget, held_back), reserve_before_planning(run)), question);
    run.options = chosen.options;
    plan(run, question);
    if (run.summary.fits || !chooses_batch || !chosen.fits) return run;
  }
}

}  // namespace snug
