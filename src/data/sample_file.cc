#include "data/sample_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/errors.h"
#include "base/utf8.h"

namespace snug {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 4;
constexpr int64_t kSegmentIds = int64_t{1} << 20, kSegmentSamples = int64_t{1} << 17;
constexpr uint32_t kDocumentBit = uint32_t{1} << 31;
constexpr size_t kMessageBytes = 1000, kAllMessageBytes = SkippedRows::kMostMessages * (kMessageBytes + 1);
constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr uint64_t kHeaderMagic = 0x6174616467756e73,
                   kEndMagic = 0x646e652067756e73;  // "snugdata", "snug end"
constexpr uint32_t kSegmentMagic = 0x6d676573;      // "segm"

struct FileHeader {
  uint64_t magic = kHeaderMagic;
  uint32_t version = kVersion, id_bytes = 0;
  uint64_t key_high = 0, key_low = 0;
  uint64_t zero[3] = {};
  uint64_t checksum = 0;  // of what stands before it; so in the others
};
struct SegmentHeader {
  uint32_t magic = kSegmentMagic, samples = 0;
  uint64_t ids = 0, supervised = 0, rows = 0, bad_rows = 0;
  RowCursor next = {};
  uint64_t payload_checksum = 0;
  uint32_t began_with_answer = 0, message_bytes = 0;
  uint64_t state_bytes = 0;
  uint64_t checksum = 0;
};
struct FileEnd {
  uint64_t magic = kEndMagic;
  uint64_t segments = 0, samples = 0, ids = 0, supervised = 0, rows = 0, bad_rows = 0;
  uint64_t checksum = 0;  // of the table and of what stands before it
};
constexpr int64_t kHeaderBytes = 64, kSegmentHeaderBytes = 96, kEntryBytes = 24;
static_assert(sizeof(FileHeader) == kHeaderBytes && sizeof(SegmentHeader) == kSegmentHeaderBytes &&
              sizeof(FileEnd) == kHeaderBytes);

template <typename Block>
std::span<std::byte> bytes_of(Block& block) {
  return std::as_writable_bytes(std::span(&block, 1));
}

template <typename Block>
uint64_t checksum_of(const Block& block, std::span<const std::byte> before = {}) {
  Xxh64 hash;
  hash.add(before);
  hash.add(std::as_bytes(std::span(&block, 1)).first(sizeof(Block) - sizeof(uint64_t)));
  return hash.value();
}

int64_t lengths_bytes(int64_t samples) { return round_up(checked_mul(samples, 4), 8); }
int64_t mask_words(int64_t ids) { return ceil_div(ids, 64); }
int64_t ids_bytes(int64_t ids, int64_t id_bytes) { return round_up(checked_mul(ids, id_bytes), 8); }
int64_t state_room(uint64_t bytes) { return round_up(static_cast<int64_t>(bytes), 8); }

// Of the segment's payload; also of one whose header is a stranger's.
int64_t payload_bytes(const SegmentHeader& header, int64_t id_bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (header.ids > kMost || header.state_bytes > kMost) return std::numeric_limits<int64_t>::max();
  const auto ids = static_cast<int64_t>(header.ids);
  return lengths_bytes(header.samples) + 8 * mask_words(ids) + ids_bytes(ids, id_bytes) +
         state_room(header.state_bytes) + round_up(int64_t{header.message_bytes}, 8);
}

void add(SampleTotals& totals, const SampleTotals& more) {
  totals.samples += more.samples;
  totals.ids += more.ids;
  totals.supervised += more.supervised;
  totals.rows += more.rows;
  totals.bad_rows += more.bad_rows;
  totals.began_with_answer += more.began_with_answer;
}

SampleTotals totals_of(const SegmentHeader& header) {
  return {.samples = header.samples,
          .ids = static_cast<int64_t>(header.ids),
          .supervised = static_cast<int64_t>(header.supervised),
          .rows = static_cast<int64_t>(header.rows),
          .bad_rows = static_cast<int64_t>(header.bad_rows),
          .began_with_answer = header.began_with_answer};
}

// The checksum of `size` bytes from `offset`, read through `buffer`.
template <typename File>
uint64_t checksum_at(const File& file, int64_t offset, int64_t size, std::vector<std::byte>& buffer) {
  Xxh64 hash;
  buffer.resize(static_cast<size_t>(kReadBytes));
  while (size > 0) {
    const auto part = std::span(buffer).first(static_cast<size_t>(std::min(kReadBytes, size)));
    file.read(offset, part);
    hash.add(part);
    offset += static_cast<int64_t>(part.size());
    size -= static_cast<int64_t>(part.size());
  }
  return hash.value();
}

// The segment at `offset` of a file whose segments end at `end`; none when it is not whole.
template <typename File>
std::optional<SegmentHeader> read_segment(const File& file, int64_t offset, int64_t end, int64_t id_bytes,
                                          std::vector<std::byte>& buffer) {
  SegmentHeader header;
  if (end - offset < kSegmentHeaderBytes) return std::nullopt;
  file.read(offset, bytes_of(header));
  if (header.magic != kSegmentMagic || header.checksum != checksum_of(header) ||
      header.message_bytes > kAllMessageBytes)
    return std::nullopt;
  const int64_t payload = payload_bytes(header, id_bytes);
  if (payload > end - offset - kSegmentHeaderBytes) return std::nullopt;
  if (checksum_at(file, offset + kSegmentHeaderBytes, payload, buffer) != header.payload_checksum)
    return std::nullopt;
  return header;
}

// Of a whole segment at `offset`: where its messages begin, these, and the state before them.
int64_t messages_offset(int64_t offset, const SegmentHeader& header, int64_t id_bytes) {
  return offset + kSegmentHeaderBytes + payload_bytes(header, id_bytes) -
         round_up(int64_t{header.message_bytes}, 8);
}

template <typename File>
std::string read_state(const File& file, int64_t offset, const SegmentHeader& header, int64_t id_bytes) {
  std::string state(header.state_bytes, '\0');
  file.read(messages_offset(offset, header, id_bytes) - state_room(header.state_bytes),
            std::as_writable_bytes(std::span(state)));
  return state;
}

template <typename File>
std::vector<std::string> read_messages(const File& file, int64_t offset, const SegmentHeader& header,
                                       int64_t id_bytes) {
  std::string text(header.message_bytes, '\0');
  file.read(messages_offset(offset, header, id_bytes), std::as_writable_bytes(std::span(text)));
  std::vector<std::string> messages;
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    messages.push_back(text.substr(at, end - at));
  return messages;
}

int64_t supervised_in(std::span<const uint64_t> mask, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t word = begin / 64; word * 64 < end; ++word) {
    uint64_t bits = mask[static_cast<size_t>(word)];
    if (word * 64 < begin) bits &= ~uint64_t{0} << (begin % 64);
    if (end - word * 64 < 64) bits &= (uint64_t{1} << (end % 64)) - 1;
    count += std::popcount(bits);
  }
  return count;
}

}  // namespace

