#include "formats/dataset/dataset_reader.h"

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <variant>

#include "base/file.h"
#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

std::vector<PlacedRow> read_all(const std::vector<std::string>& paths, const DatasetOptions& options = {}) {
  DatasetReader reader(find_data_files(paths), options);
  std::vector<PlacedRow> rows;
  while (std::optional<PlacedRow> row = reader.next()) rows.push_back(std::move(*row));
  return rows;
}

template <typename T>
const T& only(const std::vector<PlacedRow>& rows) {
  EXPECT_EQ(rows.size(), 1U);
  return std::get<T>(rows.at(0).row);
}

TEST(DatasetReader, EveryFormatIsToldByItsFields) {
  TemporaryDirectory directory;
  const auto format = [&](std::string_view row) {
    return dataset_format_name(
        find_data_files(std::vector{directory.add("rows.jsonl", std::string(row) + "\n")}).front().format);
  };
  EXPECT_EQ(format(R"({"text": "a"})"), "json_text");
  EXPECT_EQ(format(R"({"id": 3, "content": "a"})"), "json_text");
  EXPECT_EQ(format(R"({"instruction": "a", "input": "", "output": "b", "text": "all of it"})"), "alpaca");
  EXPECT_EQ(format(R"({"conversations": []})"), "sharegpt");
  EXPECT_EQ(format(R"({"prompt": "a", "prompt_id": 7, "messages": []})"), "messages");
  EXPECT_EQ(format(R"({"completion": "b", "prompt": "a"})"), "prompt_completion");
  EXPECT_EQ(format(R"({"input_ids": [1], "labels": [1]})"), "tokens");
  EXPECT_EQ(format(R"({"segments": [], "text": "a"})"), "segments");
  expect_user_error(ExitCode::kBadFile, "preference data",
                    [&] { format(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"); });
  expect_user_error(ExitCode::kBadFile,
                    R"(rows.jsonl:1: has the fields ["question","answer"]; expected those of)",
                    [&] { format(R"({"question": "a", "answer": "b"})"); });
}

// A file that is taken for something else trains without a word.
TEST(DataFiles, OnlyWhatSaysWhatItIsIsTaken) {
  TemporaryDirectory directory;
  const std::string text = "The quick brown fox. Größe, \xE2\x82\xAC.\n";
  const auto format = [&](std::string_view name, const std::string& bytes,
                          std::optional<DatasetFormat> forced = {}) {
    return dataset_format_name(
        find_data_files(std::vector{directory.add(name, bytes)}, forced).front().format);
  };
  for (const char* name : {"a.txt", "a.text", "NOTES.MD", "a.markdown", "a.rst", "README", "a"})
    EXPECT_EQ(format(name, text), "text") << name;
  EXPECT_EQ(format("a.bin", "\x01\x00\x02\x00"), "shards");
  const int32_t magic = 20240520;
  std::string shard(sizeof magic, '\0');
  std::memcpy(shard.data(), &magic, sizeof magic);
  EXPECT_EQ(format("train.dat", shard), "shards");
  EXPECT_EQ(format("train", shard), "shards");
  EXPECT_EQ(format("train.dat", "\x01\x00", DatasetFormat::kShards), "shards");
  EXPECT_EQ(format("train.py", text, DatasetFormat::kText), "text");
  const auto refused = [&](std::string_view name, const std::string& bytes, std::string_view words) {
    expect_user_error(ExitCode::kBadFile, words, [&] { format(name, bytes); });
  };
  for (const char* name : {"a.py", "a.log", "a.html", "a.u16", "a.tokens", "notes.md.bak"})
    refused(name, text,
            std::string(name) +
                ": its ending says neither text, rows nor tokens, though it begins with text; "
                "expected .txt, .jsonl, .bin or one of their kind (--dataset_format text "
                "reads it as text, shards as tokens");
  refused("a.npy", "\x93NUMPY\x01", "a.npy: is an array of NumPy's; expected its ids without a header");
  refused("a.pdf", "%PDF-1.7", "a.pdf: is a PDF document; expected its text: pdftotext");
  refused("a.npz", "PK\x03\x04", "a.npz: is a zip archive");
  refused("a.dat", std::string("\x01\x00\x02\x00", 4),
          "a.dat: its ending says neither text, rows nor tokens; expected");
  refused("tokens", std::string("ab\x01", 3),
          "tokens: has no ending, and its byte 2 is 0x01, which is no UTF-8 text");
  refused("latin",
          "Gr\xF6\xDF"
          "e",
          "latin: has no ending, and its byte 2 is 0xf6");
  refused("rows", "{\"text\": \"a\"}\n", "rows: has no ending and begins like rows of JSON");
  refused("empty", "", "empty: is empty");
  refused("utf16.txt",
          "\xFF\xFE"
          "a",
          "utf16.txt: is text in UTF-16, not text");
  for (const char* name : {"a.txt", "a.jsonl", "a.bin", "a.parquet", "a"})
    refused(name, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
            std::string(name) + ": is a pointer of git-lfs");
}

TEST(DataFiles, DocumentsBesideDataDescribeIt) {
  TemporaryDirectory directory;
  const std::string folder = parent_directory(directory.add("README.md", "# Data\n"));
  expect_user_error(ExitCode::kBadFile, "holds no data files", [&] { find_data_files(std::vector{folder}); });
  const std::string notes = directory.add("notes.md", "# Notes\n");
  ASSERT_EQ(find_data_files(std::vector{folder}).size(), 1U);
  EXPECT_EQ(find_data_files(std::vector{folder}).front().path, notes);
  const std::string rows = directory.add("rows.jsonl", "{\"text\": \"a\"}\n");
  const std::vector<DataFile> files = find_data_files(std::vector{folder});
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.front().path, rows);
}

TEST(DatasetReader, LinesAndArraysGiveTheSameRows) {
  TemporaryDirectory directory;
  const std::string lines =
      directory.add("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\r\n{\"text\": \"three\"}");
  const std::string array = directory.add(
      "b.json",
      "\xEF\xBB\xBF [\n  {\"text\": \"one\"},\n  {\"text\":\n \"two\"}, {\"text\": \"three\"}\n]\n");
  for (const std::string& path : {lines, array}) {
    std::vector<std::string> texts;
    std::vector<int64_t> places;
    for (const PlacedRow& row : read_all({path})) {
      texts.push_back(std::get<TextRow>(row.row).text);
      places.push_back(row.place.line);
      EXPECT_EQ(row.place.file, path);
    }
    EXPECT_EQ(texts, (std::vector<std::string>{"one", "two", "three"}));
    // Lines of the file, empty ones counted; elements of the array.
    EXPECT_EQ(places, path == lines ? (std::vector<int64_t>{1, 3, 4}) : (std::vector<int64_t>{1, 2, 3}));
  }
}

TEST(DatasetReader, GoesOnAtTheRowBehindAnyOther) {
  TemporaryDirectory directory;
  const std::vector<std::string> paths = {
      directory.add("a.jsonl", "\xEF\xBB\xBF{\"text\": \"1\"}\n{\"text\": \"2\"}\n\n{\"text\": \"3\"}"),
      directory.add("b.json", "[{\"text\": \"4\"}, {\"text\": \"5\"}]"),
      directory.add("c.jsonl", "{\"text\": \"6\"}\n")};
  const std::vector<PlacedRow> rows = read_all(paths);
  ASSERT_EQ(rows.size(), 6U);
  DatasetReader reader(find_data_files(paths), {});
  for (size_t i = 0; i < rows.size(); ++i) {
    reader.seek(rows[i].next);
    for (size_t j = i + 1; j < rows.size(); ++j) {
      const std::optional<PlacedRow> row = reader.next();
      ASSERT_TRUE(row) << i << " " << j;
      EXPECT_EQ(std::get<TextRow>(row->row).text, std::get<TextRow>(rows[j].row).text) << i;
      EXPECT_EQ(row->place.line, rows[j].place.line);
    }
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.bytes_read(), reader.total_bytes());
  }
}

TEST(DatasetReader, TokensHaveLabelsAndPaddingByPlace) {
  TemporaryDirectory directory;
  // T4: padding is 50256, as the end of text is; the labels of the true ends stay.
  const std::string path = directory.add(
      "t.jsonl",
      R"({"input_ids": [50256, 50256, 5, 6, 50256], "attention_mask": [0, 0, 1, 1, 1], "labels": [-100, -100, -100, 6, 50256]})");
  const TokenRow row = only<TokenRow>(read_all({path}));
  EXPECT_EQ(row.ids, (std::vector<int32_t>{5, 6, 50256}));
  EXPECT_EQ(row.labels, (std::vector<int32_t>{-100, 6, 50256}));
}

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

// With a window of 2^window_log bytes, where it is given.
std::string zstd(const std::string& text, int window_log = 0) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  // A size that is not known beforehand: the window does not shrink to it.
  ZSTD_inBuffer from = {.src = text.data(), .size = text.size(), .pos = 0};
  ZSTD_outBuffer to = {.dst = packed.data(), .size = packed.size(), .pos = 0};
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush);
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0U);
  ZSTD_freeCCtx(context);
  packed.resize(to.pos);
  return packed;
}

