// formats/tokenizer_config.h — what Snug reads of a model directory's tokenizer_config.json and the files of tokens beside it
//
// Files are read as streams: beside their text only the values below are held, whatever else is in them. A value that is null reads as absent.
// Every other key is passed over (model_max_length: 1e30 where nobody knew it).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/special_tokens.h"

namespace snug {

struct TokenizerConfig {
  std::string file;             // its path, for messages
  std::string tokenizer_class;  // empty: it names none
  bool add_prefix_space = false;
  // Beside vocab.json they put a token around each text; beside tokenizer.json its post-processor decides, as in transformers.
  bool add_bos_token = false, add_eos_token = false;
  SpecialTokens tokens;
  // The template; of several with names the one named default, and the names of the others.
  std::optional<std::string> chat_template;
  std::vector<std::string> other_templates;

  // The text of a token that is named (eos_token); null when none is.
  const std::string* special_token(std::string_view name) const;
};

// What tokenizer_config.json says alone. `file` is only for messages. Throws UserError(kBadFile) with file, field, found and expected.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& file);
// The directory's, with its special_tokens_map.json and added_tokens.json where they count; files that are not there say nothing.
TokenizerConfig read_tokenizer_config(const std::string& directory);

}  // namespace snug