std::string sample_form() { return fmt::format("{} {}", SNUG_VERSION, kVersion); }

int64_t StoredSample::supervised(int64_t begin, int64_t end) const {
  return begin < end ? supervised_in(mask, mask_begin + begin, mask_begin + end) : 0;
}

SampleWriter::SampleWriter(const std::string& path, const Fingerprint& key, int64_t vocabulary,
                           const std::function<void(const FileWait&)>& waits)
    : file_(path, waits), id_bytes_(vocabulary <= 65536 ? 2 : 4), vocabulary_(vocabulary) {
  keep_whole_segments(key);
}

void SampleWriter::keep_whole_segments(const Fingerprint& key) {
  FileHeader header,
      wanted{.id_bytes = static_cast<uint32_t>(id_bytes_), .key_high = key.high, .key_low = key.low};
  wanted.checksum = checksum_of(wanted);
  if (file_.size() >= kHeaderBytes) file_.read(0, bytes_of(header));
  if (std::memcmp(&header, &wanted, sizeof(header)) != 0) {
    file_.truncate(0);
    file_.write(bytes_of(wanted));
    return;
  }
  int64_t offset = kHeaderBytes;
  std::vector<std::byte> buffer;
  while (const auto segment = read_segment(file_, offset, file_.size(), id_bytes_, buffer)) {
    table_.push_back({offset, kept_.samples, kept_.ids});
    snug::add(kept_, totals_of(*segment));
    message_count_ += read_messages(file_, offset, *segment, id_bytes_).size();
    kept_until_ = segment->next;
    kept_state_ = read_state(file_, offset, *segment, id_bytes_);
    offset += kSegmentHeaderBytes + payload_bytes(*segment, id_bytes_);
  }
  file_.truncate(offset);
  written_ = kept_;
}

