#include "formats/dataset/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/file.h"

namespace snug {
namespace {

constexpr std::string_view kGzipMagic = "\x1F\x8B";
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(InputFile file) : ByteSource(file.path()), file_(std::move(file)) {}

  size_t read(std::span<char> out) override {
    const auto count =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), file_.size() - at_));
    if (count > 0) file_.read(at_, std::as_writable_bytes(out.first(count)));
    at_ += static_cast<int64_t>(count);
    return count;
  }
  int64_t bytes_read() const override { return at_; }
  void skip(int64_t count) override {
    if (count > file_.size() - at_)
      throw_user(ExitCode::kBadFile, "{}: is {} bytes; expected at least {}", path(), file_.size(),
                 at_ + count);
    at_ += count;
  }
  int64_t size() const { return file_.size(); }

 private:
  InputFile file_;
  int64_t at_ = 0;
};

// What both decompressors do with the file's bytes.
class PackedSource : public ByteSource {
 public:
  explicit PackedSource(PlainSource file)
      : ByteSource(file.path()), file_(std::move(file)), buffer_(kBufferBytes) {}
  int64_t bytes_read() const override { return file_.bytes_read(); }

 protected:
  // More of the file behind what is not used up, which must be nothing; false at its end.
  bool refill() {
    filled_ = file_.read(buffer_);
    used_ = 0;
    return filled_ > 0;
  }
  [[noreturn]] void broken(std::string_view why) const {
    throw_user(ExitCode::kBadFile, "{}: broken {} data before byte {}: {}", path(), kind(),
               file_.bytes_read(), why);
  }
  [[noreturn]] void truncated() const {
    throw_user(ExitCode::kBadFile, "{}: ends within a {} stream; the file is not whole", path(), kind());
  }
  virtual std::string_view kind() const = 0;

  PlainSource file_;
  std::vector<char> buffer_;
  size_t filled_ = 0, used_ = 0;
};

class GzipSource : public PackedSource {
 public:
  explicit GzipSource(PlainSource file) : PackedSource(std::move(file)) {
    // 16: a gzip header is expected.
    require(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "zlib refuses to begin");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<char> out) override {
    size_t done = 0;
    while (done < out.size()) {
      if (used_ == filled_ && !refill()) {
        if (open_) truncated();
        break;
      }
      if (!open_) {
        // Zeros behind the last stream are the padding of tapes and disks.
        if (buffer_[used_] == 0) {
          ++used_;
          continue;
        }
        if (inflateReset(&stream_) != Z_OK) broken("zlib refuses to begin again");
        open_ = true;
      }
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + used_);
      stream_.avail_in = static_cast<uInt>(filled_ - used_);
      const auto room = static_cast<uInt>(std::min<size_t>(out.size() - done, size_t{1} << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = room;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      used_ = filled_ - stream_.avail_in;
      done += room - stream_.avail_out;
      if (result == Z_STREAM_END)
        open_ = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        broken(stream_.msg != nullptr ? stream_.msg : "zlib gives no reason");
    }
    return done;
  }

 private:
  std::string_view kind() const override { return "gzip"; }

  z_stream stream_ = {};
  bool open_ = true;  // within a stream
};

class ZstdSource : public PackedSource {
 public:
  explicit ZstdSource(PlainSource file) : PackedSource(std::move(file)), stream_(ZSTD_createDCtx()) {
    require(stream_ != nullptr, "zstd refuses to begin");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, std::bit_width<uint64_t>(kMostWindowBytes) - 1);
  }
  ~ZstdSource() override { ZSTD_freeDCtx(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to = {.dst = out.data(), .size = out.size(), .pos = 0};
    while (to.pos < to.size) {
      // zstd may hold bytes that did not fit before; only when it gives none more input is needed.
      if (used_ == filled_ && !refill()) {
        if (!within_frame_) break;
      }
      ZSTD_inBuffer from = {.src = buffer_.data(), .size = filled_, .pos = used_};
      const size_t before = to.pos;
      const size_t result = ZSTD_decompressStream(stream_, &to, &from);
      if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        throw_user(ExitCode::kBadFile,
                   "{}: takes a window of more than {} MiB to read; expected at most that. Compress it again "
                   "without "
                   "--long and --ultra: zstd -dc --long=31 {} | zstd -o NEW.zst",
                   path(), kMostWindowBytes >> 20, file_name(path()));
      if (ZSTD_isError(result)) broken(ZSTD_getErrorName(result));
      within_frame_ = result != 0;
      if (from.size == 0 && to.pos == before && within_frame_) truncated();
      used_ = from.pos;
    }
    return to.pos;
  }

 private:
  std::string_view kind() const override { return "zstd"; }

  ZSTD_DCtx* stream_;
  bool within_frame_ = true;
};

}  // namespace

void ByteSource::skip(int64_t count) {
  std::vector<char> passed(kBufferBytes);
  while (count > 0) {
    const size_t got =
        read(std::span(passed).first(static_cast<size_t>(std::min<int64_t>(count, kBufferBytes))));
    if (got == 0)
      throw_user(ExitCode::kBadFile, "{}: ends {} bytes too early; expected the file it was before", path(),
                 count);
    count -= static_cast<int64_t>(got);
  }
}

namespace {

enum class Packing : uint8_t { kNone, kGzip, kZstd };

Packing packing_of(const InputFile& file) {
  std::string magic(static_cast<size_t>(std::min<int64_t>(file.size(), 4)), '\0');
  file.read(0, std::as_writable_bytes(std::span(magic)));
  if (magic.starts_with(kGzipMagic)) return Packing::kGzip;
  // Frames that decoders pass over (pzstd, seekable files) may come first: 0x184D2A50 to 5F.
  const bool skippable = magic.size() == 4 && magic.substr(1) == "\x2A\x4D\x18" && (magic[0] & 0xF0) == 0x50;
  return magic == kZstdMagic || skippable ? Packing::kZstd : Packing::kNone;
}

}  // namespace

bool is_packed(const std::string& path) { return packing_of(InputFile(path)) != Packing::kNone; }

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  PlainSource file{InputFile(path)};
  const Packing packing = packing_of(InputFile(path));
  if (packing == Packing::kGzip) return std::make_unique<GzipSource>(std::move(file));
  if (packing == Packing::kZstd) return std::make_unique<ZstdSource>(std::move(file));
  for (const std::string_view ending : {".gz", ".zst"})
    if (path.ends_with(ending))
      throw_user(ExitCode::kBadFile, "{}: begins like neither gzip nor zstd; expected a compressed file",
                 path);
  return std::make_unique<PlainSource>(std::move(file));
}

}  // namespace snug
