#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_display.h"
#include "data/permutation.h"
#include "data/sample_statistics.h"
#include "data/stream_statistics.h"
#include "formats/byte_tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "models/load_model.h"
#include "observe/process_memory.h"
#include "train/open_data.h"
#include "train/text_tokenizer.h"

namespace snug {
namespace {

constexpr int64_t kMostShownTokens = 1000;  // of a sample
constexpr int kBarWidth = 40;
// Of the permutation that picks what is shown.
constexpr uint64_t kShown = 1;

// Text of neighbouring tokens of which all are learned, or none.
struct Part {
  std::string text;
  bool learned = false;
};

// A sample of rows, or a window of a stream.
struct Shown {
  int64_t index = 0, positions = 0, learned = 0;
  int64_t truncated_at = -1;  // part of `parts` that begins behind max_length
  int64_t hidden = 0;         // tokens that are not shown
  std::vector<Part> parts = {};
};

// What a terminal would obey is written out: data are from anywhere.
std::string printable(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      safe += c;
    else if (c == '\n' || c == '\t')
      safe += c;
    else
      safe += fmt::format("\\x{:02x}", byte);
  }
  return safe;
}

class Inspection {
 public:
  explicit Inspection(const ProgramOptions& program)
      : program_(program),
        options_(program.run),
        directory_(ModelDirectory::open(options_.model)),
        model_(load_model(directory_)),
        watch_(data_watch(options_.progress && !program_.json)) {
    options_.from_scratch = true;  // a directory without a tokenizer: Snug's byte tokenizer
    if (options_.max_length == 0) options_.max_length = std::min<int64_t>(1024, model_.max_positions);
    if (options_.threads == 0) options_.threads = static_cast<int>(default_threads());
    files_ = find_data_files(options_.train_file, options_.dataset_format);
    tokenizer_ = hold_text(files_) ? text_tokenizer(options_, model_, watch_.note) : nullptr;
  }

  void run() {
    if (!is_row_format(files_.front().format)) return inspect_stream();
    const SampleCache cache = open_sample_cache(options_, watch_.note);
    DataReport report;
    const auto samples = prepare_rows(files_, options_, directory_, model_.vocabulary, tokenizer_.get(),
                                      cache, watch_, report);
    const SampleWindows windows(samples, {}, options_.max_length, options_.packing, cache.directory(),
                                files_.front().path);
    report.windows = windows.report();
    const SampleStatistics statistics = sample_statistics(*samples);
    const int64_t duplicates = count_duplicates(*samples);
    choose_decoder();
    const std::vector<Shown> shown = show(*samples);
    if (program_.json)
      print_json(report, statistics, duplicates, shown);
    else
      print(report, statistics, duplicates, shown);
  }

 private:
  void inspect_stream() {
    DataReport report;
    std::optional<SampleCache> cache;
    const JoinedStream stream = open_stream(
        files_, options_, directory_, model_.vocabulary, tokenizer_.get(),
        [&]() -> const SampleCache& {
          return cache ? *cache : cache.emplace(open_sample_cache(options_, watch_.note));
        },
        watch_, report);
    const StreamWindows windows(stream, options_.max_length, files_.front().path);
    report.tokens = windows.tokens();
    report.windows.windows = windows.count();
    choose_decoder();
    const StreamStatistics statistics =
        stream_statistics(stream, model_.vocabulary, end_of_text_, options_.max_length);
    std::vector<Shown> shown;
    for (const int64_t window : pick(windows.count())) {
      const int64_t first = window * options_.max_length;
      const int64_t length = std::min(options_.max_length, stream.size() - first);
      std::vector<int32_t> ids(static_cast<size_t>(std::min(length, kMostShownTokens)));
      stream.read(first, ids);
      shown.push_back({.index = window,
                       .positions = windows.targets_of(window),
                       .learned = windows.targets_of(window),
                       .hidden = length - std::ssize(ids)});
      decode(
          ids, [](int64_t) { return true; }, -1, shown.back());
    }
    if (program_.json)
      print_json(report, statistics, shown);
    else
      print(report, statistics, shown);
  }

  // Of `all`, those that the seed picks.
  std::vector<int64_t> pick(int64_t all) const {
    std::vector<int64_t> picked;
    for (int64_t i = 0; i < std::min(program_.samples, all); ++i)
      picked.push_back(Permutation(all, options_.seed, kShown)(i));
    std::sort(picked.begin(), picked.end());
    return picked;
  }

