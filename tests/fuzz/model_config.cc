// config.json: each family's reader, and the choice between them with what a model directory refuses. tokenizer_config.json.
#include <cstdlib>

#include "base/file.h"
#include "formats/model_directory.h"
#include "formats/tokenizer_config.h"
#include "fuzz_target.h"

namespace {

// A directory whose config.json is the input.
std::string make_directory(const std::string& config) {
  std::string path = "/tmp/snug-fuzz-XXXXXX";
  snug::fuzz::check(
      ::mkdtemp(path.data()) != nullptr && ::symlink(config.c_str(), (path + "/config.json").c_str()) == 0,
      "a directory can be made");
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  static fuzz::MemoryFile file;
  static const std::string directory = make_directory(file.path());
  static const int removes = std::atexit([] { remove_all(directory); });
  fuzz::check(removes == 0, "atexit");
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::read_or_refuse([&] { parse_gpt2_config(parse_json(text, "f"), "f"); });
  fuzz::read_or_refuse([&] { parse_llama_config(parse_json(text, "f"), "f"); });
  file.set(text);
  fuzz::read_or_refuse([&] {
    const ModelDirectory model = ModelDirectory::open(directory);
    fuzz::check(model.vocab_size() > 0, "a vocabulary has ids");
    for (const int32_t id : model.end_of_text_ids()) fuzz::check(id >= 0, "an end of text is an id");
  });
  fuzz::read_or_refuse([&] {
    const TokenizerConfig config = parse_tokenizer_config(text, "f");
    for (const NamedToken& named : config.tokens.named)
      fuzz::check(config.special_token(named.name) != nullptr, "a token that is named is there");
  });
  return 0;
}
