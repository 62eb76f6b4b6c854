// formats/chat_template/built_in.h — templates for models and data that bring none
#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace snug::jinja {

// Name and text, sorted by name. They write bos_token and eos_token where these are defined, take a system message where the format has a
// place for one, and read content as a text or as a list of parts with `text`.
std::span<const std::pair<std::string_view, std::string_view>> built_in_templates();

}  // namespace snug::jinja
