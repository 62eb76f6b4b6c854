#include "formats/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

constexpr int64_t kBlock = int64_t{4} << 20;      // of a file, for one thread at a time
constexpr int64_t kReadBytes = int64_t{1} << 18;  // within it
constexpr size_t kLongLine = size_t{1} << 20;     // longer lines are split part by part

// Pieces and how often each occurs.
class PieceCounts {
 public:
  void add(std::string_view piece, int64_t count) {
    if (places_.empty() || counts_.size() * 2 >= places_.size()) grow();
    uint32_t& place = find(piece);
    if (place == 0) {
      pieces_.push_back(piece);
      counts_.push_back(0);
      bytes_ += static_cast<int64_t>(piece.size());
      place = static_cast<uint32_t>(counts_.size());
    }
    counts_[place - 1] += count;
  }
  size_t size() const { return counts_.size(); }
  std::string_view piece(size_t i) const { return pieces_[i]; }
  int64_t count(size_t i) const { return counts_[i]; }
  int64_t piece_bytes() const { return bytes_; }
  // What this object holds.
  int64_t bytes() const {
    return 2 * bytes_ + static_cast<int64_t>(counts_.capacity() * 12 + places_.size() * sizeof(uint32_t));
  }

 private:
  uint32_t& find(std::string_view piece) {
    const size_t mask = places_.size() - 1;
    size_t slot = std::hash<std::string_view>()(piece) & mask;
    while (places_[slot] != 0 && pieces_[places_[slot] - 1] != piece) slot = (slot + 1) & mask;
    return places_[slot];
  }
  void grow() {
    places_.assign(std::max<size_t>(1024, places_.size() * 2), 0);
    for (size_t i = 0; i < counts_.size(); ++i) find(pieces_[i]) = static_cast<uint32_t>(i + 1);
  }
  StringList pieces_;
  std::vector<int64_t> counts_;
  std::vector<uint32_t> places_;  // 1 + index; 0 is free
  int64_t bytes_ = 0;
};

TokenizerSpec gpt2_splitting() {
  TokenizerSpec spec;
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kByteLevel;
  step.use_regex = true;
  step.pattern = {.is_regex = true, .text = std::string(kGpt2Regex)};
  spec.pre_tokenizer.push_back(step);
  return spec;
}

// Counts the pieces of lines that come in parts.
class LineCounter {
 public:
  LineCounter() : splitter_(gpt2_splitting()) {}

  // `part` is of one line; `ends` it.
  void take(std::string_view part, bool ends) {
    raw_ += part;
    if (!ends && raw_.size() + text_.size() < std::max(kLongLine, next_try_)) return;
    const size_t waits = ends ? 0 : incomplete_utf8_tail(raw_);
    repair_utf8(std::string_view(raw_).substr(0, raw_.size() - waits), text_);
    raw_.erase(0, raw_.size() - waits);
    const size_t done = splitter_.split(text_, {.starts = true, .first = true, .final = ends},
                                        [&](std::string_view piece, bool final) {
                                          if (final) counts.add(piece, 1);
                                          if (final) ++pieces;
                                          return final ? piece.size() : 0;
                                        });
    text_.erase(0, done);
    next_try_ = 2 * text_.size();
  }

  PieceCounts counts;
  int64_t pieces = 0;

 private:
  PreTokenizer splitter_;
  std::string raw_, text_;
  size_t next_try_ = 0;
};

