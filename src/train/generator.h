// train/generator.h — continuing a sequence of tokens with a prepared run of kind kGenerate
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/prepare.h"

namespace snug {

// Loads the weights and adds up to options.max_new_tokens tokens to `prompt`, which holds at least one. Each token runs the
// forward phase at the smallest planned length that holds the sequence. Ends at an end-of-text id of the model, at run.chat's
// end of turn, or at its last position.
// `emit` gets each new token as it comes and says whether to go on. Throws UserError: kUsage for an empty prompt, one beyond the model's positions, or
// an id outside its vocabulary; kBadFile for weights; kNonFinite where logits are not finite.
std::vector<int32_t> generate(Prepared& run, std::span<const int32_t> prompt, const std::function<bool(int32_t)>& emit);

}  // namespace snug
