// data/tokenized_text.h — a text file as the ids of a trained tokenizer
//
// The text, which may be compressed, is encoded once, from front to back, into a file of prepared samples (data/sample_cache.h), which is then read like a token
// shard: memory stays bounded whatever the size of the text. One that was stopped goes on behind the last whole segment.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/xxhash.h"
#include "data/prepare_samples.h"
#include "data/sample_cache.h"
#include "formats/token_shard.h"
#include "formats/tokenizer/tokenizer.h"

namespace snug {

struct TextToOpen {
  std::string path;
  const Tokenizer& tokenizer;
  // Of what else the ids follow from: the tokenizer's files.
  Fingerprint tokenizer_print;
  std::optional<int32_t> end_of_text;
  int64_t vocabulary;
};

// The ids of the text with what the tokenizer puts around it, then `end_of_text` unless they end with it already.
// A UTF-8 byte order mark at the beginning is passed over. Throws UserError: kBadFile for an empty text and for one that the
// tokenizer cannot split, kIo where the cache cannot be written.
std::unique_ptr<TokenStream> open_tokenized_text(
    const TextToOpen& text, const SampleCache& cache,
    const std::function<void(const PreparationProgress&)>& progress = {});

}  // namespace snug