// The lines of `file` that begin in block `block`.
void count_block(const InputFile& file, int64_t block, LineCounter& counter) {
  const int64_t begin = block * kBlock, end = std::min(file.size(), begin + kBlock);
  std::string part;
  bool in_line = block == 0;  // false: looking for the first beginning of a line
  // A line that begins at `begin` has its predecessor's end just before.
  for (int64_t at = std::max<int64_t>(0, begin - 1); at < file.size();) {
    part.resize(static_cast<size_t>(std::min(kReadBytes, file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(part)));
    for (size_t here = 0; here < part.size();) {
      const size_t newline = part.find('\n', here);
      const bool ends = newline != std::string::npos;
      const size_t next = ends ? newline + 1 : part.size();
      if (in_line) counter.take(std::string_view(part).substr(here, next - here), ends);
      here = next;
      if (!ends) break;
      const int64_t line = at + static_cast<int64_t>(next);  // the next one begins here
      in_line = true;
      if (line >= end) return;
    }
    at += static_cast<int64_t>(part.size());
    if (!in_line && at >= end) return;
  }
  if (in_line) counter.take({}, true);  // the last line has no end of its own
}

struct Counted {
  PieceCounts counts;
  int64_t bytes = 0, pieces = 0;
};

Counted count_pieces(const std::vector<std::string>& paths, const BpeTraining& training) {
  std::vector<InputFile> files;
  std::vector<std::pair<size_t, int64_t>> blocks;  // file, block
  Counted all;
  for (const std::string& path : paths) {
    files.emplace_back(path);
    all.bytes += files.back().size();
    for (int64_t block = 0; block * kBlock < files.back().size(); ++block)
      blocks.emplace_back(files.size() - 1, block);
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // of everything below
  std::exception_ptr failure;
  const auto refuse = [&](int64_t bytes) {
    throw_user(
        ExitCode::kDoesNotFit,
        "the distinct pieces of the text take more than {} ({} so far); expected less: give more --memory "
        "or a part of the text",
        format_bytes(training.memory), format_bytes(Bytes(bytes)));
  };
  const auto work = [&] {
    try {
      LineCounter counter;
      const auto hand_over = [&] {
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < counter.counts.size(); ++i)
          all.counts.add(counter.counts.piece(i), counter.counts.count(i));
        all.pieces += counter.pieces;
        counter.counts = {};
        counter.pieces = 0;
        // Pieces, then their symbols and the places of their pairs.
        const int64_t needed = all.counts.bytes() + 16 * all.counts.piece_bytes();
        if (needed > training.memory.value) refuse(needed);
      };
      // What each thread gathers by itself stays a small share.
      const int64_t share = training.memory.value / (4 * training.threads);
      for (size_t i = next++; i < blocks.size(); i = next++) {
        count_block(files[blocks[i].first], blocks[i].second, counter);
        if (counter.counts.bytes() > share) hand_over();
      }
      hand_over();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = blocks.size();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < training.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return all;
}

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
    return (key * 0x9E3779B97F4A7C15) >> 20;
  }
};

// A pair that may be merged next, with the words it was seen in.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<uint32_t> words;
};
struct MergedLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

// The library's trainer over counted pieces, step by step: candidates are kept with the count they had, and are put back
// when it has changed since. A pair's own count is not lowered by its merge.
class Merger {
 public:
  Merger(const PieceCounts& counts, const std::array<int32_t, 256>& byte_ids) : counts_(counts) {
    begins_.reserve(counts.size() + 1);
    lengths_.reserve(counts.size());
    symbols_.reserve(static_cast<size_t>(counts.piece_bytes()));
    for (size_t word = 0; word < counts.size(); ++word) {
      begins_.push_back(symbols_.size());
      const std::string_view piece = counts.piece(word);
      for (const char c : piece) symbols_.push_back(byte_ids[static_cast<unsigned char>(c)]);
      lengths_.push_back(static_cast<uint32_t>(piece.size()));
      for (size_t i = 0; i + 1 < piece.size(); ++i)
        note({symbols_[begins_.back() + i], symbols_[begins_.back() + i + 1]}, 1,
             static_cast<uint32_t>(word));
    }
    queue_noted();
  }

  // The next pair, or none when no candidate occurs at least `least` times.
  std::optional<Candidate> next(int64_t least) {
    while (!queue_.empty()) {
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      const int64_t count = pair_counts_[top.pair];
      if (top.count != count) {
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < least) return std::nullopt;
      return top;
    }
    return std::nullopt;
  }

  void merge(const Candidate& candidate, int32_t made) {
    for (const uint32_t word : candidate.words) merge_in(word, candidate.pair, made);
    queue_noted();
  }

