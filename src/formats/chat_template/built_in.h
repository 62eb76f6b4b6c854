// formats/chat_template/built_in.h — templates for models and data that bring none
//
// They write bos_token and eos_token where these are defined, take a system message where the format has a place for one, and read content
// as a text or as a list of parts with `text`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::jinja {

// Sorted.
std::vector<std::string_view> built_in_names();

// The text of the template; none for another name.
std::optional<std::string> built_in_template(std::string_view name);

}  // namespace snug::jinja
