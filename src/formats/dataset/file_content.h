// formats/dataset/file_content.h — what a data file holds, by its ending and its first bytes
//
// A file that is taken for something else trains without a word: text read as tokens is nonsense with a falling loss. So only what says what
// it is, by its ending or a header, is taken; everything else is refused with the word to write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace snug {

// What a file's ending says, behind .gz and .zst.
enum class Ending : uint8_t {
  kText,      // .txt, .text
  kDocument,  // .md, .markdown, .rst: text, and in folders often a description of the data beside it
  kJson,
  kShard,
  kArrow,
  kTable,
  kNone,  // the name has no ending
  kOther
};
Ending ending_of(std::string_view path);

// What a file without one of the endings of data holds: text or shards. Shards begin with a header of llm.c's; text is a file without any
// ending whose beginning (64 KiB, unpacked) is UTF-8 without control characters and does not look like rows of JSON. Throws
// UserError(kBadFile) for everything else, with what it is and the word to write.
enum class UnnamedContent : uint8_t { kText, kShards };
UnnamedContent unnamed_content(const std::string& path);

// Throws UserError(kBadFile) where a file that is to be read as text holds something else for certain: UTF-16, PDF, an archive, an array, …
void refuse_what_is_no_text(const std::string& path);

// Throws UserError(kBadFile) with the line that converts the file: `ending` is kArrow or kTable.
[[noreturn]] void refuse_table(const std::string& path, Ending ending);

}  // namespace snug