TEST(DatasetReader, CompressedFilesAreReadAsTheirText) {
  TemporaryDirectory directory;
  // Longer than any buffer; rows of many lengths, one of them longer than the buffer.
  std::vector<std::string> texts;
  std::string lines;
  for (size_t i = 0; i < 3000; ++i) {
    texts.push_back(fmt::format(
        "{}:{}", i, std::string(i == 1500 ? 1'500'000 : i * 7919 % 2000, static_cast<char>('a' + i % 26))));
    lines += fmt::format("{{\"text\": \"{}\"}}\n", texts.back());
  }
  const size_t half = lines.find('\n', lines.size() / 2) - 5;
  const std::string first = lines.substr(0, half), second = lines.substr(half);
  const std::vector<std::string> paths = {
      directory.add("plain.jsonl", lines),
      directory.add("a.jsonl.gz", gzip(lines)),
      directory.add("members.jsonl.gz", gzip(first) + gzip("") + gzip(second) + std::string(512, '\0')),
      directory.add("b.jsonl.zst", zstd(lines)),
      directory.add("frames.jsonl.zst",
                    zstd(first) + std::string("\x50\x2A\x4D\x18\x03\0\0\0abc", 11) + zstd(second)),
      directory.add("misnamed.jsonl", zstd(lines)),
  };
  for (const std::string& path : paths) {
    const std::vector<PlacedRow> rows = read_all({path});
    ASSERT_EQ(rows.size(), texts.size()) << path;
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(std::get<TextRow>(rows[i].row).text, texts[i]) << path;
    // A position inside is found again by unpacking up to it.
    DatasetReader reader(find_data_files(std::vector{path}), {});
    reader.seek(rows[2000].next);
    EXPECT_EQ(std::get<TextRow>(reader.next()->row).text, texts[2001]) << path;
  }
}

