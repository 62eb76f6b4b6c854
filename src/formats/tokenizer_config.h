// formats/tokenizer_config.h — what Snug reads of a model directory's tokenizer_config.json
//
// The file is read as a stream: beside its text only the values below are held, whatever else is in it. A value that is null reads as absent.
// Passed over, as transformers passes over it beside a tokenizer.json: add_bos_token and add_eos_token (the file's post-processor decides),
// model_max_length (1e30 where nobody knew it), added_tokens_decoder, and every other key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace snug {

struct TokenizerConfig {
  std::string file;             // its path, for messages
  std::string tokenizer_class;  // empty: it names none
  bool add_prefix_space = false;
  // bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token: those that it names, with their texts.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // The template; of several with names the one named default, and the names of the others.
  std::optional<std::string> chat_template;
  std::vector<std::string> other_templates;

  // Null when it does not name one.
  const std::string* special_token(std::string_view name) const;
};

// `file` is only for messages. Throws UserError(kBadFile) with file, field, found and expected.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& file);
// The directory's; one that has none says nothing.
TokenizerConfig read_tokenizer_config(const std::string& directory);

}  // namespace snug
