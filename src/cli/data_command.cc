#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_display.h"
#include "data/permutation.h"
#include "data/sample_statistics.h"
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

struct Shown {
  int64_t index = 0, positions = 0, learned = 0;
  int64_t truncated_at = -1;  // part of `parts` that begins behind max_length
  int64_t hidden = 0;         // tokens that are not shown
  std::vector<Part> parts;
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
        model_(load_model(directory_)) {
    options_.from_scratch = true;  // a directory without a tokenizer: Snug's byte tokenizer
    if (options_.max_length == 0) options_.max_length = std::min<int64_t>(1024, model_.max_positions);
    if (options_.threads == 0) options_.threads = static_cast<int>(default_threads());
    files_ = find_data_files(options_.train_file, options_.dataset_format);
    tokenizer_ = hold_text(files_) ? text_tokenizer(options_, model_) : nullptr;
  }

  void run() {
    const DataWatch watch = data_watch(options_.progress && !program_.json);
    if (!is_row_format(files_.front().format)) {
      DataReport report = open_run_data({.train = files_, .validation = {}}, options_, directory_,
                                        model_.vocabulary, tokenizer_.get(), watch)
                              .train_report;
      if (program_.json)
        std::printf("%s\n", Json({{"format", report.format},
                                  {"files", report.files},
                                  {"tokens", report.tokens},
                                  {"max_length", options_.max_length},
                                  {"windows", report.windows.windows}})
                                .dump(2)
                                .c_str());
      else
        std::fputs(data_lines("Data", report, options_.max_length).c_str(), stdout);
      return;
    }
    const SampleCache cache(data_cache_directory(options_), watch.note);
    DataReport report;
    const auto samples =
        prepare_rows(files_, options_, directory_, model_.vocabulary, tokenizer_.get(), cache, watch, report);
    const SampleWindows windows(samples, {}, options_.max_length, options_.packing, cache.directory(),
                                files_.front().path);
    report.windows = windows.report();
    const SampleStatistics statistics = sample_statistics(*samples);
    const int64_t duplicates = count_duplicates(*samples);
    const std::vector<Shown> shown = show(*samples);
    if (program_.json)
      print_json(report, statistics, duplicates, shown);
    else
      print(report, statistics, duplicates, shown);
  }

 private:
  // Samples that the seed picks, decoded.
  std::vector<Shown> show(const SampleFile& samples) {
    const int64_t all = samples.totals().samples;
    std::vector<int64_t> picked;
    for (int64_t i = 0; i < std::min(program_.samples, all); ++i)
      picked.push_back(Permutation(all, options_.seed, kShown)(i));
    std::sort(picked.begin(), picked.end());
    std::unique_ptr<const Tokenizer> bytes;
    const Tokenizer* tokenizer = tokenizer_.get();
    if (tokenizer == nullptr) {  // ids alone, or bytes
      try {
        bytes = hold_text(files_) ? std::make_unique<Tokenizer>(
                                        parse_tokenizer_json(byte_tokenizer_json(), "Snug's byte tokenizer"))
                                  : text_tokenizer(options_, model_);
        tokenizer = bytes.get();
      } catch (const UserError&) {  // a model that has none: ids are shown as numbers
      }
    }
    std::vector<Shown> shown;
    size_t next = 0;
    samples.visit([&](const StoredSample& sample) {
      if (next == picked.size() || sample.index != picked[next]) return;
      ++next;
      shown.push_back(decode(samples, sample, tokenizer));
    });
    return shown;
  }

  Shown decode(const SampleFile& samples, const StoredSample& sample, const Tokenizer* tokenizer) const {
    Shown shown;
    shown.index = sample.index;
    shown.positions = std::max<int64_t>(0, sample.length - 1);
    shown.learned = sample.supervised(1, sample.length);
    const int64_t count = std::min(sample.length, kMostShownTokens);
    shown.hidden = sample.length - count;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    samples.read_ids(sample.first_id, ids);
    std::optional<TextDecoder> decoder;
    if (tokenizer != nullptr) decoder.emplace(*tokenizer, false);
    const auto add = [&](bool learned, bool begins) -> std::string& {
      if (begins || shown.parts.empty() || shown.parts.back().learned != learned)
        shown.parts.push_back({"", learned});
      return shown.parts.back().text;
    };
    for (int64_t i = 0; i < count; ++i) {
      const bool learned = i > 0 && sample.supervised(i, i + 1) > 0;
      const bool truncated = !sample.is_document && i == options_.max_length + 1;
      if (truncated) shown.truncated_at = static_cast<int64_t>(shown.parts.size());
      std::string& text = add(learned, truncated);
      if (decoder)
        decoder->push(ids[static_cast<size_t>(i)], text);
      else
        text += fmt::format("{} ", ids[static_cast<size_t>(i)]);
    }
    if (decoder && !shown.parts.empty()) decoder->finish(shown.parts.back().text);
    return shown;
  }

  void print(const DataReport& report, const SampleStatistics& statistics, int64_t duplicates,
             const std::vector<Shown>& shown) const {
    const bool on_terminal = ::isatty(STDOUT_FILENO) != 0;
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
    std::printf("\n%s\n", on_terminal ? "Samples; what is not learned is dim"
                                      : "Samples; what is learned stands in [[ ]]");
    for (const Shown& sample : shown) {
      std::printf("\n--- sample %lld: %lld positions, %lld learned\n",
                  static_cast<long long>(sample.index + 1), static_cast<long long>(sample.positions),
                  static_cast<long long>(sample.learned));
      for (size_t i = 0; i < sample.parts.size(); ++i) {
        if (static_cast<int64_t>(i) == sample.truncated_at)
          std::printf("\n--- truncated here: max_length is %lld\n",
                      static_cast<long long>(options_.max_length));
        const Part& part = sample.parts[i];
        const char* before = on_terminal ? (part.learned ? "" : "\033[2m") : (part.learned ? "[[" : "");
        const char* behind = on_terminal ? (part.learned ? "" : "\033[22m") : (part.learned ? "]]" : "");
        std::printf("%s%s%s", before, printable(part.text).c_str(), behind);
      }
      if (sample.hidden > 0) std::printf("\n--- and %lld tokens more", static_cast<long long>(sample.hidden));
      std::printf("\n");
    }
  }

  void print_json(const DataReport& report, const SampleStatistics& statistics, int64_t duplicates,
                  const std::vector<Shown>& shown) const {
    const WindowsReport& windows = report.windows;
    Json histogram = Json::array(), samples = Json::array();
    for (const auto& bucket : statistics.histogram)
      histogram.push_back({{"from", bucket.first}, {"to", bucket.last - 1}, {"samples", bucket.samples}});
    for (const Shown& sample : shown) {
      Json parts = Json::array();
      for (const Part& part : sample.parts) parts.push_back({{"text", part.text}, {"learned", part.learned}});
      samples.push_back({{"index", sample.index},
                         {"positions", sample.positions},
                         {"learned", sample.learned},
                         {"parts", parts}});
    }
    const Json all = {{"format", report.format},
                      {"files", report.files},
                      {"rows", report.totals.rows},
                      {"bad_rows", report.totals.bad_rows},
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
                      {"shown", samples}};
    std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  }

  const ProgramOptions& program_;
  RunOptions options_;
  ModelDirectory directory_;
  Model model_;
  std::vector<DataFile> files_;
  std::unique_ptr<const Tokenizer> tokenizer_;
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
