#include "formats/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/file.h"
#include "formats/byte_tokenizer.h"

namespace snug {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie in the file");

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr size_t kBufferBytes = size_t{64} * 1024;
constexpr std::array<unsigned char, 3> kByteOrderMark = {0xEF, 0xBB, 0xBF};

// llm.c's kinds of header.
struct HeaderKind {
  int32_t magic;
  int32_t version;
  TokenDType dtype;
};
constexpr std::array<HeaderKind, 2> kHeaderKinds = {
    {{20240520, 1, TokenDType::kUint16}, {20240801, 7, TokenDType::kUint32}}};
// Other files of llm.c, which hold no training tokens; taken for headerless ones they would give nonsense.
constexpr std::array<std::pair<int32_t, std::string_view>, 3> kOtherMagics = {
    {{20240522, "an llm.c evaluation file"},
     {20240326, "an llm.c model"},
     {20240527, "an llm.c training state"}}};

int64_t width_bytes(TokenDType dtype) { return dtype == TokenDType::kUint16 ? 2 : 4; }

void check_range(const std::string& path, int64_t size, int64_t first, size_t count) {
  require(first >= 0 && first <= size && static_cast<int64_t>(count) <= size - first,
          "{}: tokens [{}, +{}) of {}", path, first, count, size);
}

class ShardStream : public TokenStream {
 public:
  ShardStream(InputFile file, int64_t data_start, int64_t size, TokenDType dtype, int64_t vocabulary)
      : file_(std::move(file)),
        data_start_(data_start),
        size_(size),
        dtype_(dtype),
        vocabulary_(vocabulary) {}

  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return size_; }

  void read(int64_t first, std::span<int32_t> out) const override {
    check_range(path(), size_, first, out.size());
    if (dtype_ == TokenDType::kUint16)
      read_as<uint16_t>(first, out);
    else
      read_as<uint32_t>(first, out);
  }

 private:
  template <typename Id>
  void read_as(int64_t first, std::span<int32_t> out) const {
    std::array<Id, kBufferBytes / sizeof(Id)> buffer;
    for (size_t done = 0; done < out.size();) {
      const auto part = std::span(buffer).first(std::min(buffer.size(), out.size() - done));
      const int64_t position = first + static_cast<int64_t>(done);
      file_.read(data_start_ + position * static_cast<int64_t>(sizeof(Id)), std::as_writable_bytes(part));
      for (size_t i = 0; i < part.size(); ++i) {
        if (static_cast<int64_t>(part[i]) >= vocabulary_)
          throw_user(ExitCode::kBadFile,
                     "{}: token {} has id {}; expected less than the model's vocab_size ({}){}", path(),
                     position + static_cast<int64_t>(i), part[i], vocabulary_,
                     path().ends_with(".bin") ? "" : ": is it text? --dataset_format text reads it so");
        out[done + i] = static_cast<int32_t>(part[i]);
      }
      done += part.size();
    }
  }

  InputFile file_;
  int64_t data_start_;
  int64_t size_;
  TokenDType dtype_;
  int64_t vocabulary_;
};

class TextStream : public TokenStream {
 public:
  TextStream(InputFile file, int64_t text_start) : file_(std::move(file)), text_start_(text_start) {}

  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return file_.size() - text_start_ + 1; }

  void read(int64_t first, std::span<int32_t> out) const override {
    check_range(path(), size(), first, out.size());
    const bool reaches_end = !out.empty() && first + static_cast<int64_t>(out.size()) == size();
    const auto text = reaches_end ? out.first(out.size() - 1) : out;
    if (reaches_end) out.back() = kEndOfTextId;
    std::array<unsigned char, kBufferBytes> buffer;
    for (size_t done = 0; done < text.size();) {
      const auto part = std::span(buffer).first(std::min(buffer.size(), text.size() - done));
      file_.read(text_start_ + first + static_cast<int64_t>(done), std::as_writable_bytes(part));
      std::copy(part.begin(), part.end(), text.begin() + static_cast<std::ptrdiff_t>(done));
      done += part.size();
    }
  }

 private:
  InputFile file_;
  int64_t text_start_;
};

