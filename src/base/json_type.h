// base/json_type.h — the name of the JSON type without its definition: enough to declare functions that take or return it
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace snug {

// A JSON value that keeps its keys in the order of the text.
using Json = nlohmann::ordered_json;

}  // namespace snug
