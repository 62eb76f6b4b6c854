#include "layout/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <unordered_set>

namespace snug::layout {
namespace {

enum Column : size_t { kId, kLower, kUpper, kSize, kPersistent, kOffset, kColumnCount };
constexpr std::array<std::string_view, kColumnCount> kColumnNames = {"id",   "lower",      "upper",
                                                                     "size", "persistent", "offset"};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    fields.push_back(trim(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Position in the text, for messages.
struct Place {
  std::string_view file;
  int64_t line = 0;
};

int64_t read_count(std::string_view field, std::string_view column, const Place& place) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (field.empty() || error != std::errc() || end != field.data() + field.size() || value < 0)
    throw_user(ExitCode::kBadFile, "{}:{}: {} is \"{}\", expected a whole number of at least 0", place.file,
               place.line, column, field);
  return value;
}

// positions[column] = index of the field that holds it, or -1.
std::array<int, kColumnCount> read_header(const std::vector<std::string_view>& fields, const Place& place) {
  std::array<int, kColumnCount> positions;
  positions.fill(-1);
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto known = std::find(kColumnNames.begin(), kColumnNames.end(), fields[i]);
    if (known == kColumnNames.end())
      throw_user(ExitCode::kBadFile,
                 "{}:{}: unknown column \"{}\", expected id,lower,upper,size[,persistent][,offset]",
                 place.file, place.line, fields[i]);
    int& position = positions[static_cast<size_t>(known - kColumnNames.begin())];
    if (position >= 0)
      throw_user(ExitCode::kBadFile, "{}:{}: column \"{}\" appears twice", place.file, place.line, fields[i]);
    position = static_cast<int>(i);
  }
  for (size_t column = 0; column <= kSize; ++column)
    if (positions[column] < 0)
      throw_user(ExitCode::kBadFile,
                 "{}:{}: no column \"{}\", expected id,lower,upper,size[,persistent][,offset]", place.file,
                 place.line, kColumnNames[column]);
  return positions;
}

std::string print(const Problem& problem, const Solution* solution) {
  const bool with_persistent = std::any_of(problem.buffers.begin(), problem.buffers.end(),
                                           [](const Buffer& buffer) { return buffer.persistent; });
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "id,lower,upper,size{}{}\n", with_persistent ? ",persistent" : "",
                 solution ? ",offset" : "");
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    fmt::format_to(to, "{},{},{},{}", i, buffer.first, buffer.last, buffer.size.value);
    if (with_persistent) fmt::format_to(to, ",{}", buffer.persistent ? 1 : 0);
    if (solution) fmt::format_to(to, ",{}", solution->offsets[i].value);
    fmt::format_to(to, "\n");
  }
  return fmt::to_string(out);
}

}  // namespace

std::string print_csv(const Problem& problem) { return print(problem, nullptr); }

std::string print_csv(const Problem& problem, const Solution& solution) {
  require(solution.offsets.size() == problem.buffers.size(), "layout: {} offsets for {} buffers",
          solution.offsets.size(), problem.buffers.size());
  return print(problem, &solution);
}

Document parse_csv(std::string_view text, std::string_view file, Bytes alignment) {
  require(alignment.value > 0, "layout: alignment is {}, expected more than 0", alignment.value);
  Document document;
  document.problem.alignment = alignment;
  Solution solution;
  std::array<int, kColumnCount> positions{};
  size_t columns = 0;  // 0 until the header was read
  std::unordered_set<std::string_view> labels;
  Place place{file, 0};
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::string_view line = trim(text.substr(0, newline));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    ++place.line;
    if (line.empty()) continue;
    const std::vector<std::string_view> fields = split(line);
    if (columns == 0) {
      positions = read_header(fields, place);
      columns = fields.size();
      continue;
    }
    if (fields.size() != columns)
      throw_user(ExitCode::kBadFile, "{}:{}: {} fields, expected {} as in the header", file, place.line,
                 fields.size(), columns);
    const auto field = [&](Column column) { return fields[static_cast<size_t>(positions[column])]; };
    const auto count = [&](Column column) { return read_count(field(column), kColumnNames[column], place); };
    if (field(kId).empty() || !labels.insert(field(kId)).second)
      throw_user(ExitCode::kBadFile, "{}:{}: id is \"{}\", expected a label that no other row has", file,
                 place.line, field(kId));
    Buffer buffer{.first = count(kLower), .last = count(kUpper), .size = Bytes(count(kSize))};
    if (positions[kPersistent] >= 0) {
      const int64_t flag = count(kPersistent);
      if (flag > 1)
        throw_user(ExitCode::kBadFile, "{}:{}: persistent is {}, expected 0 or 1", file, place.line, flag);
      buffer.persistent = flag == 1;
    }
    if (!buffer.persistent && buffer.first >= buffer.last)
      throw_user(ExitCode::kBadFile, "{}:{}: lifetime [{}, {}) is empty, expected lower < upper", file,
                 place.line, buffer.first, buffer.last);
    document.problem.buffers.push_back(buffer);
    if (positions[kOffset] >= 0) {
      solution.offsets.emplace_back(count(kOffset));
      solution.peak = std::max(solution.peak, solution.offsets.back() + round_up(buffer.size, alignment));
    }
  }
  if (columns == 0)
    throw_user(ExitCode::kBadFile, "{}: empty, expected the header id,lower,upper,size", file);
  if (positions[kOffset] >= 0) document.solution = std::move(solution);
  return document;
}

Document read_csv(const std::filesystem::path& file, Bytes alignment) {
  if (std::filesystem::is_directory(file))
    throw_user(ExitCode::kBadFile, "{}: is a directory", file.string());
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw_user(ExitCode::kBadFile, "{}: cannot be read", file.string());
  return parse_csv(text, file.string(), alignment);
}

}  // namespace snug::layout
