#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/standard_streams.h"
#include "formats/tokenizer/bpe_trainer.h"
#include "formats/tokenizer/tokenizer.h"
#include "observe/process_memory.h"

namespace snug {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20, kWriteBytes = size_t{1} << 20;
constexpr int kIdsOnALine = 20;
// Longer words are no ids.
constexpr size_t kLongestWord = 20;

// A file that appears whole or not at all, or standard output.
class Output {
 public:
  explicit Output(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  std::string& text() { return text_; }
  // Writes what has gathered when it is much.
  void relieve() {
    if (text_.size() >= kWriteBytes) flush();
  }
  void finish() {
    flush();
    if (file_)
      file_->commit();
    else
      require_printed();
  }

 private:
  void flush() {
    if (file_)
      file_->write(text_);
    else if (std::fwrite(text_.data(), 1, text_.size(), stdout) != text_.size())
      require_printed();
    text_.clear();
  }
  std::optional<AtomicFile> file_;
  std::string text_;
};

void require_paths(const TokenizerOptions& options) {
  if (options.tokenizer.empty())
    throw_user(ExitCode::kUsage, "--tokenizer is missing; expected a tokenizer.json or a model directory");
  if (options.files.size() != 1)
    throw_user(ExitCode::kUsage, "--file is {}; expected one file to read",
               options.files.empty() ? "missing" : "given more than once");
}

std::unique_ptr<const Tokenizer> load(const TokenizerOptions& options) {
  auto tokenizer = Tokenizer::load(options.tokenizer);
  for (const std::string& notice : tokenizer->spec().notices)
    std::fprintf(stderr, "snug: note: %s\n", notice.c_str());
  return tokenizer;
}

// Gives the bytes of `file` to `take`, part by part.
template <typename Take>
void read_parts(const InputFile& file, const Take& take) {
  std::string part;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(kReadBytes), file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(part)));
    take(part);
  }
}

bool is_separator(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

int tokenizer_encode_command(const ProgramOptions& program) {
  const TokenizerOptions& options = program.tokenizer;
  require_paths(options);
  const auto tokenizer = load(options);
  const InputFile file(options.files.front());
  Output output(options.output);
  TextEncoder encoder(*tokenizer, {.add_special_tokens = options.add_special_tokens});
  std::vector<int32_t> ids;
  int64_t written = 0;
  const auto write = [&] {
    for (const int32_t id : ids) {
      if (written > 0) output.text() += written % kIdsOnALine == 0 ? '\n' : ' ';
      std::array<char, 12> digits;
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id);
      output.text().append(digits.data(), end.ptr);
      ++written;
    }
    ids.clear();
    output.relieve();
  };
  read_parts(file, [&](std::string_view part) {
    encoder.feed(part, ids);
    write();
  });
  encoder.finish(ids);
  write();
  output.text() += '\n';
  output.finish();
  return 0;
}

int tokenizer_decode_command(const ProgramOptions& program) {
  const TokenizerOptions& options = program.tokenizer;
  require_paths(options);
  const auto tokenizer = load(options);
  const InputFile file(options.files.front());
  Output output(options.output);
  TextDecoder decoder(*tokenizer, options.skip_special_tokens);
  std::string word;
  int64_t count = 0;
  const auto take = [&] {
    if (word.empty()) return;
    int32_t id = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size() || id < 0)
      throw_user(ExitCode::kBadFile, "{}: word {} is {}; expected a token id", file.path(), count + 1,
                 quote_json(Json(word)));
    if (!tokenizer->id_to_token(id))
      throw_user(ExitCode::kBadFile, "{}: word {} is id {}, which {} does not have; its largest is {}",
                 file.path(), count + 1, id, tokenizer->spec().file, tokenizer->largest_id());
    decoder.push(id, output.text());
    ++count;
    word.clear();
  };
  read_parts(file, [&](std::string_view part) {
    for (const char c : part) {
      if (is_separator(c)) {
        take();
      } else {
        word += c;
        if (word.size() > kLongestWord) take();  // which refuses it
      }
    }
    output.relieve();
  });
  take();
  decoder.finish(output.text());
  output.finish();
  return 0;
}

int tokenizer_train_command(const ProgramOptions& program) {
  const TokenizerOptions& options = program.tokenizer;
  if (options.files.empty()) throw_user(ExitCode::kUsage, "--file is missing; expected text to train on");
  BpeTraining training = options.training;
  const auto least = static_cast<int64_t>(training.special_tokens.size()) + 256;
  if (training.vocabulary < least)
    throw_user(ExitCode::kUsage, "--vocab_size is {}; expected at least {}: the special tokens and 256 bytes", training.vocabulary,
               least);
  if (training.threads == 0) training.threads = static_cast<int>(default_threads());
  Output output(options.output);
  const BpeTrainingResult result = train_bpe(options.files, training);
  output.text() = result.tokenizer_json;
  output.finish();
  std::fprintf(options.output.empty() ? stderr : stdout,
               "%lld tokens, %lld merges from %s of text: %lld pieces, %lld distinct\n",
               static_cast<long long>(result.tokens), static_cast<long long>(result.merges),
               format_bytes(Bytes(result.bytes)).c_str(), static_cast<long long>(result.pieces),
               static_cast<long long>(result.distinct_pieces));
  return 0;
}

}  // namespace snug
