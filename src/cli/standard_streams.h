// cli/standard_streams.h — the three descriptors every program is started with, and whether what was printed arrived
#pragma once

namespace snug {

// Opens those of the descriptors 0, 1 and 2 that are closed, so that no file of the run gets their number and what is printed lands in it.
// They are open the wrong way round: what is printed fails, as on a closed descriptor. Called first thing in main.
void open_missing_standard_streams();

// Writes of a pipe or terminal that is gone fail and end nothing: for a command whose printing is no result.
void ignore_broken_pipes();

// Throws UserError(kIo) unless all that was printed on standard output so far was written.
void require_printed();

}  // namespace snug
