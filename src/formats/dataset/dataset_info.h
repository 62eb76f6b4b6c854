// formats/dataset/dataset_info.h — LLaMA-Factory's dataset_info.json: a dataset's name → its files, their format, the names of their fields
//
//   {"tickets": {"file_name": "tickets.jsonl",
//                "columns": {"prompt": "question", "response": "answer", "query": null}},
//    "talks":   {"file_name": "talks", "formatting": "sharegpt",
//                "columns": {"messages": "turns", "system": "persona"},
//                "tags": {"role_tag": "speaker", "content_tag": "said", "user_tag": "Q", "assistant_tag": "A"}}}
//
// As there: without `columns` the fields have their usual names, and system, history and tools are not read; with `columns` a field that it
// does not name is not there. Columns with a prompt and no response are documents. What Snug cannot do is refused: hubs and scripts,
// preference data, images, parts of a dataset.
#pragma once

#include <string>

#include "formats/dataset/data_files.h"
#include "formats/dataset/row_names.h"

namespace snug {

struct DatasetInfo {
  std::string path;  // of the file or folder, which exists
  DatasetFormat format = DatasetFormat::kAlpaca;
  RowNames names;
};

// Throws UserError(kBadFile) that names the file, the dataset, the key, what was found and what was expected. Memory: the file, of at
// most 16 MiB, and the entry of one dataset.
DatasetInfo read_dataset_info(const std::string& path, const std::string& dataset);

}  // namespace snug