void SampleWriter::start_over() {
  file_.truncate(kHeaderBytes);
  kept_ = written_ = segment_ = {};
  kept_until_.reset();
  kept_state_.clear();
  table_.clear();
  message_count_ = 0;
}

void SampleWriter::add(std::span<const int32_t> ids, const std::vector<bool>& supervised, bool is_document,
                       const RowCursor& next, bool began_with_answer) {
  require(supervised.empty() || supervised.size() == ids.size(), "a sample of {} ids and {} marks",
          ids.size(), supervised.size());
  require(ids.size() < kDocumentBit, "a sample of {} ids", ids.size());
  lengths_.push_back(static_cast<uint32_t>(ids.size()) | (is_document ? kDocumentBit : 0));
  for (size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocabulary_, "id {} of a vocabulary of {}", ids[i], vocabulary_);
    const int64_t place = segment_.ids + static_cast<int64_t>(i);
    if (place % 64 == 0) mask_.push_back(0);
    const bool learned = supervised.empty() || supervised[i];
    mask_.back() |= uint64_t{learned} << (place % 64);
    segment_.supervised += learned && i > 0 ? 1 : 0;
  }
  const size_t before = ids_.size();
  ids_.resize(before + ids.size() * static_cast<size_t>(id_bytes_));
  if (id_bytes_ == 4 && !ids.empty()) std::memcpy(ids_.data() + before, ids.data(), ids.size_bytes());
  if (id_bytes_ == 2)
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto narrow = static_cast<uint16_t>(ids[i]);
      std::memcpy(ids_.data() + before + 2 * i, &narrow, 2);
    }
  segment_.ids += static_cast<int64_t>(ids.size());
  ++segment_.samples;
  ++segment_.rows;
  segment_.began_with_answer += began_with_answer ? 1 : 0;
  next_ = next;
  if (segment_.ids >= kSegmentIds || segment_.samples >= kSegmentSamples) write_segment();
}

void SampleWriter::add_bad_rows(const SkippedRows& rows) {
  segment_.bad_rows += rows.count;
  segment_.rows += rows.count;
  for (const std::string& message : rows.messages) {
    if (message_count_ == SkippedRows::kMostMessages) return;
    std::string line(whole_characters(message, kMessageBytes));
    std::replace(line.begin(), line.end(), '\n', ' ');
    messages_ += line + '\n';
    ++message_count_;
  }
}

void SampleWriter::write_segment() {
  const auto padded = [](auto& list, size_t size_bytes) -> std::span<const std::byte> {
    list.resize(size_bytes / sizeof(list[0]));
    return std::as_bytes(std::span(list));
  };
  SegmentHeader header{.samples = static_cast<uint32_t>(segment_.samples),
                       .ids = static_cast<uint64_t>(segment_.ids),
                       .supervised = static_cast<uint64_t>(segment_.supervised),
                       .rows = static_cast<uint64_t>(segment_.rows),
                       .bad_rows = static_cast<uint64_t>(segment_.bad_rows),
                       .next = next_,
                       .began_with_answer = static_cast<uint32_t>(segment_.began_with_answer),
                       .message_bytes = static_cast<uint32_t>(messages_.size()),
                       .state_bytes = state_.size()};
  const std::span<const std::byte> parts[] = {
      padded(lengths_, static_cast<size_t>(lengths_bytes(segment_.samples))), std::as_bytes(std::span(mask_)),
      padded(ids_, static_cast<size_t>(ids_bytes(segment_.ids, id_bytes_))),
      padded(state_, static_cast<size_t>(state_room(state_.size()))),
      padded(messages_, static_cast<size_t>(round_up(std::ssize(messages_), 8)))};
  Xxh64 hash;
  for (const auto& part : parts) hash.add(part);
  header.payload_checksum = hash.value();
  header.checksum = checksum_of(header);
  table_.push_back({file_.size(), written_.samples, written_.ids});
  file_.write(bytes_of(header));
  for (const auto& part : parts) file_.write(part);
  snug::add(written_, segment_);
  segment_ = {};
  lengths_.clear();
  mask_.clear();
  ids_.clear();
  messages_.clear();
  state_.clear();
}

