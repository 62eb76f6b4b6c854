// backends/cpu/vector_targets.h — the vector widths that Highway compiles for: AVX2 and AVX-512
//
// Include before any Highway header. A processor without AVX2 is refused by choose_dispatch, so nothing
// narrower is compiled.
#pragma once

#define HWY_BASELINE_TARGETS HWY_AVX2