// What Megatron's index beside a shard says of its tokens; none where there is no such index.
std::optional<TokenDType> megatron_dtype(const std::string& path) {
  constexpr std::string_view kShard = ".bin", kMagic("MMIDIDX\0\0", 9);
  if (!path.ends_with(kShard)) return std::nullopt;
  const std::string index_path = path.substr(0, path.size() - kShard.size()) + ".idx";
  if (!file_exists(index_path)) return std::nullopt;
  const InputFile index(index_path);
  std::array<char, 18> begin{};  // magic, 8 bytes of version, code
  if (index.size() < static_cast<int64_t>(begin.size())) return std::nullopt;
  index.read(0, std::as_writable_bytes(std::span(begin)));
  if (std::string_view(begin.data(), kMagic.size()) != kMagic) return std::nullopt;
  switch (begin.back()) {
    case 4:  // int32, never negative
      return TokenDType::kUint32;
    case 8:
      return TokenDType::kUint16;
    default:
      throw_user(ExitCode::kBadFile,
                 "{}: says that the tokens are of type {}; expected 8 (uint16) or 4 (int32)", index_path,
                 static_cast<int>(begin.back()));
  }
}

// Other files that are called .bin or are forced to be shards, by how they begin.
struct OtherContent {
  std::string_view magic, what;
};
constexpr std::array<OtherContent, 5> kOtherContents = {{
    {"\x93NUMPY",
     "an array of NumPy's, whose header is no tokens; expected its ids alone: "
     "numpy.load(FILE).ravel().tofile(NEW)"},
    {"PK\x03\x04", "a zip archive (of NumPy's or PyTorch's, perhaps); expected a shard of tokens"},
    {"%PDF", "a PDF document; expected a shard of tokens"},
    {std::string_view("\x1F\x8B\x08\x00", 4), "packed with gzip; expected shards as they lie: gzip -d"},
    {"\x28\xB5\x2F\xFD", "packed with zstd; expected shards as they lie: zstd -d"},
}};

