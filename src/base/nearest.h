// base/nearest.h — which known word someone may have meant
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace snug {

// The candidate nearest to `word` by edit distance, or empty when nothing is near (more than half of its letters differ).
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace snug
