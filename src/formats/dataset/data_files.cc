#include "formats/dataset/data_files.h"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/file.h"
#include "base/json_cursor.h"
#include "formats/dataset/byte_source.h"
#include "formats/dataset/dataset_info.h"
#include "formats/dataset/file_content.h"
#include "formats/dataset/parse_row.h"
#include "formats/dataset/row_splitter.h"

namespace snug {
namespace {

constexpr std::array<std::pair<std::string_view, DatasetFormat>, 9> kFormats = {{
    {"text", DatasetFormat::kText},
    {"shards", DatasetFormat::kShards},
    {"json_text", DatasetFormat::kJsonText},
    {"alpaca", DatasetFormat::kAlpaca},
    {"sharegpt", DatasetFormat::kShareGpt},
    {"messages", DatasetFormat::kMessages},
    {"prompt_completion", DatasetFormat::kPromptCompletion},
    {"segments", DatasetFormat::kSegments},
    {"tokens", DatasetFormat::kTokens},
}};

// Descriptions that lie beside data files, and what is no data.
bool is_passed_over(std::string_view name) {
  return name.starts_with('.') || is_temporary_name(name) || name == "dataset_info.json" ||
         name == "dataset_infos.json" || name == "state.json";
}

// Whether the folder at `path`, which lies in `folder`, is a link to that or to one above it: its files would come again and again.
bool leads_up(const std::string& path, const std::string& folder) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(path, failed),
             inside = std::filesystem::canonical(folder, failed);
  return !real.empty() &&
         std::mismatch(real.begin(), real.end(), inside.begin(), inside.end()).first == real.end();
}

// All files below a folder, by path.
void list_files(const std::string& folder, int depth, std::vector<std::string>& files) {
  if (depth > 64)
    throw_user(ExitCode::kBadFile, "{}: lies 64 folders deep; expected data files nearer to the top", folder);
  for (const std::string& name : list_directory(folder)) {
    if (is_passed_over(name)) continue;
    const std::string path = join_path(folder, name);
    if (!directory_exists(path)) {
      if (file_exists(path)) files.push_back(path);
    } else if (!leads_up(path, folder)) {
      list_files(path, depth + 1, files);
    }
  }
}

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// Files that match parts[i …], which are the pattern's components, below `folder`.
void match(const std::string& folder, std::span<const std::string> parts, int depth,
           std::vector<std::string>& files) {
  if (parts.empty() || depth > 64) return;
  const std::string& part = parts.front();
  if (part == "**") match(folder, parts.subspan(1), depth + 1, files);
  if (!is_pattern(part)) {
    const std::string path = folder.empty() ? part : join_path(folder, part);
    if (parts.size() > 1) {
      if (directory_exists(path)) match(path, parts.subspan(1), depth + 1, files);
    } else if (file_exists(path)) {
      files.push_back(path);
    }
    return;
  }
  if (!folder.empty() && !directory_exists(folder)) return;
  for (const std::string& name : list_directory(folder.empty() ? "." : folder)) {
    if (name.starts_with('.') || is_temporary_name(name)) continue;
    const std::string path = folder.empty() ? name : join_path(folder, name);
    const bool is_folder = directory_exists(path);
    if (part == "**") {
      if (!is_folder) {
        if (parts.size() == 1 && file_exists(path)) files.push_back(path);
      } else if (!leads_up(path, folder.empty() ? "." : folder)) {
        match(path, parts, depth + 1, files);
      }
    } else if (::fnmatch(part.c_str(), name.c_str(), 0) == 0) {
      if (parts.size() > 1) {
        if (is_folder) match(path, parts.subspan(1), depth + 1, files);
      } else if (file_exists(path)) {
        files.push_back(path);
      }
    }
  }
}

std::vector<std::string> match_pattern(const std::string& pattern) {
  std::vector<std::string> parts;
  std::string folder = pattern.starts_with('/') ? "/" : "";
  for (size_t at = 0; at <= pattern.size();) {
    const size_t slash = std::min(pattern.find('/', at), pattern.size());
    if (slash > at) parts.push_back(pattern.substr(at, slash - at));
    at = slash + 1;
  }
  std::vector<std::string> files;
  match(folder, parts, 0, files);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// FILE.json and NAME of FILE.json#NAME.
std::optional<std::pair<std::string, std::string>> described_dataset(const std::string& path) {
  const size_t mark = path.rfind(".json#");
  if (mark == std::string::npos || file_exists(path)) return std::nullopt;
  const size_t end = mark + std::string_view(".json").size();
  return std::pair(path.substr(0, end), path.substr(end + 1));
}

std::vector<std::string> expand(const std::string& path) {
  if (file_exists(path)) return {path};
  if (directory_exists(path)) {
    std::vector<std::string> files, data;
    list_files(path, 0, files);
    std::sort(files.begin(), files.end());
    const auto take = [&](std::initializer_list<Ending> endings) {
      std::copy_if(files.begin(), files.end(), std::back_inserter(data), [&](const std::string& file) {
        return std::find(endings.begin(), endings.end(), ending_of(file)) != endings.end();
      });
    };
    // Beside data a document says what they are; README.md does so in every folder.
    take({Ending::kText, Ending::kJson, Ending::kShard, Ending::kArrow, Ending::kTable});
    if (data.empty()) take({Ending::kDocument});
    std::erase_if(data, [](const std::string& file) {
      constexpr std::string_view kReadme = "readme.";
      return ending_of(file) == Ending::kDocument &&
             ::strncasecmp(file_name(file).c_str(), kReadme.data(), kReadme.size()) == 0;
    });
    if (data.empty())
      throw_user(
          ExitCode::kBadFile,
          "{}: holds no data files; expected some of .txt, .jsonl, .json or .bin, perhaps with .gz or .zst",
          path);
    return data;
  }
  if (is_pattern(path)) {
    std::vector<std::string> files = match_pattern(path);
    if (files.empty()) throw_user(ExitCode::kBadFile, "{}: no file matches; expected at least one", path);
    return files;
  }
  if (std::filesystem::exists(path))
    throw_user(ExitCode::kBadFile,
               "{}: is a device, pipe or socket, which cannot be read twice; expected a file or a folder",
               path);
  throw_user(ExitCode::kBadFile, "{}: there is no such file or folder", path);
}

DatasetFormat detect(const std::string& path) {
  switch (const Ending kind = ending_of(path)) {
    case Ending::kText:
    case Ending::kDocument:
      return DatasetFormat::kText;
    case Ending::kJson:
      break;
    case Ending::kShard:
      return DatasetFormat::kShards;
    case Ending::kArrow:
    case Ending::kTable:
      refuse_table(path, kind);
    case Ending::kNone:
    case Ending::kOther:
      return unnamed_content(path) == UnnamedContent::kText ? DatasetFormat::kText : DatasetFormat::kShards;
  }
  RowSplitter splitter(open_byte_source(path), path, kMostRowBytes);
  const std::optional<std::string_view> row = splitter.next();
  if (!row) throw_user(ExitCode::kBadFile, "{}: has no rows; expected at least one", path);
  try {
    return detect_row_format(*row, fmt::format("{}:{}", path, splitter.row()));
  } catch (const JsonSyntaxError& error) {
    if (splitter.is_array()) throw;
    throw JsonSyntaxError(
        fmt::format("{} (a file of rows has one object a line, or is one array of them)", error.what()));
  }
}

}  // namespace

std::optional<DatasetFormat> parse_dataset_format(std::string_view name) {
  for (const auto& [known, format] : kFormats)
    if (known == name) return format;
  return std::nullopt;
}

std::string_view dataset_format_name(DatasetFormat format) {
  return kFormats[static_cast<size_t>(format)].first;
}

std::string dataset_format_names() {
  std::string names;
  for (const auto& [name, format] : kFormats) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

bool is_row_format(DatasetFormat format) {
  return format != DatasetFormat::kText && format != DatasetFormat::kShards;
}

std::vector<DataFile> find_data_files(std::span<const std::string> paths,
                                      std::optional<DatasetFormat> forced) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) {
    std::optional<DatasetInfo> info;
    if (const auto dataset = described_dataset(path))
      info = read_dataset_info(dataset->first, dataset->second);
    if (info && forced && *forced != info->format)
      throw_user(ExitCode::kBadFile, "{}: is {}; expected {}, which is forced", path,
                 dataset_format_name(info->format), dataset_format_name(*forced));
    for (std::string& file : expand(info ? info->path : path)) {
      refuse_git_lfs_pointer(file);
      if (const Ending kind = ending_of(file); kind == Ending::kArrow || kind == Ending::kTable)
        refuse_table(file, kind);
      if (file_name(file) == "dataset_info.json")
        throw_user(
            ExitCode::kBadFile,
            "{}: describes data and holds none; expected data files, or {}#NAME with the name of a dataset",
            file, file);
      DataFile made{.path = std::move(file)};
      if (info) made.names = info->names;
      made.format = info ? info->format : forced ? *forced : detect(made.path);
      if (made.format == DatasetFormat::kText) refuse_what_is_no_text(made.path);
      files.push_back(std::move(made));
    }
  }
  for (const DataFile& file : files)
    if (is_row_format(file.format) != is_row_format(files.front().format))
      throw_user(
          ExitCode::kBadFile,
          "{} is {} and {} is {}; expected text and shards, which are one stream of tokens, or rows of JSON",
          files.front().path, dataset_format_name(files.front().format), file.path,
          dataset_format_name(file.format));
  return files;
}

}  // namespace snug