TEST(DatasetReader, CompressedFilesThatAreBrokenEndTheRun) {
  TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 20'000; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", i * 7919 % 20'011);
  const auto read = [&](const std::string& name, const std::string& bytes) {
    DatasetReader reader({{.path = directory.add(name, bytes), .format = DatasetFormat::kJsonText}},
                         {.skip_bad_rows = true});
    while (reader.next()) {
    }
  };
  for (const auto& [name, packed] : {std::pair("a.gz", gzip(lines)), std::pair("a.zst", zstd(lines))}) {
    const std::string cut = packed.substr(0, packed.size() - 5);
    std::string changed = packed;
    changed[packed.size() / 2] = static_cast<char>(changed[packed.size() / 2] ^ 0x55);
    expect_user_error(ExitCode::kBadFile, "the file is not whole", [&] { read(name, cut); });
    expect_user_error(ExitCode::kBadFile, "broken", [&] { read(name, packed + "garbage behind the end"); });
    // A changed byte may give another text before the checksum tells; zstd has none by default.
    if (name == std::string("a.gz"))
      expect_user_error(ExitCode::kBadFile, "broken gzip data", [&] { read(name, changed); });
  }
  expect_user_error(ExitCode::kBadFile, "begins like neither gzip nor zstd",
                    [&] { read("b.jsonl.gz", lines); });
}

TEST(DatasetReader, AWindowBeyondWhatIsCountedIsRefused) {
  TemporaryDirectory directory;
  const std::string line = "{\"text\": \"a\"}\n";
  EXPECT_EQ(read_all({directory.add("a.jsonl.zst", zstd(line, 23))}).size(), 1U);
  const std::string path = directory.add("b.jsonl.zst", zstd(line) + zstd(line, 24));
  expect_user_error(
      ExitCode::kBadFile,
      "b.jsonl.zst: takes a window of more than 8 MiB to read; expected at most that. Compress it again",
      [&] { read_all({path}); });
}

