// Encodes a text in one thread and says how long it took: snug_bench_tokenizer TOKENIZER TEXT [TURNS].
// One line of JSON a turn, so that a caller can run another encoder between turns: it waits for a line on standard
// input before each.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/errors.h"
#include "base/file.h"
#include "formats/tokenizer/tokenizer.h"

int main(int count, char** values) {
  using Clock = std::chrono::steady_clock;
  if (count < 3) {
    std::fprintf(stderr, "usage: snug_bench_tokenizer TOKENIZER TEXT [TURNS]\n");
    return 2;
  }
  try {
    const auto begin = Clock::now();
    const auto tokenizer = snug::Tokenizer::load(values[1]);
    const double load = std::chrono::duration<double>(Clock::now() - begin).count();
    const std::string text = snug::read_small_file(values[2], snug::Bytes(int64_t{2} << 30));
    const int turns = count > 3 ? std::atoi(values[3]) : 3;
    std::string line;
    for (int turn = 0; turn < turns && std::getline(std::cin, line); ++turn) {
      const auto start = Clock::now();
      snug::TextEncoder encoder(*tokenizer, {.add_special_tokens = false});
      std::vector<int32_t> ids;
      encoder.feed(text, ids);
      encoder.finish(ids);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      std::printf("{\"load_seconds\": %.4f, \"seconds\": %.4f, \"bytes\": %zu, \"ids\": %zu}\n", load, seconds, text.size(),
                  ids.size());
      std::fflush(stdout);
    }
  } catch (const snug::UserError& error) {
    std::fprintf(stderr, "snug_bench_tokenizer: %s\n", error.what());
    return 3;
  }
  return 0;
}
