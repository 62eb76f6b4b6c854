// formats/tokenizer/tokens_beside.h — the tokens that stand beside tokenizer.json, or vocab.json, in a tokenizer
#pragma once

#include "formats/special_tokens.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {

// Adds them to `spec` with the ids that transformers gives them (the vocabulary's, else the next free one) and gives those that are there the
// flags that transformers gives them. New ones are told in spec.notices. UserError(kBadFile) where a file says another id: that would silently be another token.
void add_tokens_beside(TokenizerSpec& spec, const SpecialTokens& tokens);

}  // namespace snug