 private:
  void note(const Pair& pair, int64_t change, uint32_t word) {
    pair_counts_[pair] += change * counts_.count(word);
    if (change < 0) return;
    std::vector<uint32_t>& words = noted_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void queue_noted() {
    for (auto& [pair, words] : noted_)
      if (const int64_t count = pair_counts_[pair]; count > 0) queue_.push({count, pair, std::move(words)});
    noted_.clear();
  }

  void merge_in(uint32_t word, const Pair& pair, int32_t made) {
    const std::span<int32_t> symbols(symbols_.data() + begins_[word], lengths_[word]);
    size_t kept = 0;  // symbols[0, kept) are merged
    for (size_t i = 0; i < symbols.size();) {
      if (symbols[i] != pair.first || i + 1 >= symbols.size() || symbols[i + 1] != pair.second) {
        symbols[kept++] = symbols[i++];
        continue;
      }
      if (kept > 0) {
        note({symbols[kept - 1], pair.first}, -1, word);
        note({symbols[kept - 1], made}, 1, word);
      }
      i += 2;
      symbols[kept++] = made;
      if (i < symbols.size()) {
        note({pair.second, symbols[i]}, -1, word);
        note({made, symbols[i]}, 1, word);
      }
    }
    lengths_[word] = static_cast<uint32_t>(kept);
  }

  const PieceCounts& counts_;
  std::vector<size_t> begins_;
  std::vector<uint32_t> lengths_;
  std::vector<int32_t> symbols_;
  std::unordered_map<Pair, int64_t, PairHash> pair_counts_;
  std::unordered_map<Pair, std::vector<uint32_t>, PairHash> noted_;
  std::priority_queue<Candidate, std::vector<Candidate>, MergedLater> queue_;
};

std::string json_text(const std::string& text) { return Json(text).dump(); }

// As the library writes it.
std::string to_json(const std::vector<std::string>& tokens, const std::vector<Pair>& merges,
                    size_t specials) {
  std::string json =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t i = 0; i < specials; ++i)
    json += fmt::format(
        "{}\n    {{\n      \"id\": {},\n      \"content\": {},\n      \"single_word\": false,\n      "
        "\"lstrip\": false,\n"
        "      \"rstrip\": false,\n      \"normalized\": false,\n      \"special\": true\n    }}",
        i == 0 ? "" : ",", i, json_text(tokens[i]));
  constexpr const char* kByteLevel =
      "{\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": false,\n    \"trim_offsets\": true,\n    "
      "\"use_regex\": true\n  }";
  json += fmt::format(
      "{}],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n  \"post_processor\": null,\n  \"decoder\": "
      "{},\n  \"model\": {{\n"
      "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    "
      "\"continuing_subword_prefix\": null,\n"
      "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    "
      "\"ignore_merges\": false,\n"
      "    \"vocab\": {{",
      specials == 0 ? "" : "\n  ", kByteLevel, kByteLevel);
  for (size_t i = 0; i < tokens.size(); ++i)
    json += fmt::format("{}\n      {}: {}", i == 0 ? "" : ",", json_text(tokens[i]), i);
  json += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < merges.size(); ++i)
    json += fmt::format("{}\n      [{}, {}]", i == 0 ? "" : ",",
                        json_text(tokens[static_cast<size_t>(merges[i].first)]),
                        json_text(tokens[static_cast<size_t>(merges[i].second)]));
  json += merges.empty() ? "]\n  }\n}\n" : "\n    ]\n  }\n}\n";
  return json;
}

}  // namespace

BpeTrainingResult train_bpe(const std::vector<std::string>& files, const BpeTraining& training) {
  if (files.empty())
    throw_user(ExitCode::kUsage, "no text to train a tokenizer on; expected at least one file");
  if (training.threads < 1)
    throw_user(ExitCode::kUsage, "threads is {}; expected at least 1", training.threads);
  if (training.vocabulary < 1 || training.vocabulary > kMostIds)
    throw_user(ExitCode::kUsage, "vocab_size is {}; expected 1 to {}", training.vocabulary, kMostIds);
  std::vector<std::string> tokens;
  std::unordered_map<std::string, int32_t> ids;
  const auto add = [&](const std::string& token) {
    const auto [found, fresh] = ids.emplace(token, static_cast<int32_t>(tokens.size()));
    if (fresh) tokens.push_back(token);
    return found->second;
  };
  for (const std::string& token : training.special_tokens) {
    if (token.empty() || token.size() > 4096 || !is_valid_utf8(token) || ids.contains(token))
      throw_user(ExitCode::kUsage, "special token {}; expected each once, not empty, in UTF-8",
                 json_text(token));
    add(token);
  }
  const size_t specials = tokens.size();
  // The bytes' symbols in the order of their code points.
  std::array<int, 256> order;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [](int a, int b) {
    return byte_symbol(static_cast<uint8_t>(a)) < byte_symbol(static_cast<uint8_t>(b));
  });
  std::array<int32_t, 256> byte_ids{};
  for (const int byte : order) {
    std::string symbol;
    append_utf8(symbol, byte_symbol(static_cast<uint8_t>(byte)));
    byte_ids[static_cast<size_t>(byte)] = add(symbol);
  }

  const Counted counted = count_pieces(files, training);
  if (counted.pieces == 0)
    throw_user(ExitCode::kBadFile, "{}: holds no text to train a tokenizer on", files.front());
  std::vector<Pair> merges;
  Merger merger(counted.counts, byte_ids);
  while (static_cast<int64_t>(tokens.size()) < training.vocabulary) {
    const std::optional<Candidate> best = merger.next(training.min_frequency);
    if (!best) break;
    const int32_t made =
        add(tokens[static_cast<size_t>(best->pair.first)] + tokens[static_cast<size_t>(best->pair.second)]);
    merges.push_back(best->pair);
    merger.merge(*best, made);
  }
  return {.tokenizer_json = to_json(tokens, merges, specials),
          .bytes = counted.bytes,
          .pieces = counted.pieces,
          .distinct_pieces = static_cast<int64_t>(counted.counts.size()),
          .tokens = static_cast<int64_t>(tokens.size()),
          .merges = static_cast<int64_t>(merges.size())};
}

}  // namespace snug
