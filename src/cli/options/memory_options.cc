// Options: memory and speed.

#include "cli/options/option_kinds.h"

namespace snug {
namespace {

// A switch for one precision. Turned off it leaves another precision alone: configurations have "bf16: true, fp16: false".
std::function<void(RunOptions&, bool)> precision_switch(Precision precision) {
  return [precision](RunOptions& o, bool on) {
    if (on) o.precision = precision;
    if (!on && o.precision == precision) o.precision = Precision::kF32;
  };
}

}  // namespace

std::vector<OptionInfo> memory_options() {
  return option_group(
      "Memory and speed",
      {OptionInfo{.name = "memory",
                  .value = "SIZE",
                  .commands = kModelCommands,
                  .help = "Budget of the whole process: 900MiB, 2GB, or a number of bytes. Default: what is "
                          "left, minus a margin.",
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        const Bytes budget = parse_bytes(value);
                        if (budget.value <= 0) refuse("found \"{}\"; expected a size above 0", value);
                        o.run.memory = budget;
                      },
                  .get =
                      [](const ProgramOptions& o) {
                        return o.run.memory ? fmt::format("{}", o.run.memory->value) : std::string();
                      }},
       choice("precision", &RunOptions::precision,
              {{"fp32", Precision::kF32},
               {"bf16", Precision::kBF16},
               {"fp16", Precision::kF16},
               {"float32", Precision::kF32},
               {"bfloat16", Precision::kBF16},
               {"float16", Precision::kF16}},
              {.value = "TYPE",
               .commands = kModelCommands,
               .help = "fp32, or bf16: weights and activations in 16 bits, with fp32 master "
                       "weights and sums. fp16: likewise, with a dynamic loss scale."}),
       shorthand("bf16", "precision", {.commands = kModelCommands, .help = "Same as --precision bf16."},
                 precision_switch(Precision::kBF16)),
       shorthand("fp16", "precision", {.commands = kModelCommands, .help = "Same as --precision fp16."},
                 precision_switch(Precision::kF16)),
       OptionInfo{
           .name = "recompute",
           .value = "POLICY",
           .commands = kTraining,
           .help = "What is computed again instead of kept, with the same bits. none: nothing. block: all "
                   "but what leaves a block. uniform:K: all but what leaves every K-th block. "
                   "selective:LIST: what attention, norm, activation, mlp or projection make inside a block. "
                   "compress[:LIST]: the same values (all without a list) are held as fp8 numbers instead, "
                   "which changes gradients a little; compress_e5m2 with more range. memory: the largest, "
                   "until the budget holds. heuristic: the cheapest a byte, until it holds. optimal: what "
                   "the planner finds fastest in it; nothing where everything fits.",
           .set = [](ProgramOptions& o,
                     const std::string& value) { o.run.recompute = parse_recompute_policy(value); },
           .get = [](const ProgramOptions& o) { return to_string(o.run.recompute); }},
       choice("gradients", &RunOptions::gradients, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}},
              {.value = "TYPE",
               .commands = kTraining,
               .help =
                   "Gradients of large matrices from the backward to the update. fp32, or bf16: 2 bytes a "
                   "parameter instead of 4, each rounded once; not with accumulation, whose sums are fp32."}),
       OptionInfo{.name = "allow",
                  .value = "WORDS",
                  .many = OptionInfo::Many::kRepeats,
                  .commands = kTraining,
                  .help = allowances_help(),
                  .set = [](ProgramOptions& o,
                            const std::string& value) { o.run.allow.merge(parse_allowed(value)); },
                  .get = [](const ProgramOptions& o) { return to_string(o.run.allow); }},
       shorthand("gradient_checkpointing", "recompute",
                 {.aliases = {"activation_checkpointing"},
                  .commands = kTraining,
                  .help = "Same as --recompute block."},
                 [](RunOptions& o, bool on) {
                   o.recompute.kind = on ? RecomputePolicy::Kind::kBlock : RecomputePolicy::Kind::kNone;
                 }),
       choice(
           "update_placement", &RunOptions::update_placement,
           {{"auto", std::nullopt},
            {"after", UpdatePlacement::kAfter},
            {"in_backward", UpdatePlacement::kInBackward}},
           {.value = "PLACE",
            .commands = kTraining,
            .help = "after: all gradients live until the update; in_backward: each block is updated inside "
                    "the backward, so that one block's gradients live (with clipping the backward runs "
                    "twice); auto: the faster of what fits. The same bits."}),
       or_unset(integer(
           "head_chunk_rows", &RunOptions::head_chunk_rows, 1,
           {.commands = kTraining,
            .help = "Rows of logits that exist at a time in the head; another number is another order of "
                    "sums. Default: 1024, or the planner's where --allow names reassociation."})),
       OptionInfo{.name = "mlp_chunk_rows",
                  .value = "N",
                  .commands = kTraining,
                  .help = "Rows that an MLP works on at a time, so that its hidden values never exist whole; "
                          "the backward makes them again. 0: all. Another number is another order of sums. "
                          "Default: all, or the planner's where --allow names reassociation.",
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        o.run.mlp_chunk_rows =
                            read_number<int64_t>(value, 0, int64_t{1} << 50, "a whole number ≥ 0");
                      },
                  .get =
                      [](const ProgramOptions& o) {
                        return o.run.mlp_chunk_rows ? fmt::format("{}", *o.run.mlp_chunk_rows)
                                                    : std::string();
                      }},
       choice(
           "master_weights", &RunOptions::master_weights,
           {{"auto", std::nullopt},
            {"split", MasterWeights::kSplit},
            {"full", MasterWeights::kFull},
            {"none", MasterWeights::kNone}},
           {.value = "FORM",
            .commands = kTraining,
            .help = "fp32 masters of 16-bit weights. split: the 16 bits that a bf16 weight lacks (4 bytes "
                    "together); full: a whole fp32 beside it (6): the same bits. auto: split with bf16, full "
                    "with fp16. none: the bf16 weight alone (2), rounded stochastically: needs --allow "
                    "no_master_weights."}),
       integer("threads", &RunOptions::threads, 0,
               {.commands = kModelCommands | kDataInspect,
                .help = "Threads. 0: what affinity and the cgroup's CPU quota allow."},
               4096),
       choice("costs", &RunOptions::costs,
              {{"measured", CostSource::kMeasured}, {"roofline", CostSource::kRoofline}},
              {.value = "SOURCE",
               .commands = kTraining,
               .help = "measured times each operation once on this machine (3 s) and keeps it in "
                       "~/.cache/snug; roofline estimates from two rates."}),
       boolean("check_memory", &RunOptions::check_memory,
               {.commands = kTraining | kEval,
                .help = "Check after every operation that it wrote nothing outside its place (slow)."})});
}

}  // namespace snug