// Refuses ids without a header that cannot be what they are read as: files of something else, text, and ids of another width, whose upper
// halves are regular zeros.
void refuse_other_content(const InputFile& file, TokenDType dtype) {
  std::string bytes(static_cast<size_t>(std::min<int64_t>(file.size(), kBufferBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  for (const OtherContent& other : kOtherContents)
    if (bytes.starts_with(other.magic)) throw_user(ExitCode::kBadFile, "{}: is {}", file.path(), other.what);
  constexpr size_t kTextBytes = 256, kFewestWide = 8;
  const auto is_text = [](unsigned char c) { return (c >= 0x20 && c < 0x7F) || (c >= '\t' && c <= '\r'); };
  if (bytes.size() >= kTextBytes && std::all_of(bytes.begin(), bytes.end(), is_text))
    throw_user(
        ExitCode::kBadFile,
        "{}: is text (its first {} bytes are ASCII); expected a shard of tokens. --dataset_format text "
        "reads it so",
        file.path(), bytes.size());
  // By place of an id among groups of four: whether all are zero.
  const auto width = static_cast<size_t>(width_bytes(dtype));
  const size_t count = bytes.size() / width;
  if (count < 2 * kFewestWide) return;
  std::array<bool, 4> zero = {true, true, true, true};
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < width; ++k) zero[i % 4] = zero[i % 4] && bytes[i * width + k] == '\0';
  const auto refuse = [&](std::string_view places, int64_t read_as, std::string_view advice) {
    throw_user(ExitCode::kBadFile,
               "{}: {} of its first {} ids are all 0, as when {}-byte ids are read as {}-byte ones; {}",
               file.path(), places, count, read_as, width, advice);
  };
  if (dtype == TokenDType::kUint16 && !zero[0] && zero[1] && zero[2] && zero[3])
    refuse("three of every four", static_cast<int64_t>(4 * width),
           "expected ids of 2 or 4 bytes: numpy.fromfile(FILE, dtype='<i8').astype('<u4').tofile(NEW) and "
           "--token_dtype uint32");
  if (zero[1] && zero[3] && !(zero[0] && zero[2]))
    refuse("every second one", static_cast<int64_t>(2 * width),
           dtype == TokenDType::kUint16
               ? "expected uint16 ids (--token_dtype uint32 reads ids of 4 bytes)"
               : "expected uint32 ids: numpy.fromfile(FILE, dtype='<i8').astype('<u4').tofile(NEW)");
  if (zero[0] && zero[2] && !(zero[1] && zero[3]))
    refuse("every second one, the first among them,", static_cast<int64_t>(2 * width),
           "or big-endian ones; expected little-endian ids of the width that --token_dtype says");
}

// Looks at the first tokens, so that a file of something else is refused before a run begins.
std::unique_ptr<TokenStream> with_good_begin(std::unique_ptr<TokenStream> stream) {
  std::vector<int32_t> first(std::min(kBufferBytes / sizeof(uint16_t), static_cast<size_t>(stream->size())));
  stream->read(0, first);
  return stream;
}

}  // namespace

std::optional<TokenDType> parse_token_dtype(std::string_view name) {
  for (TokenDType dtype : {TokenDType::kUint16, TokenDType::kUint32})
    if (token_dtype_name(dtype) == name) return dtype;
  return std::nullopt;
}

std::string_view token_dtype_name(TokenDType dtype) {
  return dtype == TokenDType::kUint16 ? "uint16" : "uint32";
}

TokenDType default_token_dtype(int64_t vocabulary) {
  return vocabulary <= 65536 ? TokenDType::kUint16 : TokenDType::kUint32;
}

std::unique_ptr<TokenStream> open_token_shard(const std::string& path, TokenDType dtype, int64_t vocabulary) {
  require(vocabulary > 0, "{}: a vocabulary of {} ids", path, vocabulary);
  refuse_git_lfs_pointer(path);
  InputFile file(path);
  if (file.size() == 0) throw_user(ExitCode::kBadFile, "{}: is empty; expected tokens", path);
  int32_t magic = 0;
  if (file.size() >= 4) file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  for (const auto& [other, what] : kOtherMagics)
    if (magic == other)
      throw_user(ExitCode::kBadFile, "{}: is {}; expected a shard of training tokens", path, what);
  for (const HeaderKind& kind : kHeaderKinds) {
    if (magic != kind.magic) continue;
    if (file.size() < kHeaderBytes)
      throw_user(ExitCode::kBadFile, "{}: is {} bytes; expected at least llm.c's header of {}", path,
                 file.size(), kHeaderBytes);
    std::array<int32_t, 3> header{};
    file.read(0, std::as_writable_bytes(std::span(header)));
    const auto [unused_magic, version, count] = header;
    if (version != kind.version)
      throw_user(ExitCode::kBadFile, "{}: llm.c shard of version {}; expected version {} for magic {}", path,
                 version, kind.version, kind.magic);
    if (count <= 0)
      throw_user(ExitCode::kBadFile, "{}: its header counts {} tokens; expected at least 1", path, count);
    const int64_t expected = kHeaderBytes + count * width_bytes(kind.dtype);
    if (file.size() != expected)
      throw_user(ExitCode::kBadFile,
                 "{}: is {} bytes; expected {} for the {} {} tokens that its header counts", path,
                 file.size(), expected, count, token_dtype_name(kind.dtype));
    return with_good_begin(
        std::make_unique<ShardStream>(std::move(file), kHeaderBytes, count, kind.dtype, vocabulary));
  }
  dtype = megatron_dtype(path).value_or(dtype);
  refuse_other_content(file, dtype);
  const int64_t width = width_bytes(dtype);
  if (file.size() % width != 0)
    throw_user(ExitCode::kBadFile,
               "{}: is {} bytes; expected a multiple of {} ({} tokens; see --token_dtype)", path, file.size(),
               width, token_dtype_name(dtype));
  const int64_t count = file.size() / width;
  return with_good_begin(std::make_unique<ShardStream>(std::move(file), 0, count, dtype, vocabulary));
}

std::unique_ptr<TokenStream> open_text(const std::string& path, int64_t vocabulary) {
  if (vocabulary < kByteVocabulary)
    throw_user(ExitCode::kBadFile,
               "{}: text needs {} ids (256 bytes and end of text); the model's vocab_size is {}", path,
               kByteVocabulary, vocabulary);
  InputFile file(path);
  int64_t start = 0;
  if (file.size() >= static_cast<int64_t>(kByteOrderMark.size())) {
    std::array<unsigned char, kByteOrderMark.size()> beginning{};
    file.read(0, std::as_writable_bytes(std::span(beginning)));
    if (beginning == kByteOrderMark) start = kByteOrderMark.size();
  }
  if (file.size() == start)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected text", path,
               start == 0 ? "empty" : "a byte order mark and nothing else");
  return std::make_unique<TextStream>(std::move(file), start);
}

}  // namespace snug
