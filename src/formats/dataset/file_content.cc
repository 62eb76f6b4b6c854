#include "formats/dataset/file_content.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/file.h"
#include "formats/dataset/byte_source.h"

namespace snug {
namespace {

constexpr size_t kSeenBytes = size_t{64} << 10;

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lowered;
}

// A name in small letters, without .gz and .zst.
std::string unpacked_name(std::string_view path) {
  std::string name = lower(file_name(path));
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) {
      name.resize(name.size() - packed.size());
      break;
    }
  return name;
}

// The first bytes of a file, unpacked.
std::string beginning(const std::string& path) {
  const auto source = open_byte_source(path);
  std::string bytes(kSeenBytes, '\0');
  size_t filled = 0;
  while (const size_t got = source->read(std::span(bytes).subspan(filled))) filled += got;
  bytes.resize(filled);
  return bytes;
}

// Files that are known by how they begin, what they are called, and what makes data of them.
struct Known {
  std::string_view magic, what, advice;
};
constexpr std::string_view kToText = "expected its text as UTF-8";
constexpr std::array<Known, 11> kKnown = {{
    {"\x93NUMPY", "an array of NumPy's",
     "expected its ids without a header: python -c \"import numpy; "
     "numpy.load('ARRAY.npy').ravel().astype('<u2').tofile('IDS.bin')\" ('<u4' for ids from 65536 on)"},
    {"%PDF", "a PDF document", "expected its text: pdftotext FILE.pdf FILE.txt"},
    {"PK\x03\x04", "a zip archive (or what is made of one: .npz, .docx, .pt)", "expected what is in it"},
    {"\x1F\x8B", "gzip within gzip", kToText},
    {"\xFD"
     "7zXZ",
     "an xz archive", "expected it unpacked: xz -d"},
    {"BZh91AY&SY", "a bzip2 archive", "expected it unpacked: bzip2 -d"},
    {"\x89HDF", "an HDF5 file", "expected text, JSON or tokens"},
    {"PAR1\x15", "a parquet file", "expected rows of JSON in a file named .jsonl"},
    {std::string_view("ARROW1\0\0", 8), "an Arrow file", "expected rows of JSON in a file named .jsonl"},
    {"\xFF\xFE", "text in UTF-16", "expected UTF-8: iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", "text in UTF-16", "expected UTF-8: iconv -f UTF-16 -t UTF-8"},
}};

const Known* known_by(std::string_view bytes) {
  for (const Known& known : kKnown)
    if (bytes.starts_with(known.magic)) return &known;
  return nullptr;
}

// llm.c's numbers: shards, and files that open_token_shard refuses by name.
bool has_shard_header(std::string_view bytes) {
  constexpr std::array<int32_t, 5> kMagics = {20240520, 20240801, 20240522, 20240326, 20240527};
  int32_t magic = 0;
  if (bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  return std::find(kMagics.begin(), kMagics.end(), magic) != kMagics.end();
}

// Bytes of the UTF-8 character at `at`; 0 for what is none, −1 for one that the end cuts off.
int character_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const int length = first >= 0xC2 && first < 0xE0   ? 2
                     : first >= 0xE0 && first < 0xF0 ? 3
                     : first >= 0xF0 && first < 0xF5 ? 4
                                                     : 0;
  for (int i = 1; i < length; ++i) {
    const size_t place = at + static_cast<size_t>(i);
    if (place == text.size()) return -1;
    unsigned char least = 0x80, most = 0xBF;
    if (i == 1 && first == 0xE0) least = 0xA0;  // no longer form of a shorter character,
    if (i == 1 && first == 0xF0) least = 0x90;
    if (i == 1 && first == 0xED) most = 0x9F;  // no surrogate, nothing beyond Unicode
    if (i == 1 && first == 0xF4) most = 0x8F;
    if (byte(place) < least || byte(place) > most) return 0;
  }
  return length;
}

// The first byte that no text has; none where the beginning is text. `cut`: more follows.
std::optional<size_t> no_text_at(std::string_view bytes, bool cut) {
  for (size_t at = 0; at < bytes.size();) {
    const auto c = static_cast<unsigned char>(bytes[at]);
    const bool control = (c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1B) || c == 0x7F;
    const int length = control ? 0 : character_bytes(bytes, at);
    if (length < 0 && cut) return std::nullopt;
    if (length <= 0) return at;
    at += static_cast<size_t>(length);
  }
  return std::nullopt;
}