TEST(DatasetReader, FoldersAndPatternsGiveTheirFilesInOrder) {
  TemporaryDirectory directory;
  const std::string row = "{\"text\": \"a\"}\n";
  for (const std::string name : {"d/b.jsonl", "d/a.json", "d/sub/c.ndjson.gz", "d/sub/deep/d.jsonl",
                                 "d/README.md", "d/.hidden.jsonl", "d/dataset_infos.json"})
    directory.add(name, name.ends_with(".gz") ? gzip(row) : row);
  const auto names = [&](const std::string& path) {
    std::string list;
    for (const DataFile& file : find_data_files(std::vector{directory / path}))
      list += file.path.substr(directory.path().size() + 1) + " ";
    return list;
  };
  EXPECT_EQ(names("d"), "d/a.json d/b.jsonl d/sub/c.ndjson.gz d/sub/deep/d.jsonl ");
  EXPECT_EQ(names("d/*.json*"), "d/a.json d/b.jsonl d/dataset_infos.json ");
  EXPECT_EQ(names("d/[b-z].jsonl"), "d/b.jsonl ");
  EXPECT_EQ(names("d/**/*.jsonl"), "d/b.jsonl d/sub/deep/d.jsonl ");
  EXPECT_EQ(names("*/s?b/*"), "d/sub/c.ndjson.gz ");
  // Links to folders above give nothing again.
  std::filesystem::create_directory_symlink("..", directory / "d/sub/up");
  std::filesystem::create_directory_symlink(".", directory / "d/sub/self");
  EXPECT_EQ(names("d"), "d/a.json d/b.jsonl d/sub/c.ndjson.gz d/sub/deep/d.jsonl ");
  EXPECT_EQ(names("d/**/*.jsonl"), "d/b.jsonl d/sub/deep/d.jsonl ");
  ASSERT_EQ(::mkfifo((directory / "pipe.jsonl").c_str(), 0600), 0);
  expect_user_error(ExitCode::kBadFile, "pipe.jsonl: is a device, pipe or socket, which cannot be read twice",
                    [&] { names("pipe.jsonl"); });
  expect_user_error(ExitCode::kBadFile, "no file matches", [&] { names("d/*.txt"); });
  expect_user_error(ExitCode::kBadFile, "no such file or folder", [&] { names("e"); });
}

TEST(DatasetReader, FilesThatAreNotReadAreRefusedByName) {
  TemporaryDirectory directory;
  const auto refused = [&](const std::string& name, std::string_view message) {
    expect_user_error(ExitCode::kBadFile, message,
                      [&] { find_data_files(std::vector{directory.add(name, "PAR1")}); });
  };
  refused(
      "train-00000-of-00001.parquet",
      "is parquet; expected text, JSON or tokens. Convert it with: python -c \"from datasets import Dataset; "
      "Dataset.from_parquet('train-00000-of-00001.parquet').to_json('train-00000-of-00001.jsonl')\"");
  refused("data.arrow", "Dataset.from_file('data.arrow')");
  refused("table.tsv",
          "pandas.read_csv('table.tsv', sep='\\t').to_json('table.jsonl', orient='records', lines=True)");
  refused("empty.jsonl", "byte 1: not valid JSON");
  refused("empty.jsonl", "found \"PAR1\" (a file of rows has one object a line, or is one array of them)");
  expect_user_error(ExitCode::kBadFile, "is UTF-16; expected UTF-8", [&] {
    find_data_files(std::vector{directory.add("windows.jsonl", std::string_view("\xFF\xFE{\0", 4))});
  });
  const std::string text = directory.add("a.txt", "x"), rows = directory.add("a.jsonl", "{\"text\": \"a\"}");
  expect_user_error(ExitCode::kBadFile,
                    "expected text and shards, which are one stream of tokens, or rows of JSON", [&] {
                      find_data_files(std::vector{text, rows});
                    });
  EXPECT_EQ(find_data_files(std::vector{text}).front().format, DatasetFormat::kText);
  EXPECT_EQ(find_data_files(std::vector{directory.add("a.bin", "x")}).front().format, DatasetFormat::kShards);
}

