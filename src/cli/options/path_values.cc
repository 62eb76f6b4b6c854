#include "cli/options/path_values.h"

#include <pwd.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>

#include "cli/options/option_values.h"

namespace snug {
namespace {

bool exists(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::exists(path, error);
}

// Of `user`, of the caller where it is empty; empty where there is none.
std::string home_of(const std::string& user) {
  if (user.empty())
    if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  const passwd* entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  return entry != nullptr && entry->pw_dir != nullptr && entry->pw_dir[0] == '/' ? entry->pw_dir : "";
}

}  // namespace

std::string read_path(std::string_view text) {
  const std::string whole(text), name(without_blanks(text));
  if (whole != name && exists(whole)) return whole;
  if (!name.starts_with('~')) return name;
  const size_t slash = std::min(name.find('/'), name.size());
  const std::string home = home_of(name.substr(1, slash - 1));
  if (home.empty() && slash == 1)
    refuse("found \"{}\"; expected a full path: HOME is not set, and this user has no home directory", name);
  return home.empty() ? name : home + name.substr(slash);
}

std::vector<std::string> read_paths(std::string_view text) {
  std::vector<std::string> paths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t first = std::min(text.find(',', begin), text.size());
    size_t end = first;
    std::string path = read_path(text.substr(begin, first - begin));
    for (size_t comma = first; comma < text.size();) {
      comma = std::min(text.find(',', comma + 1), text.size());
      if (comma - begin > PATH_MAX) break;  // no file has such a name
      if (std::string longer = read_path(text.substr(begin, comma - begin)); exists(longer)) {
        path = std::move(longer);
        end = comma;
      }
    }
    if (path.empty()) refuse("found \"{}\"; expected file names separated by commas", text);
    paths.push_back(std::move(path));
    begin = end + 1;
  }
  return paths;
}

}  // namespace snug
