// A safetensors file. Input that begins with { is the header alone: its length and 16 bytes of data are put around it, since what is
// drawn at random seldom has the right length.
#include <cstring>
#include <span>
#include <vector>

#include "formats/safetensors.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  static fuzz::MemoryFile bytes;
  std::string text(fuzz::as_text(data, size));
  if (text.starts_with('{')) {
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> 8 * i & 0xFF);
    text = length + text + std::string(16, 'x');
  }
  bytes.set(text);
  fuzz::read_or_refuse([&] {
    const SafetensorsFile file(bytes.path());
    int64_t total = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      fuzz::check(entry.begin == total && entry.end >= entry.begin, "tensors follow one another");
      fuzz::check(entry.bytes() <= static_cast<int64_t>(text.size()), "a tensor is in the file");
      total = entry.end;
      std::vector<std::byte> values(static_cast<size_t>(entry.bytes()));
      file.read(entry, 0, values);
      fuzz::check(file.find(entry.name) != nullptr, "a tensor is found by its name");
    }
  });
  return 0;
}
