#include "data/tokenized_text.h"

#include <random>

#include "base/testing.h"

namespace snug {
namespace {

// Words of a few letters, long enough for several segments of 2^20 ids.
std::string long_text() {
  std::mt19937 random(3);
  std::string text = "\xEF\xBB\xBF";
  while (text.size() < 9'000'000) {
    text.append(1 + random() % 6, static_cast<char>('a' + random() % 26));
    text += random() % 20 == 0 ? ".\r\n\u00e9" : " ";
  }
  return text;
}

// The pipelines of GPT-2 (no normalizer) and Llama 2 (a normalizer, nothing that splits).
class TokenizedTextTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<TokenStream> open(const std::string& path) {
    const SampleCache cache(directory_ / "data", [this](std::string_view note) { notes_ += note; });
    parts_ = 0;
    return open_tokenized_text({.path = path,
                                .tokenizer = *tokenizer_,
                                .tokenizer_print = {1, 2},
                                .end_of_text = 1,
                                .vocabulary = tokenizer_->largest_id() + 1},
                               cache, [this](const PreparationProgress& progress) {
                                 last_ = progress;
                                 if (++parts_ == stop_at_) throw_user(ExitCode::kInterrupted, "stopped");
                               });
  }
  std::string only_file() {
    return join_path(directory_ / "data", list_directory(directory_ / "data").at(0));
  }

  TemporaryDirectory directory_;
  std::unique_ptr<const Tokenizer> tokenizer_ =
      Tokenizer::load(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + GetParam() + ".json");
  int parts_ = 0, stop_at_ = -1;  // of 1 MiB
  PreparationProgress last_;
  std::string notes_;
};

INSTANTIATE_TEST_SUITE_P(All, TokenizedTextTest, testing::Values("gpt2", "llama2"),
                         [](const auto& pipeline) { return std::string(pipeline.param); });

TEST_P(TokenizedTextTest, GoesOnWhereItWasStopped) {
  const std::string text = long_text(), path = directory_.add("a.txt", text);
  std::vector<int32_t> expected = tokenizer_->encode(std::string_view(text).substr(3));
  if (expected.back() != 1) expected.push_back(1);
  stop_at_ = 7;
  expect_user_error(ExitCode::kInterrupted, "stopped", [&] { open(path); });
  EXPECT_EQ(notes_, "");
  stop_at_ = 2;  // of those that are left: stopped again
  expect_user_error(ExitCode::kInterrupted, "stopped", [&] { open(path); });
  EXPECT_THAT(notes_, testing::HasSubstr("tokens are there"));
  stop_at_ = -1;
  const auto stream = open(path);
  EXPECT_LT(parts_, 8) << "of 9";
  EXPECT_GT(last_.kept_bytes, 0);
  EXPECT_EQ(last_.bytes, last_.all_bytes);
  ASSERT_EQ(stream->size(), static_cast<int64_t>(expected.size()));
  std::vector<int32_t> ids(expected.size());
  stream->read(0, ids);
  EXPECT_TRUE(ids == expected);

  // The file is that of a run that was not stopped.
  const std::string resumed = read_small_file(only_file(), 64 * kMiB);
  remove_all(only_file());
  open(path);
  EXPECT_EQ(parts_, 9);
  EXPECT_TRUE(read_small_file(only_file(), 64 * kMiB) == resumed);
}

TEST_P(TokenizedTextTest, TextsWithoutTextAreRefused) {
  expect_user_error(ExitCode::kBadFile, "a.txt: is empty; expected text",
                    [&] { open(directory_.add("a.txt", "")); });
  expect_user_error(ExitCode::kBadFile, "b.txt: is a byte order mark and nothing else; expected text",
                    [&] { open(directory_.add("b.txt", "\xEF\xBB\xBF")); });
}

}  // namespace
}  // namespace snug