bool looks_like_rows(std::string_view text) {
  const auto next = [&] {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
      text.remove_prefix(1);
    const char c = text.empty() ? '\0' : text.front();
    if (!text.empty()) text.remove_prefix(1);
    return c;
  };
  char c = next();
  if (c == '[') c = next();
  return c == '{' && next() == '"';
}

constexpr std::string_view kWords =
    "--dataset_format text reads it as text, shards as tokens, and json_text, alpaca, messages, … as rows";

}  // namespace

Ending ending_of(std::string_view path) {
  const std::string name = unpacked_name(path);
  const auto is_one_of = [&](std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](std::string_view end) { return name.ends_with(end); });
  };
  if (is_one_of({".txt", ".text"})) return Ending::kText;
  if (is_one_of({".md", ".markdown", ".rst"})) return Ending::kDocument;
  if (is_one_of({".json", ".jsonl", ".ndjson"})) return Ending::kJson;
  if (is_one_of({".bin"})) return Ending::kShard;
  if (is_one_of({".parquet", ".arrow", ".feather"})) return Ending::kArrow;
  if (is_one_of({".csv", ".tsv"})) return Ending::kTable;
  return name.find('.', 1) == std::string::npos ? Ending::kNone : Ending::kOther;
}

UnnamedContent unnamed_content(const std::string& path) {
  const std::string bytes = beginning(path);
  if (has_shard_header(bytes)) return UnnamedContent::kShards;
  if (const Known* known = known_by(bytes))
    throw_user(ExitCode::kBadFile, "{}: is {}; {}", path, known->what, known->advice);
  if (bytes.empty()) throw_user(ExitCode::kBadFile, "{}: is empty; expected text, JSON or tokens", path);
  const std::optional<size_t> wrong = no_text_at(bytes, bytes.size() == kSeenBytes);
  if (ending_of(path) == Ending::kOther)
    throw_user(ExitCode::kBadFile,
               "{}: its ending says neither text, rows nor tokens{}; expected .txt, .jsonl, .bin or one of "
               "their kind ({})",
               path, wrong ? "" : ", though it begins with text", kWords);
  if (wrong)
    throw_user(ExitCode::kBadFile,
               "{}: has no ending, and its byte {} is 0x{:02x}, which is no UTF-8 text; expected text, or an "
               "ending that says what it holds ({})",
               path, *wrong, static_cast<unsigned char>(bytes[*wrong]), kWords);
  if (looks_like_rows(bytes))
    throw_user(ExitCode::kBadFile,
               "{}: has no ending and begins like rows of JSON; expected the ending .jsonl or .json ({})",
               path, kWords);
  return UnnamedContent::kText;
}

void refuse_what_is_no_text(const std::string& path) {
  const std::string bytes = beginning(path);
  if (const Known* known = known_by(bytes))
    throw_user(ExitCode::kBadFile, "{}: is {}, not text; {}", path, known->what, known->advice);
  if (has_shard_header(bytes))
    throw_user(ExitCode::kBadFile, "{}: begins with the header of llm.c's tokens; expected text", path);
}

void refuse_table(const std::string& path, Ending ending) {
  const std::string name = file_name(path);
  const std::string stem = name.substr(0, name.find('.'));
  if (ending == Ending::kTable)
    throw_user(ExitCode::kBadFile,
               "{}: is a table; expected text, JSON or tokens. Convert it with: python -c \"import pandas; "
               "pandas.read_csv('{}'{}).to_json('{}.jsonl', orient='records', lines=True)\"",
               path, name, lower(name).find(".tsv") != std::string::npos ? ", sep='\\t'" : "", stem);
  const std::string_view kind_name = lower(name).ends_with(".parquet") ? "parquet" : "arrow";
  throw_user(
      ExitCode::kBadFile,
      "{}: is {}; expected text, JSON or tokens. Convert it with: python -c \"from datasets import Dataset; "
      "Dataset.from_{}('{}').to_json('{}.jsonl')\"",
      path, kind_name, kind_name == "parquet" ? "parquet" : "file", name, stem);
}

}  // namespace snug
