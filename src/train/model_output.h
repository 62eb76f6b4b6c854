// train/model_output.h — a trained model as a Hugging Face directory, whole or not at all
#pragma once

#include <optional>
#include <string>

#include "train/loss_scale.h"
#include "train/prepare.h"
#include "train/weights_io.h"

namespace snug {

// Throws UserError: kUsage when `directory` holds a finished run and may not be overwritten, kIo when it cannot be made or written, or
// when less is free there than `saves` saved models need.
void require_output_directory(const RunOptions& options, const ParameterFiles& files, int64_t saves);

// Writes configuration, side files, tokenizer (the byte tokenizer for a run from scratch on text that had none), weights and, if there
// is one, the loss scale (kLossScaleFile) into `directory`, which exists.
void write_model(const Prepared& run, const ParameterFiles& files, Executor& executor, const std::string& directory,
                 const std::optional<LossScale>& loss_scale);

// The same into output_dir/checkpoint-`step`, which appears whole or not at all. Returns its path.
std::string write_checkpoint(const Prepared& run, const ParameterFiles& files, Executor& executor, int64_t step,
                             const std::optional<LossScale>& loss_scale);

// The state of fp16's loss scale beside the weights: LossScale::state().
inline constexpr std::string_view kLossScaleFile = "loss_scale.json";

// Name of the file that marks a finished run: it is written last.
inline constexpr std::string_view kFinishedRunFile = "memory.json";

}  // namespace snug
