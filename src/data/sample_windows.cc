#include "data/sample_windows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/errors.h"
#include "data/packing.h"

namespace snug {
namespace {

constexpr size_t kPackedTogether = size_t{1} << 14;
constexpr size_t kTableBuffer = size_t{1} << 12;  // entries
// Of the permutation that draws the validation part: no epoch has it.
constexpr uint64_t kSplit = std::numeric_limits<uint64_t>::max();

}  // namespace

// The two tables while they grow.
class SampleWindows::Tables {
 public:
  explicit Tables(SampleWindows& windows)
      : length_(static_cast<int32_t>(windows.length_)),
        windows_(windows.windows_),
        pieces_(windows.pieces_) {}

  void add_window(std::span<const Piece> pieces) {
    Window window{pieces_written_, static_cast<int32_t>(pieces.size()), 0};
    for (const Piece& piece : pieces) {
      pieces_.add(piece);
      window.supervised += piece.supervised;
    }
    pieces_written_ += window.pieces;
    windows_.add(window);
    ++count_;
  }

  void pack(const Piece& piece) {
    together_.push_back(piece);
    if (together_.size() == kPackedTogether) pack_together();
  }

  // The number of windows.
  int64_t finish() {
    pack_together();
    windows_.flush();
    pieces_.flush();
    return count_;
  }

 private:
  template <typename Entry>
  class Appender {
   public:
    explicit Appender(ScratchFile& file) : file_(file) { entries_.reserve(kTableBuffer); }
    void add(const Entry& entry) {
      entries_.push_back(entry);
      if (entries_.size() == kTableBuffer) flush();
    }
    void flush() {
      file_.write(std::as_bytes(std::span(entries_)));
      entries_.clear();
    }

   private:
    ScratchFile& file_;
    std::vector<Entry> entries_;
  };

  void pack_together() {
    if (together_.empty()) return;
    std::vector<int32_t> sizes(together_.size());
    std::transform(together_.begin(), together_.end(), sizes.begin(),
                   [](const Piece& piece) { return piece.positions; });
    const std::vector<int32_t> bins = first_fit_decreasing(sizes, length_);
    std::vector<size_t> order(together_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bins[a] < bins[b]; });
    std::vector<Piece> window;
    for (size_t i = 0; i < order.size(); ++i) {
      window.push_back(together_[order[i]]);
      if (i + 1 < order.size() && bins[order[i + 1]] == bins[order[i]]) continue;
      add_window(window);
      window.clear();
    }
    together_.clear();
  }

  int32_t length_;
  Appender<Window> windows_;
  Appender<Piece> pieces_;
  std::vector<Piece> together_;
  int64_t pieces_written_ = 0, count_ = 0;
};

SampleWindows::SampleWindows(std::shared_ptr<const SampleFile> samples, const SampleChoice& choice,
                             int64_t length, Packing packing, const std::string& directory,
                             const std::string& source_name)
    : samples_(std::move(samples)),
      source_name_(source_name),
      length_(length),
      windows_(directory),
      pieces_(directory) {
  require(length >= 1 && length < std::numeric_limits<int32_t>::max(), "windows of {} tokens", length);
  visit_pieces(choice, report_, [](const Piece&) {});
  if (report_.targets == 0)
    throw_user(
        ExitCode::kBadFile,
        "{}: none of {} samples has a supervised token within max_length {}; there is nothing to learn from",
        source_name, report_.samples, length);
  const int64_t room = checked_mul(report_.pieces, length);
  report_.packed =
      packing == Packing::kOn || (packing == Packing::kAuto && report_.positions <= room / 4 * 3);
  Tables tables(*this);
  WindowsReport again;
  visit_pieces(choice, again, [&](const Piece& piece) {
    if (report_.packed)
      tables.pack(piece);
    else
      tables.add_window(std::span(&piece, 1));
  });
  report_.windows = tables.finish();
  ids_.resize(static_cast<size_t>(length) + 1);
  supervised_.resize(ids_.size());
}

// Every piece with a supervised target, in the order of the samples.
template <typename Take>
void SampleWindows::visit_pieces(const SampleChoice& choice, WindowsReport& report, const Take& take) const {
  const int64_t all = samples_->totals().samples;
  require(choice.part == SampleChoice::Part::kAll || choice.held_out < all, "{} of {} samples held out",
          choice.held_out, all);
  const std::optional<Permutation> drawn = choice.part == SampleChoice::Part::kAll
                                               ? std::nullopt
                                               : std::optional(Permutation(all, choice.seed, kSplit));
  samples_->visit([&](const StoredSample& sample) {
    if (drawn &&
        ((*drawn)(sample.index) < choice.held_out) != (choice.part == SampleChoice::Part::kValidation))
      return;
    ++report.samples;
    const int64_t positions = std::max<int64_t>(0, sample.length - 1);
    report.longest = std::max(report.longest, positions);
    if (positions > length_ && sample.is_document) ++report.cut;
    if (positions > length_ && !sample.is_document) {
      ++report.truncated;
      report.truncated_targets += sample.supervised(length_ + 1, sample.length);
    }
    const int64_t used = sample.is_document ? positions : std::min(positions, length_);
    bool supervised = false;
    for (int64_t begin = 0; begin < used; begin += length_) {
      const int64_t size = std::min(length_, used - begin);
      const int64_t targets = sample.supervised(begin + 1, begin + size + 1);
      if (targets == 0) continue;
      supervised = true;
      ++report.pieces;
      report.positions += size;
      report.targets += targets;
      take(Piece{sample.first_id + begin, static_cast<int32_t>(size), static_cast<int32_t>(targets)});
    }
    if (supervised) return;
    if (report.unsupervised == 0) report.first_unsupervised = sample.index;
    ++report.unsupervised;
  });
}

SampleWindows::Window SampleWindows::window(int64_t index) const {
  Window window;
  windows_.read(index * static_cast<int64_t>(sizeof(window)), std::as_writable_bytes(std::span(&window, 1)));
  return window;
}

int64_t SampleWindows::targets_of(int64_t index) const { return window(index).supervised; }

void SampleWindows::fill_row(Batch& batch, int64_t row, std::optional<int64_t> index) {
  const auto begin = static_cast<size_t>(row * length_), end = begin + static_cast<size_t>(length_);
  size_t at = begin;
  if (index) {
    const Window found = window(*index);
    for (int32_t i = 0; i < found.pieces; ++i) {
      Piece piece;
      pieces_.read((found.first_piece + i) * static_cast<int64_t>(sizeof(piece)),
                   std::as_writable_bytes(std::span(&piece, 1)));
      const auto positions = static_cast<size_t>(piece.positions);
      samples_->read_ids(piece.first_id, std::span(ids_).first(positions + 1));
      samples_->read_supervised(piece.first_id, std::span(supervised_).first(positions + 1));
      const auto start = static_cast<int32_t>(at - begin);
      for (size_t p = 0; p < positions; ++p, ++at) {
        batch.tokens[at] = ids_[p];
        batch.targets[at] = supervised_[p + 1] != 0 ? ids_[p + 1] : kIgnoredTarget;
        batch.positions[at] = static_cast<int32_t>(p);
        batch.document_starts[at] = start;
      }
    }
    batch.supervised_tokens += found.supervised;
    ++batch.windows;
  }
  // Each position of the padding is a document of its own: it looks at itself alone.
  for (; at < end; ++at) {
    batch.tokens[at] = 0;
    batch.targets[at] = kIgnoredTarget;
    batch.positions[at] = 0;
    batch.document_starts[at] = static_cast<int32_t>(at - begin);
  }
}

}  // namespace snug
