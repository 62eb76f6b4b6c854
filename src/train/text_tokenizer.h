// train/text_tokenizer.h — which tokenizer a run's texts are read with
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/model_directory.h"
#include "formats/tokenizer/tokenizer.h"
#include "models/model.h"
#include "train/run_options.h"

namespace snug {

// The tokenizer of the model directory; null for Snug's byte tokenizer, which a run from scratch also gets where the directory has
// none. `note` gets its notices. Throws UserError(kBadFile) for a tokenizer that Snug does not read, none at all, and one with ids beyond
// the model's vocabulary.
std::unique_ptr<const Tokenizer> text_tokenizer(const RunOptions& options, const Model& model,
                                                const std::function<void(std::string_view)>& note = {});

// The id that ends a text: eos_token of tokenizer_config.json, else the first end-of-text id of the model; none when neither names one.
// Throws UserError(kBadFile) for an eos_token that is no token of the tokenizer: an empty one.
std::optional<int32_t> end_of_text_id(const ModelDirectory& directory, const Tokenizer& tokenizer);

// The prompt's ids, with what the tokenizer puts before a text and without what it puts behind.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt);

// options.chat_template_kwargs as an object, or null where there are none. Throws UserError(kUsage).
Json template_variables(const RunOptions& options);

// A question to a chat model.
struct ChatPrompt {
  std::vector<int32_t> ids;  // of the rendered conversation; never empty
  // What ends the answer: the text that the template writes behind one (may be empty), and its id where it is one token.
  std::string end_of_turn;
  std::optional<int32_t> end_id;
};

// options.prompt as the user's turn behind options.system, rendered by options.chat_template with its variables and encoded as it stands:
// the template has written the special tokens. `tokenizer`: null for Snug's byte tokenizer. Throws UserError for a template that is
// missing, broken, or refuses the conversation.
ChatPrompt chat_prompt(const RunOptions& options, const Tokenizer* tokenizer);

}  // namespace snug
