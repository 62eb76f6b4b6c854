// formats/dataset/data_files.h — which files a run's data are, and what each of them holds
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dataset/row_names.h"

namespace snug {

// As --dataset_format spells them.
enum class DatasetFormat : uint8_t {
  kText,              // text: a file is one document
  kShards,            // shards: tokens, formats/token_shard.h
  kJsonText,          // json_text: {"text"} or {"content"}
  kAlpaca,            // alpaca: {"instruction", "input", "output", "system", "history"}
  kShareGpt,          // sharegpt: {"conversations": [{"from", "value"}], "system", "tools"}
  kMessages,          // messages: {"messages": [{"role", "content"}], "tools"}
  kPromptCompletion,  // prompt_completion: {"prompt", "completion"}
  kSegments,          // segments: {"segments": [{"text", "label"}]}
  kTokens,            // tokens: {"input_ids", "attention_mask", "labels", "completion_mask", "assistant_masks"}
};

std::optional<DatasetFormat> parse_dataset_format(std::string_view name);
std::string_view dataset_format_name(DatasetFormat format);
// All of them, for messages: "text, shards, …".
std::string dataset_format_names();
// Whether files of the format are rows of JSON, which DatasetReader reads; the others are streams of tokens or of text.
bool is_row_format(DatasetFormat format);

// The longest row of JSON that is read where nothing else is said.
inline constexpr int64_t kMostRowBytes = int64_t{256} << 20;

struct DataFile {
  std::string path;
  DatasetFormat format = DatasetFormat::kText;
  RowNames names = {};
};

// The files that `paths` mean, each with its format. A path is a file; a folder: its data files by their endings, sub-folders
// included; or a pattern with *, ?, [a-z] and ** (any folders). What a folder or a pattern gives is sorted by path; hidden files are
// passed over. `forced` is the format of all of them; otherwise a file's ending and, for JSON, the fields of its first row tell.
// DIR/dataset_info.json#NAME is what that description says of the dataset (dataset_info.h).
// Throws UserError(kBadFile) for a path that means nothing, a file in it that cannot be read here (parquet, arrow, csv, …: with the
// line that converts it), rows of no known format, a description that says another format than `forced`, and rows beside streams: each are
// a run's whole data.
std::vector<DataFile> find_data_files(std::span<const std::string> paths,
                                      std::optional<DatasetFormat> forced = std::nullopt);

}  // namespace snug
