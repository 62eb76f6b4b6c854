// Token shards of both widths, and text.
#include <vector>

#include "formats/token_shard.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  static fuzz::MemoryFile file;
  constexpr int64_t kVocabulary = 300;
  file.set(fuzz::as_text(data, size));
  const auto read = [&](const TokenStream& stream) {
    fuzz::check(stream.size() >= 1, "a stream has tokens");
    std::vector<int32_t> ids(static_cast<size_t>(stream.size()));
    fuzz::check(ids.size() <= size + 1, "a token has bytes");
    stream.read(0, ids);
    for (const int32_t id : ids) fuzz::check(id >= 0 && id < kVocabulary, "ids are in the vocabulary");
  };
  for (const TokenDType dtype : {TokenDType::kUint16, TokenDType::kUint32})
    fuzz::read_or_refuse([&] { read(*open_token_shard(file.path(), dtype, kVocabulary)); });
  fuzz::read_or_refuse([&] { read(*open_text(file.path(), kVocabulary)); });
  return 0;
}