SampleTotals SampleWriter::finish() {
  if (segment_.rows > 0) write_segment();
  static_assert(sizeof(Entry) == kEntryBytes);
  FileEnd end{.segments = table_.size(),
              .samples = static_cast<uint64_t>(written_.samples),
              .ids = static_cast<uint64_t>(written_.ids),
              .supervised = static_cast<uint64_t>(written_.supervised),
              .rows = static_cast<uint64_t>(written_.rows),
              .bad_rows = static_cast<uint64_t>(written_.bad_rows)};
  const auto table = std::as_bytes(std::span(table_));
  end.checksum = checksum_of(end, table);
  file_.write(table);
  file_.write(bytes_of(end));
  file_.commit();
  return written_;
}

std::unique_ptr<const SampleFile> SampleFile::open(const std::string& path, const Fingerprint& key,
                                                   int64_t vocabulary, std::string& why) {
  why.clear();
  if (!file_exists(path)) return nullptr;
  std::unique_ptr<SampleFile> file(new SampleFile(InputFile(path), vocabulary));
  if (const auto wrong = file->check(key)) {
    why = fmt::format("{}: {}", path, *wrong);
    return nullptr;
  }
  return file;
}

std::optional<std::string> SampleFile::check(const Fingerprint& key) {
  if (file_.size() < 2 * kHeaderBytes)
    return fmt::format("has {} bytes; expected a header and an end", file_.size());
  FileHeader header;
  file_.read(0, bytes_of(header));
  if (header.magic != kHeaderMagic || header.checksum != checksum_of(header))
    return "has no header of prepared samples";
  if (header.version != kVersion)
    return fmt::format("is of version {}; expected {}", header.version, kVersion);
  if (Fingerprint{header.key_high, header.key_low} != key) return "is of other data";
  id_bytes_ = header.id_bytes;
  if (id_bytes_ != 2 && id_bytes_ != 4) return fmt::format("has ids of {} bytes; expected 2 or 4", id_bytes_);

  FileEnd end;
  file_.read(file_.size() - kHeaderBytes, bytes_of(end));
  const int64_t room = (file_.size() - 2 * kHeaderBytes) / kEntryBytes;
  if (end.magic != kEndMagic || end.segments > static_cast<uint64_t>(room))
    return "ends before its end: it is truncated or broken";
  const int64_t segments_end = file_.size() - kHeaderBytes - static_cast<int64_t>(end.segments) * kEntryBytes;
  std::vector<SampleWriter::Entry> table(static_cast<size_t>(end.segments));
  file_.read(segments_end, std::as_writable_bytes(std::span(table)));
  if (end.checksum != checksum_of(end, std::as_bytes(std::span(table)))) return "has a broken end";

  int64_t offset = kHeaderBytes;
  std::vector<std::byte> buffer;
  for (size_t i = 0; i < table.size(); ++i) {
    const auto found = read_segment(file_, offset, segments_end, id_bytes_, buffer);
    if (!found || table[i].offset != offset || table[i].samples_before != totals_.samples ||
        table[i].ids_before != totals_.ids)
      return fmt::format("segment {} of {} is broken", i + 1, table.size());
    segments_.push_back(
        {offset, totals_.samples, totals_.ids, found->samples, static_cast<int64_t>(found->ids)});
    add(totals_, totals_of(*found));
    for (std::string& message : read_messages(file_, offset, *found, id_bytes_))
      bad_rows_.push_back(std::move(message));
    offset += kSegmentHeaderBytes + payload_bytes(*found, id_bytes_);
  }
  if (offset != segments_end)
    return fmt::format("has {} bytes that belong to no segment", segments_end - offset);
  return std::nullopt;
}

