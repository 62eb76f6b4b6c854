// Rows of a data file. The first byte is the format, or that it is to be found out; or that the input is a dataset_info.json. Broken rows end
// the reading or are passed over; reading goes on from any row's position with the same rows.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/file.h"
#include "formats/dataset/dataset_info.h"
#include "formats/dataset/dataset_reader.h"
#include "fuzz_target.h"

namespace {

using snug::DatasetFormat;

constexpr std::array<DatasetFormat, 7> kFormats = {
    DatasetFormat::kJsonText, DatasetFormat::kAlpaca,           DatasetFormat::kShareGpt,
    DatasetFormat::kMessages, DatasetFormat::kPromptCompletion, DatasetFormat::kSegments,
    DatasetFormat::kTokens};

// Fields and roles by other names than usual.
const snug::RowNames kNames = {.text = "t",
                               .instruction = "q",
                               .input = "",
                               .output = "a",
                               .conversations = "turns",
                               .from = "who",
                               .value = "said",
                               .roles = {{"Q", "user"}, {"A", "assistant"}, {"C", "function_call"}}};

// A path that ends in .jsonl and leads to the input.
std::string make_path(const std::string& bytes) {
  static std::string directory = "/tmp/snug-fuzz-XXXXXX";
  snug::fuzz::check(::mkdtemp(directory.data()) != nullptr, "a directory can be made");
  std::string path = directory + "/rows.jsonl";
  snug::fuzz::check(::symlink(bytes.c_str(), path.c_str()) == 0, "a link can be made");
  snug::fuzz::check(std::atexit([] { snug::remove_all(directory); }) == 0, "atexit");
  return path;
}

void check_row(const snug::Row& row, size_t input_bytes) {
  using snug::fuzz::check;
  if (const auto* chat = std::get_if<snug::ChatRow>(&row)) {
    check(chat->messages.is_array() && (chat->tools.is_null() || chat->tools.is_array()),
          "a conversation is an array of turns");
    for (const snug::Json& message : chat->messages)
      check(message.is_object() && message.contains("role"), "a turn has a role");
  } else if (const auto* segments = std::get_if<snug::SegmentRow>(&row)) {
    size_t bytes = 0;
    for (const snug::Segment& segment : segments->segments) bytes += segment.text.size();
    check(!segments->segments.empty() && bytes <= input_bytes, "pieces are there");
  } else if (const auto* tokens = std::get_if<snug::TokenRow>(&row)) {
    check(tokens->labels.empty() || tokens->labels.size() == tokens->ids.size(), "labels go with ids");
    check(tokens->ids.size() <= input_bytes, "an id has bytes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  static fuzz::MemoryFile bytes;
  static const std::string path = make_path(bytes.path());
  if (size == 0) return 0;
  const size_t choice = data[0] % (4 * kFormats.size() + 3);
  bytes.set(fuzz::as_text(data + 1, size - 1));
  if (choice == 4 * kFormats.size() + 2) {
    fuzz::read_or_refuse([&] {
      const DatasetInfo info = read_dataset_info(path, "d");
      fuzz::check(is_row_format(info.format) && !info.path.empty(), "a description is of rows");
    });
    return 0;
  }
  DatasetOptions options{.has_chat_template = choice % 2 == 0, .most_row_bytes = 2048};
  std::vector<DataFile> files;
  const auto read_from = [&](const std::optional<RowPosition>& position) {  // none: the beginning
    DatasetReader reader(files, options);
    if (position) reader.seek(*position);
    std::vector<PlacedRow> rows;
    while (std::optional<PlacedRow> row = reader.next()) {
      check_row(row->row, size);
      rows.push_back(std::move(*row));
    }
    return rows;
  };
  fuzz::read_or_refuse([&] {
    std::optional<DatasetFormat> forced;
    if (choice / 4 < kFormats.size()) forced = kFormats[choice / 4];
    const std::vector<std::string> paths = {path};
    files = find_data_files(paths, forced);
    if (forced && choice / 2 % 2 == 1)
      for (DataFile& file : files) file.names = kNames;
    if (!std::all_of(files.begin(), files.end(),
                     [](const DataFile& file) { return is_row_format(file.format); }))
      files.clear();
  });
  if (files.empty()) return 0;
  std::vector<PlacedRow> strict;
  const bool whole = fuzz::read_or_refuse([&] { strict = read_from(std::nullopt); });
  options.skip_bad_rows = true;
  fuzz::read_or_refuse([&] {
    const std::vector<PlacedRow> rows = read_from(std::nullopt);
    fuzz::check(!whole || rows.size() == strict.size(), "without broken rows none is passed over");
    if (rows.size() < 2) return;
    const size_t middle = rows.size() / 2;
    const std::vector<PlacedRow> rest = read_from(rows[middle].next);
    fuzz::check(rest.size() == rows.size() - middle - 1, "reading goes on with the rows that follow");
    for (size_t i = 0; i < rest.size(); ++i)
      fuzz::check(rest[i].place.line == rows[middle + 1 + i].place.line &&
                      rest[i].row.index() == rows[middle + 1 + i].row.index(),
                  "the same rows follow");
  });
  return 0;
}
