// tokenizer.json, and what it does to a text: a file that was read encodes and decodes.
#include "formats/tokenizer/tokenizer_json.h"
#include "formats/tokenizer/tokenizer.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  fuzz::read_or_refuse([&] {
    const Tokenizer tokenizer(parse_tokenizer_json(fuzz::as_text(data, size), "t.json"));
    for (const char* text :
         {"Hello, world!  It's 12345\n\n <s>a b</s>", "gr\u00f6\u00dfer \u6771\u4eac \U0001F600\u0301 x"}) {
      const std::vector<int32_t> ids = tokenizer.encode(text);
      for (const int32_t id : ids) fuzz::check(tokenizer.id_to_token(id).has_value(), "ids are tokens");
      std::string decoded = tokenizer.decode(ids, false);
      decoded += tokenizer.decode(ids, true);
    }
  });
  return 0;
}