// The row's texts as one line.
std::string written(const Row& row) {
  if (const auto* text = std::get_if<TextRow>(&row)) return text->text;
  if (const auto* pair = std::get_if<CompletionRow>(&row)) return pair->prompt + "|" + pair->completion;
  if (const auto* chat = std::get_if<ChatRow>(&row))
    return chat->messages.dump() + (chat->tools.is_null() ? "" : " tools " + chat->tools.dump()) +
           (chat->variables.is_null() ? "" : " variables " + chat->variables.dump()) +
           (chat->learned_from == 0 ? "" : fmt::format(" from {}", chat->learned_from));
  if (const auto* pieces = std::get_if<SegmentRow>(&row)) {
    std::string text;
    for (const Segment& segment : pieces->segments)
      text += segment.learned ? "[" + segment.text + "]" : "(" + segment.text + ")";
    return text;
  }
  const auto& tokens = std::get<TokenRow>(row);
  return Json(tokens.ids).dump() + Json(tokens.labels).dump();
}

// What becomes of a row, or why it is refused.
std::string outcome(std::string_view row, const DatasetOptions& options = {.has_chat_template = true}) {
  TemporaryDirectory directory;
  const std::string path = directory.add("r.jsonl", row);
  try {
    DatasetReader reader(find_data_files(std::vector{path}), options);
    return written(reader.next()->row);
  } catch (const UserError& error) {
    return std::string(error.what()).substr(path.size() + 1);
  }
}

TEST(DatasetReader, EachFormatsRows) {
  EXPECT_EQ(outcome(R"({"content": 5, "text": "a"})"), "a");
  EXPECT_EQ(outcome(R"({"text": "a", "content": {"b": 1}})"), "a");
  EXPECT_EQ(outcome(R"({"content": "b"})"), "b");
  EXPECT_EQ(outcome(R"({"text": "a", "body": "c"})", {.text_field = "body"}), "c");

  constexpr std::string_view kAlpaca =
      R"({"instruction": "Add.", "input": "1 2", "output": "3", "system": null, "history": [["a", "b"]]})";
  EXPECT_EQ(outcome(kAlpaca), R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                              R"({"role":"user","content":"Add.\n1 2"},{"role":"assistant","content":"3"}])");
  EXPECT_EQ(outcome(R"({"instruction": "Add.", "output": "3"})", {}),
            "Below is an instruction that describes a task. Write a response that appropriately completes "
            "the request.\n\n"
            "### Instruction:\nAdd.\n\n### Response:\n|3");
  EXPECT_EQ(outcome(R"({"instruction": "Add.", "input": "1 2", "output": "3"})", {}),
            "Below is an instruction that describes a task, paired with an input that provides further "
            "context. Write a response that "
            "appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### "
            "Response:\n|3");
  EXPECT_EQ(
      outcome(R"({"instruction": "Add.", "output": "3", "system": "Be brief.", "history": [["a", "b"]]})",
              {}),
      "Be brief.\n\n### Instruction:\na\n\n### Response:\nb\n\n### Instruction:\nAdd.\n\n### Response:\n|3");

  EXPECT_EQ(
      outcome(
          R"({"conversations": [{"from": "gpt", "value": "left out"}, {"from": "human", "value": "a"}, {"from": "chatgpt", "value": "b"}], "system": "s"})"),
      R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(
      outcome(
          R"({"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},)"
          R"({"from": "observation", "value": "2"}, {"from": "gpt", "value": "b"}], "tools": "[{\"name\": \"f\"}]"})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","content":"2"},{"role":"assistant","content":"b"}] tools [{"name":"f"}])");
  EXPECT_EQ(
      outcome(
          R"({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");

  EXPECT_EQ(
      outcome(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"], "name": "N"}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1}]}], "tools": []})"),
      R"([{"role":"user","content":"ab","name":"N"},{"role":"assistant","content":null,"tool_calls":[{"id":1}]}] tools [])");
  for (const std::string_view turns :
       {R"("messages": [{"role": "user", "content": "a"}])",
        R"("conversations": [{"from": "human", "value": "a"}])",
        R"("prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "user", "content": "a"}])"})
    EXPECT_THAT(outcome(fmt::format(R"({{{}, "chat_template_kwargs": {{"b": [1]}}}})", turns)),
                testing::HasSubstr(R"({"role":"user","content":"a"}] variables {"b":[1]})"));
  EXPECT_EQ(outcome(R"({"prompt": "a", "completion": "b"})"), "a|b");
  EXPECT_EQ(
      outcome(
          R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}] from 1)");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2], "labels": [-100, 2]})"), "[1,2][-100,2]");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2, 0], "attention_mask": [1, 1, 0]})"), "[1,2][]");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1]})"), "[1,2,3][-100,2,3]");
  EXPECT_EQ(
      outcome(
          R"({"completion_mask": [0, 1, 1, 1], "assistant_masks": [1, 1, 0, 1], "input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, -100]})"),
      "[1,2,3,4][-100,2,-100,-100]")
      << "what all of them say";
  EXPECT_EQ(
      outcome(
          R"({"segments": [{"label": false, "text": "a"}, {"text": "b", "label": false, "note": 1}, {"text": "c", "label": true}]})"),
      "(a)(b)[c]");
}