  // What ids are decoded with, and which of them ends a text. A model without a tokenizer has neither: ids are shown as numbers.
  void choose_decoder() {
    decoder_ = tokenizer_.get();
    bool is_bytes = !decoder_ && hold_text(files_);
    try {
      if (!decoder_ && !is_bytes) {
        own_decoder_ = text_tokenizer(options_, model_);
        is_bytes = !own_decoder_ && file_exists(join_path(options_.model, "tokenizer.json"));
      }
    } catch (const UserError&) {  // of ids alone none is needed
    }
    if (is_bytes)
      own_decoder_ =
          std::make_unique<Tokenizer>(parse_tokenizer_json(byte_tokenizer_json(), "Snug's byte tokenizer"));
    if (own_decoder_) decoder_ = own_decoder_.get();
    if (decoder_) end_of_text_ = is_bytes ? kEndOfTextId : end_of_text_id(directory_, *decoder_);
  }

  std::vector<Shown> show(const SampleFile& samples) const {
    const std::vector<int64_t> picked = pick(samples.totals().samples);
    std::vector<Shown> shown;
    samples.visit([&](const StoredSample& sample) {
      if (shown.size() == picked.size() || sample.index != picked[shown.size()]) return;
      std::vector<int32_t> ids(static_cast<size_t>(std::min(sample.length, kMostShownTokens)));
      samples.read_ids(sample.first_id, ids);
      shown.push_back({.index = sample.index,
                       .positions = std::max<int64_t>(0, sample.length - 1),
                       .learned = sample.supervised(1, sample.length),
                       .hidden = sample.length - std::ssize(ids)});
      decode(
          ids, [&](int64_t i) { return i > 0 && sample.supervised(i, i + 1) > 0; },
          sample.is_document ? -1 : options_.max_length + 1, shown.back());
    });
    return shown;
  }

  // `truncated`: the first id that is cut off, or −1.
  void decode(std::span<const int32_t> ids, const std::function<bool(int64_t)>& is_learned, int64_t truncated,
              Shown& shown) const {
    std::optional<TextDecoder> text_decoder;
    if (decoder_) text_decoder.emplace(*decoder_, false);
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
      const bool learned = is_learned(i);
      if (i == truncated) shown.truncated_at = std::ssize(shown.parts);
      if (i == truncated || shown.parts.empty() || shown.parts.back().learned != learned)
        shown.parts.push_back({"", learned});
      std::string& text = shown.parts.back().text;
      if (text_decoder)
        text_decoder->push(ids[static_cast<size_t>(i)], text);
      else
        text += fmt::format("{} ", ids[static_cast<size_t>(i)]);
    }
    if (text_decoder && !shown.parts.empty()) text_decoder->finish(shown.parts.back().text);
  }

  void print(const DataReport& report, const SampleStatistics& statistics, int64_t duplicates,
             const std::vector<Shown>& shown) const {
    std::fputs(data_lines("Data", report, options_.max_length).c_str(), stdout);
    std::printf("%lld samples have the ids of an earlier one\n", static_cast<long long>(duplicates));
    std::printf(
        "\nPositions of a sample: mean %.1f, half have at most %lld, 95 %% at most %lld, 99 %% at most %lld, "
        "all at most %lld\n",
        statistics.mean, static_cast<long long>(statistics.percentile(50)),
        static_cast<long long>(statistics.percentile(95)), static_cast<long long>(statistics.percentile(99)),
        static_cast<long long>(statistics.longest));
    int64_t most = 1;
    for (const auto& bucket : statistics.histogram) most = std::max(most, bucket.samples);
    for (const auto& bucket : statistics.histogram) {
      const auto width = static_cast<size_t>((bucket.samples * kBarWidth + most - 1) / most);
      std::printf("  %8lld – %-8lld %10lld  %s\n", static_cast<long long>(bucket.first),
                  static_cast<long long>(bucket.last - 1), static_cast<long long>(bucket.samples),
                  std::string(width, '#').c_str());
    }
    if (shown.empty()) return;
    const bool on_terminal = ::isatty(STDOUT_FILENO) != 0;
    std::printf("\n%s\n", on_terminal ? "Samples; what is not learned is dim"
                                      : "Samples; what is learned stands in [[ ]]");
    if (on_terminal)
      print(shown, "sample", {"\033[2m", "\033[22m"}, {});
    else
      print(shown, "sample", {}, {"[[", "]]"});
  }

  void print(const DataReport& report, const StreamStatistics& statistics,
             const std::vector<Shown>& shown) const {
    std::fputs(data_lines("Data", report, options_.max_length).c_str(), stdout);
    std::printf("%lld of the vocabulary's %lld ids occur; the largest is %d\n",
                static_cast<long long>(statistics.different_ids), static_cast<long long>(model_.vocabulary),
                statistics.largest_id);
    if (end_of_text_)
      std::printf("%lld times the end of text (%d)\n", static_cast<long long>(statistics.ends_of_text),
                  *end_of_text_);
    std::printf("%lld windows have the ids of an earlier one\n",
                static_cast<long long>(statistics.repeated_windows));
    if (!shown.empty()) std::printf("\nWindows\n");
    print(shown, "window", {}, {});
  }

