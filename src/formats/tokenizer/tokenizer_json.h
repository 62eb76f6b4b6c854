// formats/tokenizer/tokenizer_json.h — tokenizer.json and GPT-2's pair of files, read and checked
//
// Reads what the `tokenizers` library writes for BPE models. Errors are UserError(kBadFile) with file, field,
// found and expected. Other models (WordPiece, Unigram, WordLevel) and components that Snug does not run are
// refused by name with what to do instead.
//
// Files are read as a stream: vocabulary and merges as they come, no part becomes a tree but small ones. At most 4 bytes are held for
// a byte of the file, beyond some MiB.
#pragma once

#include <string>
#include <string_view>

#include "formats/tokenizer/tokenizer_spec.h"
#include "formats/tokenizer_config.h"

namespace snug {

// `file` is only for messages.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file);

// GPT-2's vocab.json and merges.txt, with its regular expression and the tokens that `config` names, else <|endoftext|>.
TokenizerSpec parse_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_file,
                               std::string_view merges, const std::string& merges_file,
                               const TokenizerConfig& config);

// GPT-2's expression, which ByteLevel splits by.
extern const std::string_view kGpt2Regex;

// Whether the directory has a tokenizer of any kind, also one that Snug does not read.
bool has_tokenizer(const std::string& directory);

// The file at `path`, or of the model directory `path`: its tokenizer.json, else vocab.json and merges.txt, with the tokens that the files
// beside them name (tokens_beside.h). A tokenizer.json that is named itself is read alone.
// UserError(kBadFile) that says what is there instead (tokenizer.model, spiece.model, …), or that there is none.
TokenizerSpec read_tokenizer(const std::string& path);

}  // namespace snug
