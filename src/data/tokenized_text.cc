#include "data/tokenized_text.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/file.h"
#include "formats/dataset/byte_source.h"

namespace snug {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// Changes when the same text gives other ids.
constexpr std::string_view kForm = "text 2";

// Ids under the text's own name. How they are divided into samples does not matter.
class TokenizedText : public TokenStream {
 public:
  TokenizedText(std::string path, std::shared_ptr<const SampleFile> ids)
      : path_(std::move(path)), ids_(std::move(ids)) {}

  const std::string& path() const override { return path_; }
  int64_t size() const override { return ids_->totals().ids; }
  void read(int64_t first, std::span<int32_t> out) const override { ids_->read_ids(first, out); }

 private:
  std::string path_;
  std::shared_ptr<const SampleFile> ids_;
};

// Where encoding goes on behind a segment, as the file of samples keeps it beside the encoder's state.
struct TextCursor {
  int64_t position = 0;  // bytes of the unpacked text that the encoder was given
  int64_t last_id = -1;
  bool is_end = false;  // nothing is left to be written

  static TextCursor from(const RowCursor& cursor) { return {cursor[0], cursor[1], cursor[2] != 0}; }
  RowCursor row_cursor() const { return {position, last_id, is_end ? 1 : 0}; }
};

void encode(const TextToOpen& open, SampleWriter& writer,
            const std::function<void(const PreparationProgress&)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<ByteSource> text = open_byte_source(open.path);
  const int64_t size = InputFile(open.path).size();
  TextEncoder encoder(open.tokenizer);
  TextCursor cursor;
  if (writer.kept_until() && encoder.restore(writer.kept_state())) {
    cursor = TextCursor::from(*writer.kept_until());
    text->skip(cursor.position);
  } else {
    writer.start_over();
  }
  PreparationProgress told{.ids = writer.kept().ids, .all_bytes = size, .kept_bytes = text->bytes_read()};
  std::vector<int32_t> ids;
  const auto write = [&] {
    if (ids.empty()) return;
    cursor.last_id = ids.back();
    told.ids += static_cast<int64_t>(ids.size());
    writer.set_state(encoder.state());
    writer.add(ids, {}, true, cursor.row_cursor());
    ids.clear();
  };
  std::string part;
  bool any = cursor.position > 0;
  while (!cursor.is_end) {
    part.resize(kReadBytes);
    size_t filled = 0;
    while (const size_t got = text->read(std::span(part).subspan(filled))) filled += got;
    if (filled == 0) break;
    std::string_view bytes(part.data(), filled);
    if (cursor.position == 0 && bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
    cursor.position += static_cast<int64_t>(filled);
    any = any || !bytes.empty();
    encoder.feed(bytes, ids);
    write();
    told.bytes = text->bytes_read();
    told.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (progress) progress(told);
  }
  if (cursor.is_end) return;
  if (!any)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected text", open.path,
               size == 0 ? "empty" : "a byte order mark and nothing else");
  encoder.finish(ids);
  const int64_t last_id = ids.empty() ? cursor.last_id : ids.back();
  if (open.end_of_text && last_id != *open.end_of_text) ids.push_back(*open.end_of_text);
  cursor.is_end = true;
  write();
  if (cursor.last_id < 0)
    throw_user(ExitCode::kBadFile, "{}: {} makes no tokens of it", open.path, open.tokenizer.spec().file);
}

}  // namespace

std::unique_ptr<TokenStream> open_tokenized_text(
    const TextToOpen& text, const SampleCache& cache,
    const std::function<void(const PreparationProgress&)>& progress) {
  Fingerprinter key;
  key.add_field(kForm);
  key.add_field(sample_form());
  key.add_field(to_string(text.tokenizer_print));
  key.add_field(fmt::format("{} {}", text.end_of_text.value_or(-1), text.vocabulary));
  add_file(key, text.path);
  SampleCache::Found found =
      cache.find(key.value(), text.vocabulary, [&](SampleWriter& writer) { encode(text, writer, progress); });
  return std::make_unique<TokenizedText>(text.path, std::move(found.samples));
}

}  // namespace snug