  // What stands around parts.
  struct Marks {
    const char *before = "", *behind = "";
  };
  void print(const std::vector<Shown>& all, const char* what, const Marks& unlearned,
             const Marks& learned) const {
    for (const Shown& shown : all) {
      std::printf("\n--- %s %lld: %lld positions, %lld learned\n", what,
                  static_cast<long long>(shown.index + 1), static_cast<long long>(shown.positions),
                  static_cast<long long>(shown.learned));
      for (int64_t i = 0; i < std::ssize(shown.parts); ++i) {
        if (i == shown.truncated_at)
          std::printf("\n--- truncated here: max_length is %lld\n",
                      static_cast<long long>(options_.max_length));
        const Part& part = shown.parts[static_cast<size_t>(i)];
        const Marks& marks = part.learned ? learned : unlearned;
        std::printf("%s%s%s", marks.before, printable(part.text).c_str(), marks.behind);
      }
      if (shown.hidden > 0) std::printf("\n--- and %lld tokens more", static_cast<long long>(shown.hidden));
      std::printf("\n");
    }
  }

  static Json to_json(const std::vector<Shown>& all) {
    Json list = Json::array();
    for (const Shown& shown : all) {
      Json parts = Json::array();
      for (const Part& part : shown.parts) parts.push_back({{"text", part.text}, {"learned", part.learned}});
      list.push_back({{"index", shown.index},
                      {"positions", shown.positions},
                      {"learned", shown.learned},
                      {"parts", parts}});
    }
    return list;
  }

  void print_json(const DataReport& report, const StreamStatistics& statistics,
                  const std::vector<Shown>& shown) const {
    print_json({{"format", report.format},
                {"files", report.files},
                {"tokens", report.tokens},
                {"different_ids", statistics.different_ids},
                {"largest_id", statistics.largest_id},
                {"vocabulary", model_.vocabulary},
                {"end_of_text", end_of_text_ ? Json(*end_of_text_) : Json()},
                {"ends_of_text", statistics.ends_of_text},
                {"duplicates", statistics.repeated_windows},
                {"max_length", options_.max_length},
                {"windows", report.windows.windows},
                {"shown", to_json(shown)}});
  }

  static void print_json(const Json& report) {
    std::printf("%s\n", report.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  }

  void print_json(const DataReport& report, const SampleStatistics& statistics, int64_t duplicates,
                  const std::vector<Shown>& shown) const {
    const WindowsReport& windows = report.windows;
    Json histogram = Json::array();
    for (const auto& bucket : statistics.histogram)
      histogram.push_back({{"from", bucket.first}, {"to", bucket.last - 1}, {"samples", bucket.samples}});
    print_json({{"format", report.format},
                {"files", report.files},
                {"rows", report.totals.rows},
                {"bad_rows", report.totals.bad_rows},
                {"first_bad_rows", report.bad_rows},
                {"began_with_answer", report.totals.began_with_answer},
                {"samples", report.totals.samples},
                {"tokens", report.totals.ids},
                {"learned_tokens", report.totals.supervised},
                {"duplicates", duplicates},
                {"positions",
                 {{"mean", statistics.mean},
                  {"shortest", statistics.shortest},
                  {"median", statistics.percentile(50)},
                  {"percent_95", statistics.percentile(95)},
                  {"percent_99", statistics.percentile(99)},
                  {"longest", statistics.longest},
                  {"histogram", histogram}}},
                {"max_length", options_.max_length},
                {"truncated", windows.truncated},
                {"truncated_learned_tokens", windows.truncated_targets},
                {"cut", windows.cut},
                {"unsupervised", windows.unsupervised},
                {"windows", windows.windows},
                {"packed", windows.packed},
                {"filled", windows.filled(options_.max_length)},
                {"shown", to_json(shown)}});
  }

  const ProgramOptions& program_;
  RunOptions options_;
  ModelDirectory directory_;
  Model model_;
  DataWatch watch_;
  std::vector<DataFile> files_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const Tokenizer> own_decoder_;
  const Tokenizer* decoder_ = nullptr;
  std::optional<int32_t> end_of_text_;
};

}  // namespace

int data_inspect_command(const ProgramOptions& options) {
  if (options.run.model.empty())
    throw_user(ExitCode::kUsage,
               "--model is missing; expected the model directory whose tokenizer reads the data");
  if (options.run.train_file.empty())
    throw_user(ExitCode::kUsage, "no data file is named; expected snug data inspect FILE… --model DIR");
  keep_heap_small();
  Inspection(options).run();
  return 0;
}

}  // namespace snug
