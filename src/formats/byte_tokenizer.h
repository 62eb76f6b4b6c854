// formats/byte_tokenizer.h — the tokenizer of models trained from scratch on text: one id a byte
//
// Ids 0–255 are the bytes themselves, 256 is the end of a text ("<|endoftext|>"). Text is never normalised
// and special tokens written out inside it stay ordinary bytes, so that decode(encode(x)) = x for any bytes.
// As a file it is a byte-level BPE without merges over GPT-2's table of 256 printable symbols, which the
// `tokenizers` library reads and encodes to the same ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug {

inline constexpr int32_t kEndOfTextId = 256;
inline constexpr int64_t kByteVocabulary = 257;
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// One id a byte; no end of text is added.
std::vector<int32_t> encode_bytes(std::string_view text);
// The bytes of ids 0–255, whether valid UTF-8 or not; end of text and ids above it give nothing.
std::string decode_bytes(std::span<const int32_t> ids);

// tokenizer.json, byte for byte the same on every run.
std::string byte_tokenizer_json();
// tokenizer_config.json for transformers: class, end of text, longest input in tokens.
std::string byte_tokenizer_config_json(int64_t longest_input);

// Writes both files into a directory.
void write_byte_tokenizer(const std::string& directory, int64_t longest_input);

// None when `directory`/tokenizer.json, with the tokens that files beside it name, encodes every text as this tokenizer does; otherwise what
// differs first, as a sentence, or that there is no such file. Formatting, order and settings that do not change the ids are free.
// Throws UserError(kBadFile) for a file that is no JSON, and for files beside it as read_tokenizer_config.
std::optional<std::string> difference_from_byte_tokenizer(const std::string& directory);

}  // namespace snug
