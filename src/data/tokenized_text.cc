#include "data/tokenized_text.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <vector>

#include "base/errors.h"
#include "base/file.h"

namespace snug {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Ids under the text's own name.
class TokenizedText : public TokenStream {
 public:
  TokenizedText(std::string path, std::unique_ptr<TokenStream> ids)
      : path_(std::move(path)), ids_(std::move(ids)) {}

  const std::string& path() const override { return path_; }
  int64_t size() const override { return ids_->size(); }
  void read(int64_t first, std::span<int32_t> out) const override { ids_->read(first, out); }

 private:
  std::string path_;
  std::unique_ptr<TokenStream> ids_;
};

// A file that goes away with this object; what was opened of it stays readable.
class TemporaryIds {
 public:
  explicit TemporaryIds(const std::string& directory)
      : path_(join_path(directory, fmt::format("ids-{}-{}", ::getpid(), next_++))),
        file_(path_, OutputFile::Mode::kReplace) {}
  ~TemporaryIds() { remove_all(path_); }
  TemporaryIds(const TemporaryIds&) = delete;
  TemporaryIds& operator=(const TemporaryIds&) = delete;

  const std::string& path() const { return path_; }
  OutputFile& file() { return file_; }

 private:
  static inline std::atomic<int> next_ = 0;
  std::string path_;
  OutputFile file_;
};

}  // namespace

std::unique_ptr<TokenStream> open_tokenized_text(const std::string& path, const Tokenizer& tokenizer,
                                                 std::optional<int32_t> end_of_text, int64_t vocabulary,
                                                 const std::string& directory) {
  const InputFile text(path);
  make_directories(directory);
  TemporaryIds ids_file(directory);
  TextEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  std::optional<int32_t> last;
  const auto write = [&] {
    if (ids.empty()) return;
    last = ids.back();
    ids_file.file().write(std::as_bytes(std::span(ids)));
    ids.clear();
  };
  std::string part;
  bool any = false;
  for (int64_t at = 0; at < text.size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min(kReadBytes, text.size() - at)));
    text.read(at, std::as_writable_bytes(std::span(part)));
    std::string_view bytes = part;
    if (at == 0 && bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
    any = any || !bytes.empty();
    encoder.feed(bytes, ids);
    write();
  }
  if (!any)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected text", path,
               text.size() == 0 ? "empty" : "a byte order mark and nothing else");
  encoder.finish(ids);
  write();
  if (end_of_text && last != end_of_text) ids.push_back(*end_of_text);
  write();
  ids_file.file().close();
  if (ids_file.file().position() == 0)
    throw_user(ExitCode::kBadFile, "{}: {} makes no tokens of it", path, tokenizer.spec().file);
  // 4 bytes an id: the first four are never the magic number of another kind, which are above any id.
  return std::make_unique<TokenizedText>(path,
                                         open_token_shard(ids_file.path(), TokenDType::kUint32, vocabulary));
}

}  // namespace snug