int64_t SampleFile::mask_offset(const Segment& segment) const {
  return segment.offset + kSegmentHeaderBytes + lengths_bytes(segment.samples);
}

int64_t SampleFile::ids_offset(const Segment& segment) const {
  return mask_offset(segment) + 8 * mask_words(segment.ids);
}

void SampleFile::visit(const std::function<void(const StoredSample&)>& visit) const {
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> mask;
  for (const Segment& segment : segments_) {
    lengths.resize(static_cast<size_t>(segment.samples));
    mask.resize(static_cast<size_t>(mask_words(segment.ids)));
    file_.read(segment.offset + kSegmentHeaderBytes, std::as_writable_bytes(std::span(lengths)));
    file_.read(mask_offset(segment), std::as_writable_bytes(std::span(mask)));
    StoredSample sample{.index = segment.samples_before, .first_id = segment.ids_before, .mask = mask};
    for (const uint32_t length : lengths) {
      sample.length = length & ~kDocumentBit;
      sample.is_document = (length & kDocumentBit) != 0;
      if (sample.mask_begin + sample.length > segment.ids)
        throw_user(ExitCode::kBadFile, "{}: sample {} reaches beyond its segment", path(), sample.index);
      visit(sample);
      ++sample.index;
      sample.first_id += sample.length;
      sample.mask_begin += sample.length;
    }
  }
}

template <typename Part>
void SampleFile::in_segments(int64_t first, int64_t count, const Part& part) const {
  require(first >= 0 && count >= 0 && count <= totals_.ids - first, "ids [{}, {}) of {}", first,
          first + count, totals_.ids);
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), first,
                                  [](int64_t id, const Segment& other) { return id < other.ids_before; });
  for (int64_t done = 0; done < count; ++segment) {
    const Segment& here = *(segment - 1);
    const int64_t inside = first + done - here.ids_before;
    const int64_t take = std::min(count - done, here.ids - inside);
    part(here, inside, done, take);
    done += take;
  }
}

void SampleFile::read_ids(int64_t first, std::span<int32_t> out) const {
  in_segments(first, static_cast<int64_t>(out.size()),
              [&](const Segment& segment, int64_t inside, int64_t at, int64_t count) {
                const auto place = out.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
                // Narrow ids are read into the upper half of their place, and widened from the front: no write passes a read.
                const std::span<std::byte> bytes =
                    std::as_writable_bytes(place).last(static_cast<size_t>(count * id_bytes_));
                file_.read(ids_offset(segment) + inside * id_bytes_, bytes);
                for (size_t i = 0; i < place.size(); ++i) {
                  if (id_bytes_ == 2) {
                    uint16_t narrow = 0;
                    std::memcpy(&narrow, bytes.data() + 2 * i, 2);
                    place[i] = narrow;
                  }
                  if (place[i] < 0 || place[i] >= vocabulary_)
                    throw_user(ExitCode::kBadFile, "{}: id {} is {}; expected 0 to {}", path(),
                               segment.ids_before + inside + static_cast<int64_t>(i), place[i],
                               vocabulary_ - 1);
                }
              });
}

void SampleFile::read_supervised(int64_t first, std::span<uint8_t> out) const {
  constexpr int64_t kPart = 4096;  // ids
  std::array<uint8_t, kPart / 8 + 1> bytes;
  in_segments(first, static_cast<int64_t>(out.size()),
              [&](const Segment& segment, int64_t inside, int64_t at, int64_t count) {
                for (int64_t done = 0; done < count;) {
                  const int64_t bit = inside + done, take = std::min(kPart, count - done);
                  const auto used = std::span(bytes).first(static_cast<size_t>((bit % 8 + take + 7) / 8));
                  file_.read(mask_offset(segment) + bit / 8, std::as_writable_bytes(used));
                  for (int64_t i = 0; i < take; ++i) {
                    const int64_t place = bit % 8 + i;
                    out[static_cast<size_t>(at + done + i)] =
                        used[static_cast<size_t>(place / 8)] >> (place % 8) & 1;
                  }
                  done += take;
                }
              });
}

}  // namespace snug
