// formats/special_tokens.h — the tokens that files beside a vocabulary name
//
// tokenizer_config.json, special_tokens_map.json and added_tokens.json name tokens that tokenizer.json, or vocab.json, need not hold. Which of
// them count, and in which order they are added, is what transformers 5 does; formats/tokenizer/tokens_beside.h adds them to a tokenizer.
// All that reads throws UserError(kBadFile) with file, field, found and expected; `file` is only for messages.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_cursor.h"

namespace snug {

// A token as a file names it: a plain text, which is special, or an object with its content and flags.
struct TokenText {
  std::string content;
  bool special = false, lstrip = false, rstrip = false, single_word = false;
  std::optional<bool> normalized;  // none: where it is not special

  bool operator==(const TokenText&) const = default;
};

struct NamedToken {
  std::string name;  // eos_token, image_token, extra_special_tokens[2]
  TokenText token;
  std::string file;  // that names it, for messages
  // An object of tokenizer_config.json: added_tokens.json does not take its token for special.
  bool is_object = false;
};

struct NumberedToken {
  int64_t id = 0;
  TokenText token;
};

// What the names of one file are.
struct TokenNames {
  std::vector<NamedToken> standard;        // bos_token and its like (kStandardTokens)
  std::vector<std::string> nulls;          // those of them that are null
  std::vector<NamedToken> objects, texts;  // other keys that end in _token
  // extra_special_tokens: a list, or an object of names and tokens. additional_special_tokens is its older name.
  bool has_extra = false, extra_is_object = false, has_additional = false;
  std::vector<NamedToken> extra, additional;
};

// What all of them say together.
struct SpecialTokens {
  std::vector<NamedToken> named;   // in the order in which they are added
  std::vector<std::string> nulls;  // standard ones that there are none of
  std::vector<NamedToken> extra;
  // Of added_tokens_decoder, or, where there is none, of added_tokens.json; sorted by id.
  std::deque<NumberedToken> numbered;
  std::string numbered_field;  // file and field, for messages
  bool has_decoder = false;

  // Null when there is none.
  const NamedToken* find(std::string_view name) const;
};

// In the order in which they are added.
inline constexpr std::string_view kStandardTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

// Where the value that the cursor stands before belongs to a name of a token, reads it; otherwise nothing is read. The cursor's place is the
// file. In special_tokens_map.json (`is_map`) all objects are special tokens.
bool read_token_name(JsonCursor& cursor, const std::string& key, bool is_map, TokenNames& names);

// An object of ids and tokens, as added_tokens_decoder is one.
std::deque<NumberedToken> read_numbered_tokens(JsonCursor& cursor, std::string_view field);

TokenNames parse_special_tokens_map(std::string_view text, const std::string& file);

// added_tokens.json: an object of tokens and ids.
std::deque<NumberedToken> parse_added_tokens(std::string_view text, const std::string& file);

// What tokenizer_config.json says where it has an added_tokens_decoder: the files beside it say nothing then.
SpecialTokens join_special_tokens(TokenNames config, std::deque<NumberedToken> decoder, std::string field);
// Where it has none: special_tokens_map.json is stronger than tokenizer_config.json. The tokens of added_tokens.json that one of the two
// names are special.
SpecialTokens join_special_tokens(TokenNames config, const TokenNames& map, std::deque<NumberedToken> added,
                                  std::string added_file);

}  // namespace snug
