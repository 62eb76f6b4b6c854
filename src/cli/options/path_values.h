// cli/options/path_values.h — an option's text as the name of a file or folder, or as several
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace snug {

// `text` without the blanks around it, with ~ and ~USER in front of the first slash replaced by the home directory, as a shell does where
// it sees them: in YAML and behind --name= it does not. A name that exists as it stands, blanks and all, stays; so does ~USER of no user.
// Throws UserError(kUsage) for ~ where no home directory is known.
std::string read_path(std::string_view text);

// The names in `text`, which stand between commas. Commas of a name that exists do not divide it; where several readings exist, the longest
// name is taken. Throws UserError(kUsage) for an empty name.
std::vector<std::string> read_paths(std::string_view text);

}  // namespace snug
