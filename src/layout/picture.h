// layout/picture.h — a solution as a picture of characters, time to the right and offsets upwards
//
//   draw() of a: [0, 2) 2 bytes at 0, b: [1, 4) 1 byte at 2, c: [2, 4) 2 bytes at 0, p: persistent, 1 byte at
//   3:
//
//     3 B |####        '#' persistent, a letter is a buffer (the letters repeat after 52), '.' is free
//     2 B |.bbb        a row begins at the offset on its left
//     1 B |aacc
//     0 B |aacc
//         +----
//          0..4        the moments of the first column's begin and the last column's end
#pragma once

#include <string>

#include "layout/layout.h"

namespace snug::layout {

// At most `width` characters a line and `height` lines, axes included (at least 24 and 4 are used; the last
// line, the moments, may be longer). A cell stands for some moments and bytes: it shows the buffer that has most
// of it, or '.' when most of it is free. Throws InternalError when the solution has not one offset a buffer.
std::string draw(const Problem& problem, const Solution& solution, int width, int height);

}  // namespace snug::layout