TEST(DatasetReader, EachBrokenRowHasOneClearMessage) {
  EXPECT_EQ(outcome(R"({"text": ["a"]})"), R"(1: text is ["a"] (array); expected a string)");
  EXPECT_EQ(outcome(R"({"text": "a", "text": "b"})"), "1: text occurs twice; expected it once");
  EXPECT_EQ(outcome(R"({"text": "a"})", {.text_field = "body"}), "1: body is missing; expected a string");
  EXPECT_EQ(outcome(R"({"instruction": "a", "output": 1})"), "1: output is 1 (number); expected a string");
  EXPECT_EQ(outcome(R"({"instruction": "a", "output": "b", "history": [["a"]]})"),
            R"(1: history[0] is ["a"] (array); expected [question, answer], two strings)");
  EXPECT_EQ(
      outcome(R"({"conversations": [{"from": "alien", "value": "a"}]})"),
      R"(1: conversations[0].from is "alien" (string); expected human, gpt, system, function_call, observation or one of their other names)");
  EXPECT_EQ(outcome(R"({"conversations": [{"from": "human"}]})"),
            "1: conversations[0].value is missing; expected a string");
  EXPECT_EQ(outcome(R"({"conversations": [{"from": "gpt", "value": "a"}]})"),
            "1: conversations has no turn of human; expected one");
  EXPECT_EQ(outcome(R"({"messages": []})"),
            "1: messages is [] (array); expected an array of messages, at least one");
  EXPECT_EQ(outcome(R"({"messages": [{"content": "a"}]})"),
            "1: messages[0].role is missing; expected user, assistant, system, tool, …");
  EXPECT_EQ(outcome(R"({"messages": [{"role": "user", "content": null}]})"),
            "1: messages[0].content is null; expected a string");
  EXPECT_EQ(
      outcome(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
      R"(1: messages[0].content[0].type is "image_url" (string); expected "text": Snug trains models of text)");
  EXPECT_EQ(
      outcome(R"({"prompt": "a", "completion": []})"),
      "1: prompt is a string and completion an array; expected both strings or both arrays of messages");
  EXPECT_EQ(
      outcome(R"({"segments": []})"),
      R"(1: segments is empty; expected an array of {"text": …, "label": true or false}, at least one)");
  EXPECT_EQ(outcome(R"({"segments": [{"text": "a", "label": true}, {"text": "a"}]})"),
            "1: segments[1].label is missing; expected true for what is learned, or false");
  EXPECT_EQ(outcome(R"({"segments": [{"text": "a", "label": 1}]})"),
            "1: segments[0].label is 1 (number); expected true or false");
  EXPECT_EQ(outcome(R"({"segments": [{"text": "a", "text": "b"}]})"),
            "1: segments[0].text occurs twice; expected it once");
  EXPECT_EQ(outcome(R"({"segments": ["a"]})"), R"(1: segments[0] is "a" (string); expected an object)");
  EXPECT_EQ(outcome(R"({"input_ids": [1, "x"]})"),
            R"(1: input_ids[1] is "x" (string); expected the id of a token)");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2.5]})"),
            "1: input_ids[1] is 2.5 (number); expected the id of a token");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2], "attention_mask": [1, true]})"),
            "1: attention_mask[1] is true (boolean); expected 0 or 1");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2], "completion_mask": [1]})"),
            "1: completion_mask has 1 elements; expected 2, as input_ids has");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2], "assistant_masks": [1, 2]})"),
            "1: assistant_masks[1] is 2; expected 0 or 1");
  EXPECT_EQ(outcome(R"({"input_ids": [1, -1]})"), "1: input_ids[1] is -1; expected the id of a token");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2], "labels": [1]})"),
            "1: labels has 1 elements; expected 2, as input_ids has");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2, 3], "labels": [2, 3, -100]})"),
            "1: labels[0] is 2; expected -100 or input_ids[0], which is 1 (labels are not shifted)");
  EXPECT_EQ(outcome(R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})"),
            "1: attention_mask[1] is 0 between ones; expected zeros at the ends alone");
}

