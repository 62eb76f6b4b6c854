// data/tokenized_text.h — a text file as the ids of a trained tokenizer
//
// The text is encoded once, from front to back, into a nameless temporary file of ids, which is then read like a
// token shard: memory stays bounded whatever the size of the text, and nothing is left behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "formats/token_shard.h"
#include "formats/tokenizer/tokenizer.h"

namespace snug {

// The ids of the text with what the tokenizer puts around it, then `end_of_text` unless they end with it already.
// A UTF-8 byte order mark at the beginning is passed over. The file lies in `directory`, which is made if need be, 4
// bytes an id. Throws UserError: kBadFile for an empty text and for one that the tokenizer cannot split, kIo where
// the file cannot be written.
std::unique_ptr<TokenStream> open_tokenized_text(const std::string& path, const Tokenizer& tokenizer,
                                                 std::optional<int32_t> end_of_text, int64_t vocabulary,
                                                 const std::string& directory);

}  // namespace snug
