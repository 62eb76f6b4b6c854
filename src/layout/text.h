// layout/text.h — problems and solutions as CSV: bugs and benchmarks are files
//
// The header names the columns: id,lower,upper,size and, as needed, persistent (0 or 1) and offset, in any
// order. A row is a buffer: it lives in the half-open moments [lower, upper) and has `size` bytes. Rows are
// the buffers in order; an id is only a label, and no label appears twice. Empty lines are skipped. The
// alignment is not in the file.
//
//   id,lower,upper,size,offset
//   0,0,3,4096,0
//   1,1,2,64,4096
//
// Source: the format of google/minimalloc, benchmarks/*.csv.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "layout/layout.h"

namespace snug::layout {

struct Document {
  Problem problem;
  std::optional<Solution> solution;  // present when the text has offsets; its order is empty
};

// The text form; parse_csv() of it gives the same buffers and offsets. The column `persistent` is written
// only when some buffer is persistent.
std::string print_csv(const Problem& problem);
std::string print_csv(const Problem& problem, const Solution& solution);

// Reads the text form. `file` is the name for messages. A row that does not hold what its header says, an
// empty lifetime or a negative number throws UserError(kBadFile) with file, line, what was found and what was
// expected. Whether a solution's buffers overlap is check()'s question, not this function's.
Document parse_csv(std::string_view text, std::string_view file, Bytes alignment = Bytes(1));

// parse_csv() of a file; one that cannot be read throws UserError(kBadFile).
Document read_csv(const std::filesystem::path& file, Bytes alignment = Bytes(1));

}  // namespace snug::layout