TEST(DatasetReader, ABrokenArrayEndsTheRun) {
  TemporaryDirectory directory;
  const auto read = [&](std::string_view bytes) {
    DatasetReader reader({{.path = directory.add("a.json", bytes), .format = DatasetFormat::kJsonText}},
                         {.skip_bad_rows = true});
    int rows = 0;
    while (reader.next()) ++rows;
    return fmt::format("{} rows, {} skipped", rows, reader.take_skipped().count);
  };
  EXPECT_EQ(read(R"([{"text": "a"}, {"text": 1}, 5, {"text": "b"}])"), "2 rows, 2 skipped");
  EXPECT_EQ(read("[]"), "0 rows, 0 skipped");
  expect_user_error(ExitCode::kBadFile, "found '{'; expected ',' or ']'",
                    [&] { read(R"([{"text": "a"} {"text": "b"}])"); });
  expect_user_error(ExitCode::kBadFile, "found the end of the file", [&] { read(R"([{"text": "a"},)"); });
  expect_user_error(ExitCode::kBadFile, "expected the end of this element", [&] { read(R"([{"text": "a)"); });
  expect_user_error(ExitCode::kBadFile, "expected nothing behind the array", [&] { read("[] 1"); });
  expect_user_error(ExitCode::kBadFile, "not valid JSON", [&] { read(R"([{"text"}, {"text": "b"}])"); });
  expect_user_error(ExitCode::kBadFile, "a value is missing", [&] { read(R"([{"text": "a"},])"); });
}

TEST(DatasetReader, RowsBeyondTheLimitAreBrokenRows) {
  TemporaryDirectory directory;
  for (const bool array : {false, true}) {
    std::string bytes = array ? "[" : "";
    for (const size_t length : {10U, 3'000'000U, 20U})
      bytes +=
          fmt::format("{{\"text\": \"{}\"}}{}\n", std::string(length, 'a'), array && length != 20 ? "," : "");
    if (array) bytes += "]";
    DatasetReader reader({{.path = directory.add("a.json", bytes), .format = DatasetFormat::kJsonText}},
                         {.skip_bad_rows = true, .most_row_bytes = 2'000'000});
    EXPECT_EQ(std::get<TextRow>(reader.next()->row).text.size(), 10U);
    EXPECT_EQ(std::get<TextRow>(reader.next()->row).text.size(), 20U);
    EXPECT_FALSE(reader.next());
    const SkippedRows skipped = reader.take_skipped();
    EXPECT_EQ(skipped.count, 1);
    EXPECT_THAT(skipped.messages.at(0), testing::HasSubstr("a.json:2: the row has more than"));
  }
}

TEST(DatasetReader, BadRowsAreCountedWhenTheyMayBe) {
  TemporaryDirectory directory;
  const std::string path =
      directory.add("x.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n{\"text\": \"b\"\n{\"text\": \"c\"}\n");
  expect_user_error(ExitCode::kBadFile, "x.jsonl:2: text is 5 (number); expected a string",
                    [&] { read_all({path}); });
  DatasetReader reader(find_data_files(std::vector{path}), {.skip_bad_rows = true});
  EXPECT_EQ(std::get<TextRow>(reader.next()->row).text, "a");
  EXPECT_EQ(std::get<TextRow>(reader.next()->row).text, "c");
  EXPECT_FALSE(reader.next());
  const SkippedRows skipped = reader.take_skipped();
  EXPECT_EQ(skipped.count, 2);
  EXPECT_EQ(reader.take_skipped().count, 0);
  EXPECT_THAT(skipped.messages.at(1), testing::HasSubstr("x.jsonl:3: byte 13: not valid JSON: expected ','"));
}

}  // namespace
}  // namespace snug
