// formats/dataset/parse_row.h — the JSON of one row → Row, by the field names of its format
#pragma once

#include <optional>
#include <string_view>

#include "formats/dataset/data_files.h"
#include "formats/dataset/row.h"
#include "formats/dataset/row_names.h"

namespace snug {

struct RowReading {
  const RowNames& names;
  bool has_chat_template = false;  // DatasetOptions
};

// The format whose fields the row has. `place` names the row in messages. Throws UserError(kBadFile), which lists the row's fields
// and those of every format, when there is none.
DatasetFormat detect_row_format(std::string_view row, std::string_view place);

// Throws UserError(kBadFile) (JsonSyntaxError for what is not JSON).
Row parse_row(DatasetFormat format, std::string_view row, std::string_view place, const RowReading& reading);

}  // namespace snug
