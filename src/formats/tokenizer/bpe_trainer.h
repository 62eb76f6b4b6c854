// formats/tokenizer/bpe_trainer.h — a byte-level BPE from text
//
// Text is split as GPT-2 does it, line by line, and the pieces are counted; then the pair of neighbours that occurs
// most often is merged, of equal ones the pair with the smallest ids, until the vocabulary is full. These are
// the steps and the ties of the `tokenizers` library's BpeTrainer on the same files (Tokenizer.train), so that the
// merges are the same. Text that is not UTF-8 is read as Python's errors="replace" reads it.
//
// Memory is that of the distinct pieces, whatever the size of the text; it is counted and bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace snug {

struct BpeTraining {
  int64_t vocabulary = 32'000;  // tokens in all; never fewer than the special ones and 256
  int64_t min_frequency = 0;    // pairs that occur less often are not merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // they get the first ids
  int threads = 1;
  Bytes memory = Bytes(int64_t{2} << 30);  // what pieces and pairs may take
};

struct BpeTrainingResult {
  std::string tokenizer_json;
  int64_t bytes = 0, pieces = 0, distinct_pieces = 0;
  int64_t tokens = 0, merges = 0;
};

// Throws UserError: kUsage for options that cannot be, kBadFile for a file that cannot be read or texts without any
// piece, kDoesNotFit when the distinct pieces take more than `memory`.
BpeTrainingResult train_bpe(const std::vector<std::string>& files, const BpeTraining& training);

}  // namespace snug
