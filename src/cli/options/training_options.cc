// Options: batch, length and optimizer of a run.

#include "cli/options/option_kinds.h"

namespace snug {
namespace {

// Of per_device_train_batch_size: a number or the word auto.
OptionInfo or_auto(OptionInfo info) {
  info.set = [number = info.set](ProgramOptions& o, const std::string& value) {
    if (means(value, "auto"))
      o.run.per_device_train_batch_size = RunOptions::kAuto;
    else
      number(o, value);
  };
  info.get = [number = info.get](const ProgramOptions& o) {
    return o.run.per_device_train_batch_size == RunOptions::kAuto ? "auto" : number(o);
  };
  return info;
}

}  // namespace

std::vector<OptionInfo> batch_options() {
  return option_group(
      "Batch and length",
      {or_auto(integer("per_device_train_batch_size", &RunOptions::per_device_train_batch_size, 1,
                       {.aliases = {"micro_batch_size", "batch_size"},
                        .commands = kTraining,
                        .help = "Windows in one micro-step. auto: the part of global_batch_size that the "
                                "planner chooses by budget and model."})),
       or_unset(
           integer("global_batch_size", &RunOptions::global_batch_size, 1,
                   {.commands = kTraining,
                    .help = "Windows of one update: per_device_train_batch_size times "
                            "gradient_accumulation_steps, which follow from it where they are not given."})),
       integer("per_device_eval_batch_size", &RunOptions::per_device_eval_batch_size, 1,
               {.commands = kTraining | kEval, .help = "Windows in one evaluation batch."}),
       or_unset(integer("gradient_accumulation_steps", &RunOptions::gradient_accumulation_steps, 1,
                        {.commands = kTraining,
                         .help = "Micro-steps in one update; gradients are the mean over all its supervised "
                                 "tokens. Default: what global_batch_size needs, without one 1."})),
       real("num_train_epochs", &RunOptions::num_train_epochs, 0, 1e9,
            {.aliases = {"num_epochs"},
             .commands = kTraining,
             .help = "Passes over the data; a fraction's updates are rounded up."}),
       integer("max_steps", &RunOptions::max_steps, -1,
               {.commands = kTraining,
                .help = "Updates; overrides num_train_epochs. 0 loads and saves. -1: not set."})});
}

std::vector<OptionInfo> optimizer_options() {
  return option_group(
      "Optimizer",
      {real("learning_rate", &RunOptions::learning_rate, 0, kLargestReal,
            {.commands = kTraining, .help = "Peak learning rate of AdamW."}),
       choice("lr_scheduler_type", &RunOptions::lr_scheduler_type,
              {{"linear", LearningRateSchedule::kLinear},
               {"cosine", LearningRateSchedule::kCosine},
               {"cosine_with_restarts", LearningRateSchedule::kCosineWithRestarts},
               {"polynomial", LearningRateSchedule::kPolynomial},
               {"constant", LearningRateSchedule::kConstant},
               {"constant_with_warmup", LearningRateSchedule::kConstantWithWarmup},
               {"inverse_sqrt", LearningRateSchedule::kInverseSqrt}},
              {.aliases = {"lr_scheduler"},
               .value = "NAME",
               .commands = kTraining,
               .help = "linear, cosine, cosine_with_restarts, polynomial, constant, "
                       "constant_with_warmup or inverse_sqrt."}),
       real("warmup_steps", &RunOptions::warmup_steps, 0, 1e15,
            {.commands = kTraining, .help = "Updates with a rising rate; below 1 a share of all updates."}),
       OptionInfo{.name = "warmup_ratio",
                  .sets = "warmup_steps",
                  .value = "X",
                  .commands = kTraining,
                  .help = "Older name for warmup_steps below 1: a share of all updates. A warmup_steps above "
                          "0 beside it goes before it.",
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        o.run.warmup_steps =
                            read_number<double>(value, 0, 0.9999999, "a number from 0 to below 1");
                      },
                  .get = [](const ProgramOptions&) { return std::string(); },
                  .saved = false},
       real("weight_decay", &RunOptions::weight_decay, 0, kLargestReal,
            {.commands = kTraining, .help = "Decoupled decay of matrices; none on biases and norms."}),
       real("adam_beta1", &RunOptions::adam_beta1, 0, 0.9999999,
            {.commands = kTraining, .help = "Decay of the first moment."}),
       real("adam_beta2", &RunOptions::adam_beta2, 0, 0.9999999999,
            {.commands = kTraining, .help = "Decay of the second moment."}),
       real("adam_epsilon", &RunOptions::adam_epsilon, 0, kLargestReal,
            {.commands = kTraining, .help = "Added to the root of the second moment."}),
       real("max_grad_norm", &RunOptions::max_grad_norm, 0, kLargestReal,
            {.commands = kTraining, .help = "Clip gradients to this global norm. 0: no clipping."}),
       choice("optim", &RunOptions::moments,
              {{"adamw_torch", Moments::kF32},
               {"adamw_torch_fused", Moments::kF32},
               {"adamw", Moments::kF32},
               {"adamw_bf16", Moments::kBF16},
               {"adamw_8bit", Moments::kEightBit},
               {"adamw_bnb_8bit", Moments::kEightBit},
               {"adamw_torch_8bit", Moments::kEightBit}},
              {.aliases = {"optimizer"},
               .value = "NAME",
               .commands = kTraining,
               .help = "adamw_torch (also adamw_torch_fused, adamw: the same numbers): moments in "
                       "fp32, 8 bytes a parameter; adamw_bf16: 4 bytes; adamw_8bit (also "
                       "adamw_bnb_8bit, adamw_torch_8bit): 2 bytes (docs/lossy.md)."})});
}

}  // namespace snug
