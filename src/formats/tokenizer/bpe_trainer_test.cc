// The trainer against the `tokenizers` library's on the same file (tools/make_tokenizer_fixtures.py).
#include "formats/tokenizer/bpe_trainer.h"

#include "base/json.h"
#include "base/testing.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

std::string fixture(const std::string& name) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name;
}

TEST(BpeTrainer, FindsTheMergesOfTheLibrary) {
  const Json expected = read_json_object(fixture("trained.json"));
  for (const int threads : {1, 3}) {
    const BpeTrainingResult result =
        train_bpe({fixture("training.txt")}, {.vocabulary = 1200, .threads = threads});
    const Json made = parse_json(result.tokenizer_json, "made");
    EXPECT_EQ(result.tokens, 1200);
    EXPECT_EQ(made["model"]["vocab"], expected["model"]["vocab"]);
    EXPECT_EQ(made["model"]["merges"], expected["model"]["merges"]);
    EXPECT_EQ(made["added_tokens"], expected["added_tokens"]);
  }
}

TEST(BpeTrainer, ItsFileIsReadAndGivesTheTextBack) {
  const TemporaryDirectory directory;
  const std::string text = "low lower lowest newest widest\nlow low\n\xFF größer\n";
  directory.add("text.txt", text);
  const BpeTrainingResult result =
      train_bpe({directory / "text.txt"}, {.vocabulary = 300, .special_tokens = {"<s>", "</s>"}});
  const Tokenizer tokenizer(parse_tokenizer_json(result.tokenizer_json, "made"));
  EXPECT_EQ(tokenizer.token_to_id("</s>"), 1);
  EXPECT_TRUE(tokenizer.token_to_id("low").has_value());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("lowest größer\n")), "lowest größer\n");
  EXPECT_EQ(result.bytes, static_cast<int64_t>(text.size()));
}

TEST(BpeTrainer, MergesEndWhereNothingIsLeft) {
  const TemporaryDirectory directory;
  directory.add("text.txt", "aaaa ab\n");
  const BpeTrainingResult all = train_bpe({directory / "text.txt"}, {.vocabulary = 100'000});
  EXPECT_LT(all.tokens, 270);
  EXPECT_EQ(all.tokens, 257 + all.merges);
  // "aa" alone occurs twice or more in one word.
  EXPECT_LT(train_bpe({directory / "text.txt"}, {.vocabulary = 100'000, .min_frequency = 2}).merges,
            all.merges);
  EXPECT_EQ(train_bpe({directory / "text.txt"}, {.vocabulary = 10}).merges, 0);
}

// Lines that cross the blocks in which threads read a file are counted once.
TEST(BpeTrainer, LinesAcrossBlocks) {
  const TemporaryDirectory directory;
  std::string text;
  for (int line = 0; text.size() < 9'500'000; ++line)
    text += "line " + std::to_string(line % 1000) + std::string(line % 97, 'x') + "\n";
  text += std::string(5'000'000, 'y') + " end";
  directory.add("text.txt", text);
  const BpeTrainingResult one = train_bpe({directory / "text.txt"}, {.vocabulary = 280, .threads = 1});
  const BpeTrainingResult three = train_bpe({directory / "text.txt"}, {.vocabulary = 280, .threads = 3});
  EXPECT_EQ(one.tokenizer_json, three.tokenizer_json);
  EXPECT_EQ(one.pieces, three.pieces);
  // Each line is "line", a space with the number, and the xs unless there are none.
  int64_t pieces = 2;  // the ys and " end"; a line has its newline too
  for (size_t at = 0, next = 0; (next = text.find('\n', at)) != std::string::npos; at = next + 1)
    pieces += text[next - 1] == 'x' ? 4 : 3;
  EXPECT_EQ(one.pieces, pieces);
}

TEST(BpeTrainer, Refusals) {
  const TemporaryDirectory directory;
  directory.add("empty.txt", "");
  directory.add("text.txt", "some text of a few words");
  const auto train = [&](const std::string& file, const BpeTraining& training) {
    return [=, &directory] { train_bpe({directory / file}, training); };
  };
  expect_user_error(ExitCode::kBadFile, "empty.txt: holds no text", train("empty.txt", {}));
  expect_user_error(ExitCode::kBadFile, "missing.txt", train("missing.txt", {}));
  expect_user_error(ExitCode::kUsage, "vocab_size is 0", train("text.txt", {.vocabulary = 0}));
  expect_user_error(ExitCode::kUsage, "special token \"\"", train("text.txt", {.special_tokens = {""}}));
  expect_user_error(ExitCode::kUsage, "special token \"a\"",
                    train("text.txt", {.special_tokens = {"a", "a"}}));
  expect_user_error(ExitCode::kDoesNotFit, "the distinct pieces of the text take more than",
                    train("text.txt", {.memory = Bytes(1000)}));
}

}  // namespace
}  // namespace snug
