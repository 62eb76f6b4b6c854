// data/sample_windows.h — samples as windows: cut or truncated to a length, and packed or padded
//
// A sample of n ids has n − 1 positions. Where these are more than the length L, a document is cut into pieces, each of which but the last
// has L positions and overlaps the next one by one id, so that every target is there once; any other sample is truncated to L positions.
// Pieces without a supervised target are left out: they would change no sum and no denominator.
//
// A window holds one piece, or as many as packing puts together. Pieces do not see each other: the positions of each begin at 0, and
// document_starts keep its attention within it. So the loss of a window is the sum of those of its pieces.
//
// Packing:  first fit decreasing among 2^14 pieces at a time, in the order of the samples.
// Memory:   the tables of windows and pieces lie in files without a name, 16 bytes each; in memory are 2^14 pieces while they are
//           made, and one piece of ids afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/sample_file.h"
#include "data/windows.h"

namespace snug {

enum class Packing : uint8_t {
  kAuto,  // where pieces are short: padded, windows would be at most three quarters full
  kOn,
  kOff,
};

// A part of the samples of a file. `held_out` of them, drawn by the seed, are the validation part, the others are the training part.
struct SampleChoice {
  enum class Part : uint8_t { kAll, kTraining, kValidation };
  Part part = Part::kAll;
  int64_t held_out = 0;
  uint64_t seed = 42;
};

// What became of the samples that were chosen.
struct WindowsReport {
  int64_t samples = 0;
  int64_t cut = 0;                // documents in more than one piece
  int64_t truncated = 0;          // samples, and what they lost
  int64_t truncated_targets = 0;  // supervised ones
  int64_t unsupervised = 0;       // samples of which no target is left: they are in no window
  int64_t first_unsupervised = -1;
  int64_t longest = 0;                // positions of a sample, before it was cut
  int64_t pieces = 0, positions = 0;  // in windows
  int64_t targets = 0;                // supervised, in windows
  int64_t windows = 0;
  bool packed = false;
  // The share of windows that is not padding.
  double filled(int64_t length) const {
    return windows == 0
               ? 0
               : static_cast<double>(positions) / static_cast<double>(windows) / static_cast<double>(length);
  }
};

class SampleWindows : public Windows {
 public:
  // `directory` is where the tables lie. Throws UserError: kBadFile when no target is supervised, with `source_name`; kIo.
  SampleWindows(std::shared_ptr<const SampleFile> samples, const SampleChoice& choice, int64_t length,
                Packing packing, const std::string& directory, const std::string& source_name);

  const WindowsReport& report() const { return report_; }

  const std::string& source() const override { return source_name_; }
  int64_t count() const override { return report_.windows; }
  int64_t length() const override { return length_; }
  int64_t tokens() const override { return report_.positions; }
  int64_t targets() const override { return report_.targets; }
  int64_t targets_of(int64_t window) const override;
  void fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) override;

 private:
  struct Piece {
    int64_t first_id;
    int32_t positions, supervised;
  };
  struct Window {
    int64_t first_piece;
    int32_t pieces, supervised;
  };
  class Tables;
  template <typename Take>
  void visit_pieces(const SampleChoice& choice, WindowsReport& report, const Take& take) const;
  Window window(int64_t index) const;

  std::shared_ptr<const SampleFile> samples_;
  std::string source_name_;
  int64_t length_;
  WindowsReport report_;
  ScratchFile windows_, pieces_;
  std::vector<int32_t> ids_;         // length + 1
  std::vector<uint8_t> supervised_;  // of them
};

}  // namespace snug
