#include "formats/dataset/dataset_reader.h"

#include "base/errors.h"
#include "base/file.h"
#include "base/json_cursor.h"
#include "formats/dataset/byte_source.h"
#include "formats/dataset/parse_row.h"
#include "formats/dataset/row_splitter.h"

namespace snug {

class DatasetReader::OpenFile {
 public:
  OpenFile(const DataFile& file, const RowPosition& position, int64_t most_row_bytes)
      : splitter(open_byte_source(file.path), file.path, most_row_bytes, position.byte, position.row) {}
  RowSplitter splitter;
};

DatasetReader::DatasetReader(std::vector<DataFile> files, const DatasetOptions& options)
    : files_(std::move(files)), options_(options) {
  require(!files_.empty(), "a dataset without files");
  for (DataFile& file : files_) {
    if (file.names.text.empty()) file.names.text = options_.text_field;
    require(is_row_format(file.format), "{}: {} has no rows", file.path, dataset_format_name(file.format));
    bytes_before_.push_back(total_bytes_);
    total_bytes_ += InputFile(file.path).size();
  }
  open({});
}

DatasetReader::~DatasetReader() = default;

void DatasetReader::open(const RowPosition& position) {
  at_ = static_cast<size_t>(position.file);
  open_.reset();  // before the next one has its buffers
  if (at_ < files_.size()) open_ = std::make_unique<OpenFile>(files_[at_], position, options_.most_row_bytes);
}

void DatasetReader::seek(const RowPosition& position) {
  require(position.file >= 0 && position.file <= static_cast<int64_t>(files_.size()),
          "position in file {} of {}", position.file, files_.size());
  open(position);
}

int64_t DatasetReader::bytes_read() const {
  return open_ ? bytes_before_[at_] + open_->splitter.bytes_read() : total_bytes_;
}

// Called where `error` was caught.
void DatasetReader::skip(const UserError& error) {
  if (!options_.skip_bad_rows) throw;
  skipped_.add(error.what());
}

std::optional<PlacedRow> DatasetReader::next() {
  while (open_) {
    RowSplitter& splitter = open_->splitter;
    std::optional<std::string_view> text;
    try {
      text = splitter.next();
    } catch (const RowTooLong& error) {
      skip(error);
      continue;
    }
    if (!text) {
      open({.file = static_cast<int64_t>(at_) + 1});
      continue;
    }
    const DataFile& file = files_[at_];
    const RowPlace place{.file = file.path, .line = splitter.row()};
    try {
      return PlacedRow{
          .row = parse_row(file.format, *text, fmt::format("{}:{}", file.path, place.line),
                           {.names = file.names, .has_chat_template = options_.has_chat_template}),
          .place = place,
          .next = {.file = static_cast<int64_t>(at_), .byte = splitter.byte(), .row = place.line},
          .bytes = std::ssize(*text)};
    } catch (const JsonSyntaxError& error) {
      if (splitter.is_array()) throw;  // where the next element begins is not known
      skip(error);
    } catch (const UserError& error) {
      skip(error);
    }
  }
  return std::nullopt;
}

}  // namespace snug
