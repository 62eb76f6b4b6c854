#include "formats/token_shard.h"

#include <vector>

#include "base/testing.h"
#include "formats/byte_tokenizer.h"

namespace snug {
namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llm_c_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

std::vector<int32_t> read(const TokenStream& stream, int64_t first, size_t count) {
  std::vector<int32_t> ids(count, -1);
  stream.read(first, ids);
  return ids;
}

TEST(TokenShard, ReadsNanoGptsRawForm) {
  const TemporaryDirectory directory;
  const auto narrow = open_token_shard(directory.add("train.bin", bytes_of<uint16_t>({5, 50256, 0, 7})),
                                       TokenDType::kUint16, 50257);
  EXPECT_EQ(narrow->size(), 4);
  EXPECT_EQ(read(*narrow, 0, 4), (std::vector<int32_t>{5, 50256, 0, 7}));
  EXPECT_EQ(read(*narrow, 2, 1), (std::vector<int32_t>{0}));
  EXPECT_EQ(read(*narrow, 4, 0), std::vector<int32_t>());
  EXPECT_THROW(read(*narrow, 3, 2), InternalError);
  EXPECT_THROW(read(*narrow, -1, 1), InternalError);
  const auto wide = open_token_shard(directory.add("wide.bin", bytes_of<uint32_t>({5, 128255})),
                                     TokenDType::kUint32, 128256);
  EXPECT_EQ(read(*wide, 0, 2), (std::vector<int32_t>{5, 128255}));
}

TEST(TokenShard, ReadsLlmCsHeadersWhateverTheAskedType) {
  const TemporaryDirectory directory;
  const auto gpt2 = open_token_shard(
      directory.add("a.bin", llm_c_header(20240520, 1, 3) + bytes_of<uint16_t>({1, 2, 50256})),
      TokenDType::kUint32, 50257);
  EXPECT_EQ(gpt2->size(), 3);
  EXPECT_EQ(read(*gpt2, 1, 2), (std::vector<int32_t>{2, 50256}));
  const auto llama =
      open_token_shard(directory.add("b.bin", llm_c_header(20240801, 7, 2) + bytes_of<uint32_t>({128000, 9})),
                       TokenDType::kUint16, 128256);
  EXPECT_EQ(read(*llama, 0, 2), (std::vector<int32_t>{128000, 9}));
}

TEST(TokenShard, ReadsFarMoreThanItsBuffer) {
  const TemporaryDirectory directory;
  std::vector<uint16_t> ids(100'001);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint16_t>(i * 31 % 65521);
  const auto stream = open_token_shard(directory.add("a.bin", bytes_of(ids)), TokenDType::kUint16, 65521);
  const std::vector<int32_t> all = read(*stream, 0, ids.size());
  EXPECT_TRUE(std::equal(all.begin(), all.end(), ids.begin()));
  EXPECT_EQ(read(*stream, 99'999, 2), (std::vector<int32_t>{ids[99'999], ids[100'000]}));
}

TEST(TokenShard, MegatronsIndexSaysTheType) {
  const TemporaryDirectory directory;
  const auto ids = [&](char code, const std::string& bytes) {
    directory.add("a.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) + code + "sequences");
    const auto stream = open_token_shard(directory.add("a.bin", bytes), TokenDType::kUint16, 1000);
    return read(*stream, 0, static_cast<size_t>(stream->size()));
  };
  // Read as uint16 these would be tokens with zeros between.
  EXPECT_EQ(ids(4, bytes_of<uint32_t>({7, 999})), (std::vector<int32_t>{7, 999}));
  EXPECT_EQ(ids(8, bytes_of<uint16_t>({7, 999})), (std::vector<int32_t>{7, 999}));
  expect_user_error(ExitCode::kBadFile,
                    "a.idx: says that the tokens are of type 5; expected 8 (uint16) or 4 (int32)", [&] {
                      ids(5, bytes_of<uint32_t>({7, 0}));
                    });
  directory.add("b.idx", "something else");
  EXPECT_EQ(
      open_token_shard(directory.add("b.bin", bytes_of<uint16_t>({7, 8})), TokenDType::kUint16, 1000)->size(),
      2);
}

TEST(TokenShard, RefusesBrokenFiles) {
  const TemporaryDirectory directory;
  struct Case {
    std::string bytes;
    TokenDType dtype;
    const char* message;
  };
  const std::string two = bytes_of<uint16_t>({1, 2});
  for (const Case& c : std::initializer_list<Case>{
           {"", TokenDType::kUint16, "a.bin: is empty; expected tokens"},
           {"abc", TokenDType::kUint16,
            "a.bin: is 3 bytes; expected a multiple of 2 (uint16 tokens; see --token_dtype)"},
           {"abcdef", TokenDType::kUint32, "a.bin: is 6 bytes; expected a multiple of 4 (uint32 tokens"},
           {llm_c_header(20240520, 2, 2) + two, TokenDType::kUint16,
            "llm.c shard of version 2; expected version 1 for magic 20240520"},
           {llm_c_header(20240801, 1, 1) + two, TokenDType::kUint16,
            "llm.c shard of version 1; expected version 7 for magic 20240801"},
           {llm_c_header(20240520, 1, 3) + two, TokenDType::kUint16,
            "is 1028 bytes; expected 1030 for the 3 uint16 tokens"},
           {llm_c_header(20240520, 1, 1) + two, TokenDType::kUint16, "is 1028 bytes; expected 1026"},
           {llm_c_header(20240801, 7, 2) + two, TokenDType::kUint16,
            "is 1028 bytes; expected 1032 for the 2 uint32 tokens"},
           {llm_c_header(20240520, 1, 0), TokenDType::kUint16,
            "its header counts 0 tokens; expected at least 1"},
           {llm_c_header(20240520, 1, -1), TokenDType::kUint16, "its header counts -1 tokens"},
           {llm_c_header(20240520, 1, 2).substr(0, 12), TokenDType::kUint16,
            "is 12 bytes; expected at least llm.c's header of 1024"},
           {llm_c_header(20240520, 1, 2).substr(0, 4), TokenDType::kUint16,
            "is 4 bytes; expected at least llm.c's header"},
           {llm_c_header(20240522, 1, 2) + two, TokenDType::kUint16,
            "is an llm.c evaluation file; expected a shard of training tokens"},
           {llm_c_header(20240326, 3, 2) + two, TokenDType::kUint16, "is an llm.c model"}}) {
    SCOPED_TRACE(c.message);
    const std::string path = directory.add("a.bin", c.bytes);
    expect_user_error(ExitCode::kBadFile, c.message, [&] { open_token_shard(path, c.dtype, 60000); });
  }
  expect_user_error(ExitCode::kBadFile, "none.bin: cannot open",
                    [&] { open_token_shard(directory / "none.bin", TokenDType::kUint16, 10); });
}

TEST(TokenShard, AnIdOutsideTheVocabularyIsNamedWithItsPosition) {
  const TemporaryDirectory directory;
  std::vector<uint16_t> ids(40'000, 3);
  ids[39'990] = 61;
  const auto stream = open_token_shard(directory.add("a.bin", bytes_of(ids)), TokenDType::kUint16, 61);
  EXPECT_EQ(read(*stream, 0, 39'990).back(), 3);
  expect_user_error(ExitCode::kBadFile,
                    "a.bin: token 39990 has id 61; expected less than the model's vocab_size (61)",
                    [&] { read(*stream, 10, 39'985); });
  // The first tokens are looked at before a run begins.
  const auto refused = [&](std::string_view message, const std::string& name, const std::string& bytes,
                           TokenDType dtype) {
    expect_user_error(ExitCode::kBadFile, message,
                      [&] { open_token_shard(directory.add(name, bytes), dtype, 61); });
  };
  refused("b.bin: token 0 has id 4294967295", "b.bin", bytes_of<uint32_t>({4294967295U}),
          TokenDType::kUint32);
  refused("c.bin: token 1 has id 99", "c.bin", llm_c_header(20240520, 1, 2) + bytes_of<uint16_t>({1, 99}),
          TokenDType::kUint16);
  refused(
      "book: token 0 has id 25185; expected less than the model's vocab_size (61): is it text? "
      "--dataset_format text",
      "book", "abcd", TokenDType::kUint16);
}

TEST(TokenShard, AFileThatShrinksWhileReadIsAnError) {
  const TemporaryDirectory directory;
  const std::string path = directory.add("a.bin", std::string(2000, '\1'));
  const auto stream = open_token_shard(path, TokenDType::kUint16, 61000);
  std::filesystem::resize_file(path, 100);
  expect_user_error(ExitCode::kBadFile, "a.bin: ends at byte 100 while it is read",
                    [&] { read(*stream, 0, 1000); });
}

TEST(TokenShard, TokenTypes) {
  EXPECT_EQ(parse_token_dtype("uint16"), TokenDType::kUint16);
  EXPECT_EQ(parse_token_dtype("uint32"), TokenDType::kUint32);
  EXPECT_EQ(parse_token_dtype("u16"), std::nullopt);
  EXPECT_EQ(default_token_dtype(50257), TokenDType::kUint16);
  EXPECT_EQ(default_token_dtype(65536), TokenDType::kUint16);
  EXPECT_EQ(default_token_dtype(65537), TokenDType::kUint32);
}

TEST(TextStream, IsTheBytesAndOneEndOfText) {
  const TemporaryDirectory directory;
  const auto stream = open_text(directory.add("a.txt", "aé\r\n"), 257);
  EXPECT_EQ(stream->size(), 6);
  EXPECT_EQ(read(*stream, 0, 6), (std::vector<int32_t>{'a', 0xC3, 0xA9, '\r', '\n', 256}));
  EXPECT_EQ(read(*stream, 5, 1), (std::vector<int32_t>{256}));
  EXPECT_EQ(read(*stream, 1, 3), (std::vector<int32_t>{0xC3, 0xA9, '\r'}));
  EXPECT_EQ(read(*stream, 6, 0), std::vector<int32_t>());
  EXPECT_THROW(read(*stream, 0, 7), InternalError);
}

TEST(TextStream, PassesOverAByteOrderMarkAtTheBeginningAlone) {
  const TemporaryDirectory directory;
  const auto stream = open_text(directory.add("a.txt", "\xEF\xBB\xBFx\xEF\xBB\xBF"), 300);
  EXPECT_EQ(read(*stream, 0, static_cast<size_t>(stream->size())),
            (std::vector<int32_t>{'x', 0xEF, 0xBB, 0xBF, 256}));
  const auto partial = open_text(directory.add("b.txt", "\xEF\xBB"), 300);
  EXPECT_EQ(read(*partial, 0, 3), (std::vector<int32_t>{0xEF, 0xBB, 256}));
}

TEST(TextStream, KeepsAnyByte) {
  const TemporaryDirectory directory;
  std::string bytes;
  for (int i = 0; i < 200'000; ++i) bytes += static_cast<char>(i * 7);
  const auto stream = open_text(directory.add("a.txt", bytes), 257);
  EXPECT_EQ(decode_bytes(read(*stream, 0, static_cast<size_t>(stream->size()))), bytes);
}

TEST(TextStream, RefusesEmptyTextAndSmallVocabularies) {
  const TemporaryDirectory directory;
  expect_user_error(ExitCode::kBadFile, "a.txt: is empty; expected text",
                    [&] { open_text(directory.add("a.txt", ""), 257); });
  expect_user_error(ExitCode::kBadFile, "is a byte order mark and nothing else; expected text",
                    [&] { open_text(directory.add("a.txt", "\xEF\xBB\xBF"), 257); });
  expect_user_error(ExitCode::kBadFile,
                    "text needs 257 ids (256 bytes and end of text); the model's vocab_size is 256",
                    [&] { open_text(directory.add("a.txt", "x"), 256); });
}

// Ids of another width are within the vocabulary, all of them: only their regular zeros tell.
TEST(TokenShard, RefusesIdsOfAnotherWidth) {
  const TemporaryDirectory directory;
  std::vector<uint16_t> narrow;
  std::vector<uint32_t> wide, big_endian;
  std::vector<uint64_t> widest;
  for (uint32_t i = 0; i < 40; ++i) {
    const uint32_t id = i * 1237 % 50257;
    narrow.push_back(static_cast<uint16_t>(id));
    wide.push_back(id);
    widest.push_back(id);
    big_endian.push_back(id % 256 << 16);  // its upper half comes first
  }
  const std::string n = directory.add("narrow.bin", bytes_of(narrow));
  const std::string w = directory.add("wide.bin", bytes_of(wide));
  const std::string x = directory.add("widest.bin", bytes_of(widest));
  const std::string b = directory.add("big.bin", bytes_of(big_endian));
  EXPECT_EQ(open_token_shard(n, TokenDType::kUint16, 50257)->size(), 40);
  EXPECT_EQ(open_token_shard(w, TokenDType::kUint32, 50257)->size(), 40);
  const auto refused = [](const std::string& path, TokenDType dtype, std::string_view words) {
    expect_user_error(ExitCode::kBadFile, words, [&] { open_token_shard(path, dtype, 50257); });
  };
  refused(
      w, TokenDType::kUint16,
      "wide.bin: every second one of its first 80 ids are all 0, as when 4-byte ids are read as 2-byte ones");
  refused(x, TokenDType::kUint16,
          "widest.bin: three of every four of its first 160 ids are all 0, as when 8-byte ids are read as "
          "2-byte ones");
  refused(x, TokenDType::kUint32, "as when 8-byte ids are read as 4-byte ones");
  refused(b, TokenDType::kUint16, "big-endian");
  // A few zeros, or nothing but zeros, are no pattern of widths.
  const auto few = directory.add("few.bin", bytes_of<uint16_t>({5, 0, 6, 0}));
  EXPECT_EQ(open_token_shard(few, TokenDType::kUint16, 300)->size(), 4);
  const auto zeros = directory.add("zeros.bin", std::string(100, '\0'));
  EXPECT_EQ(open_token_shard(zeros, TokenDType::kUint16, 300)->size(), 50);
}

TEST(TokenShard, RefusesFilesOfSomethingElse) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::string& begin, std::string_view words) {
    const std::string path = directory.add("a.bin", begin + std::string(1000, '\x01'));
    expect_user_error(ExitCode::kBadFile, words, [&] { open_token_shard(path, TokenDType::kUint16, 65536); });
  };
  refused("\x93NUMPY", "a.bin: is an array of NumPy's");
  refused("PK\x03\x04", "a zip archive");
  refused("%PDF-1", "a PDF document");
  refused(std::string("\x1F\x8B\x08\x00", 4), "packed with gzip");
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "is a pointer of git-lfs");
  std::string text;
  while (text.size() < 600) text += "The quick brown fox. ";
  const std::string path = directory.add("b.bin", text);
  expect_user_error(ExitCode::kBadFile, "b.bin: is text (its first 609 bytes are ASCII)",
                    [&] { open_token_shard(path, TokenDType::kUint16, 65536); });
}

}  // namespace
}  // namespace snug
