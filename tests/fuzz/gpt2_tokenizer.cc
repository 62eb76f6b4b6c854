// GPT-2's vocab.json, merges.txt and tokenizer_config.json, separated by bytes of value 0.
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  const std::string_view text = fuzz::as_text(data, size);
  const size_t first = std::min(text.find('\0'), size), second = std::min(text.find('\0', first + 1), size);
  const auto part = [&](size_t begin, size_t end) {
    return begin < end ? text.substr(begin, end - begin) : std::string_view();
  };
  fuzz::read_or_refuse([&] {
    const std::string_view config = part(second + 1, size);
    const Tokenizer tokenizer(
        parse_gpt2_files(part(0, first), "vocab.json", part(first + 1, second), "merges.txt",
                         config.empty() ? TokenizerConfig() : parse_tokenizer_config(config, "config")));
    std::string decoded =
        tokenizer.decode(tokenizer.encode("Hello, world!  It's 12345\n\n<|endoftext|> a b"), false);
  });
  return 0;
}
