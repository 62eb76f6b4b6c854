// train/model_output.h — a trained model as a Hugging Face directory, whole or not at all
#pragma once

#include <optional>
#include <string>

#include "train/loss_scale.h"
#include "train/output_directory.h"
#include "train/prepare.h"
#include "train/weights_io.h"

namespace snug {

// Throws UserError(kIo) when less is free at `directory` than `saves` saved models need.
void require_space_for_models(const std::string& directory, const ParameterFiles& files, int64_t saves);

// The members torch_dtype and dtype of a configuration that a saved model of these tensors makes untrue, with what they must say: the type
// of the tensors, float32 where several types are there and none of them is what it says.
std::vector<std::pair<std::string, Json>> dtype_changes(const Json& config,
                                                        const std::vector<TensorSpec>& tensors);

// Both write configuration, side files, tokenizer (the byte tokenizer for a run from scratch on text that had none), weights and, if there
// is one, the loss scale (kLossScaleFile). They return what is said of the first tensor that is not finite.

// output_dir/checkpoint-`step`, which appears whole or not at all, and not where a tensor is not finite.
std::optional<std::string> write_checkpoint(const Prepared& run, const ParameterFiles& files,
                                            Executor& executor, int64_t step,
                                            const std::optional<LossScale>& loss_scale,
                                            OutputDirectory& output);
// The model at the top of output_dir, in the place of an earlier one. Where a tensor is not finite it is written only if `even_not_finite`.
std::optional<std::string> write_model(const Prepared& run, const ParameterFiles& files, Executor& executor,
                                       const std::optional<LossScale>& loss_scale, bool even_not_finite,
                                       OutputDirectory& output);

}  // namespace snug
