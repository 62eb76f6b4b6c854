#include "train/open_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/xxhash.h"
#include "data/encode_row.h"
#include "data/tokenized_text.h"
#include "formats/byte_tokenizer.h"
#include "formats/chat_template/chat_template.h"
#include "formats/dataset/byte_source.h"
#include "formats/dataset/dataset_reader.h"
#include "formats/token_shard.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "train/costs.h"
#include "train/text_tokenizer.h"

namespace snug {
namespace {

// Changes when the same rows give other samples.
constexpr std::string_view kForm = "rows 2";

// "1,234,567".
std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Everything in a model directory that ids follow from.
Fingerprint tokenizer_print(const ModelDirectory& directory, bool is_byte_tokenizer) {
  Fingerprinter print;
  if (is_byte_tokenizer) {
    print.add_field("bytes");
    return print.value();
  }
  for (const char* name :
       {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "generation_config.json", "config.json", "chat_template.jinja"}) {
    const std::string path = join_path(directory.path(), name);
    print.add_field(name);
    if (file_exists(path)) add_file(print, path);
  }
  return print.value();
}

std::unique_ptr<const Tokenizer> byte_tokenizer() {
  return std::make_unique<Tokenizer>(parse_tokenizer_json(byte_tokenizer_json(), "Snug's byte tokenizer"));
}

bool may_be_conversations(DatasetFormat format) {
  return format == DatasetFormat::kMessages || format == DatasetFormat::kShareGpt ||
         format == DatasetFormat::kPromptCompletion || format == DatasetFormat::kAlpaca;
}

// Whether an end of text is put behind some of their rows.
bool end_texts(const std::vector<DataFile>& files, bool has_chat_template) {
  return std::any_of(files.begin(), files.end(), [&](const DataFile& file) {
    return file.format == DatasetFormat::kJsonText || file.format == DatasetFormat::kPromptCompletion ||
           (file.format == DatasetFormat::kAlpaca && !has_chat_template);
  });
}

// "alpaca, messages".
std::string formats_of(const std::vector<DataFile>& files) {
  std::set<std::string_view> names;
  for (const DataFile& file : files) names.insert(dataset_format_name(file.format));
  return fmt::format("{}", fmt::join(names, ", "));
}

// One of the two kinds of source, with what it needs.
class Opener {
 public:
  Opener(const RunOptions& options, const ModelDirectory& directory, int64_t vocabulary,
         const Tokenizer* tokenizer, const DataWatch& watch)
      : options_(options),
        directory_(directory),
        vocabulary_(vocabulary),
        tokenizer_(tokenizer),
        watch_(watch) {}

  RunData open(const RunFiles& files) {
    tell_of_repetitions(files);
    RunData data;
    const double split = options_.validation_split;
    const bool train_is_rows = !files.train.empty() && is_row_format(files.train.front().format);
    if (train_is_rows) {
      const auto samples = open_rows(files.train, data.train_report);
      SampleChoice choice{.seed = options_.seed};
      if (split > 0) {
        data.validation_report = data.train_report;
        choice.held_out = held_out(samples->totals().samples, "rows", files.train);
        choice.part = SampleChoice::Part::kValidation;
        data.validation = windows_of(samples, choice, files.train, data.validation_report);
        choice.part = SampleChoice::Part::kTraining;
      }
      data.train = windows_of(samples, choice, files.train, data.train_report);
    } else if (!files.train.empty()) {
      JoinedStream stream = open_stream(files.train, data.train_report);
      if (split >= 1)
        throw_user(ExitCode::kUsage,
                   "validation_split is {}; expected a share below 1: {} is no list of rows to count", split,
                   files.train.front().path);
      if (split > 0) {
        const int64_t last = stream.size(), first = last - held_out(last, "tokens", files.train);
        data.validation_report = data.train_report;
        data.validation = windows_of(stream.part(first, last), files.train, data.validation_report);
        stream = stream.part(0, first);
      }
      data.train = windows_of(std::move(stream), files.train, data.train_report);
    }
    if (!files.validation.empty() && is_row_format(files.validation.front().format)) {
      const auto samples = open_rows(files.validation, data.validation_report);
      data.validation = windows_of(samples, {}, files.validation, data.validation_report);
    } else if (!files.validation.empty()) {
      data.validation = windows_of(open_stream(files.validation, data.validation_report), files.validation,
                                   data.validation_report);
    }
    return data;
  }

 private:
  const SampleCache& cache() {
    if (!cache_) cache_.emplace(open_sample_cache(options_, [this](std::string_view note) { tell(note); }));
    return *cache_;
  }
  void tell(std::string_view note) const {
    if (watch_.note) watch_.note(note);
  }
  // A file that is read several times as training data, or is on both sides, may be meant so; it is told, whatever its names are.
  void tell_of_repetitions(const RunFiles& files) const {
    std::map<std::string, int64_t> times;
    const auto same = [](const std::string& path) {
      std::error_code failed;
      const std::string real = std::filesystem::canonical(path, failed).string();
      return failed ? path : real;
    };
    for (const DataFile& file : files.train)
      if (const int64_t time = ++times[same(file.path)]; time == 2)
        tell(fmt::format("{} is given more than once as training data: it is learned each time", file.path));
    std::set<std::string> validation;
    for (const DataFile& file : files.validation) {
      const std::string path = same(file.path);
      if (!validation.insert(path).second)
        tell(fmt::format("{} is given more than once as validation data: it counts each time", file.path));
      else if (times.contains(path))
        tell(fmt::format("{} is training and validation data: its evaluation loss is of what was learned",
                         file.path));
    }
  }

  std::shared_ptr<const SampleFile> open_rows(const std::vector<DataFile>& files, DataReport& report) {
    return prepare_rows(files, options_, directory_, vocabulary_, tokenizer_, cache(), watch_, report);
  }
  JoinedStream open_stream(const std::vector<DataFile>& files, DataReport& report) {
    return snug::open_stream(
        files, options_, directory_, vocabulary_, tokenizer_,
        [this]() -> const SampleCache& { return cache(); }, watch_, report);
  }

  std::unique_ptr<Windows> windows_of(JoinedStream stream, const std::vector<DataFile>& files,
                                      DataReport& report) const {
    auto windows =
        std::make_unique<StreamWindows>(std::move(stream), options_.max_length, files.front().path);
    report.tokens = windows->tokens();
    report.windows.windows = windows->count();
    report.windows.targets = windows->targets();
    return windows;
  }

  std::unique_ptr<Windows> windows_of(std::shared_ptr<const SampleFile> samples, const SampleChoice& choice,
                                      const std::vector<DataFile>& files, DataReport& report) {
    auto windows = std::make_unique<SampleWindows>(std::move(samples), choice, options_.max_length,
                                                   options_.packing, cache().directory(), files.front().path);
    report.windows = windows->report();
    report.tokens = windows->tokens();
    return windows;
  }

  // Of `all`, by validation_split: a share below 1, or a count.
  int64_t held_out(int64_t all, std::string_view what, const std::vector<DataFile>& files) const {
    const double split = options_.validation_split;
    const double wanted = split < 1 ? std::round(static_cast<double>(all) * split) : split;
    const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(wanted));
    if (count >= all)
      throw_user(ExitCode::kUsage,
                 "validation_split {} takes {} of the {} {} of {}; expected some to be left to train on",
                 split, count, all, what, files.front().path);
    return count;
  }

  const RunOptions& options_;
  const ModelDirectory& directory_;
  int64_t vocabulary_;
  const Tokenizer* tokenizer_;
  const DataWatch& watch_;
  std::optional<SampleCache> cache_;
};

}  // namespace

RunFiles find_run_files(const RunOptions& options) {
  if (options.validation_split > 1 && options.validation_split != std::floor(options.validation_split))
    throw_user(ExitCode::kUsage, "validation_split is {}; expected a share below 1 or a whole number of rows",
               options.validation_split);
  if (options.validation_split > 0 && !options.validation_file.empty())
    throw_user(ExitCode::kUsage, "validation_split is {} beside validation_file {}; expected one of them",
               options.validation_split, options.validation_file.front());
  if (options.validation_split > 0 && options.train_file.empty())
    throw_user(ExitCode::kUsage, "validation_split is {} without train_file; expected one to split",
               options.validation_split);
  RunFiles files;
  if (!options.train_file.empty()) files.train = find_data_files(options.train_file, options.dataset_format);
  if (!options.validation_file.empty())
    files.validation = find_data_files(options.validation_file, options.dataset_format);
  return files;
}

bool hold_text(const std::vector<DataFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const DataFile& file) {
    return file.format != DatasetFormat::kShards && file.format != DatasetFormat::kTokens;
  });
}

SampleCache open_sample_cache(const RunOptions& options, const std::function<void(std::string_view)>& note) {
  if (!options.data_cache.empty()) return SampleCache(options.data_cache, note);
  std::string directory = costs_directory();
  if (directory.empty()) directory = (std::filesystem::temp_directory_path() / "snug").string();
  directory = join_path(directory, "data");
  try {
    make_directories(directory);
    ScratchFile(directory).write(
        std::as_bytes(std::span("", 1)));  // a disk without room for a byte shows here, too
  } catch (const UserError& error) {
    if (options.output_dir.empty())
      throw_user(ExitCode::kIo, "{}; --data_cache DIR names another place for prepared data", error.what());
    std::string beside = join_path(options.output_dir, "prepared_data");
    note(fmt::format("prepared data lie in {}: {}", beside, error.what()));
    return SampleCache(std::move(beside), note);
  }
  return SampleCache(std::move(directory), note);
}

std::shared_ptr<const SampleFile> prepare_rows(const std::vector<DataFile>& files, const RunOptions& options,
                                               const ModelDirectory& directory, int64_t vocabulary,
                                               const Tokenizer* tokenizer, const SampleCache& cache,
                                               const DataWatch& watch, DataReport& report) {
  RowEncoding encoding;
  encoding.tokenizer = tokenizer;
  encoding.vocabulary = vocabulary;
  encoding.train_on_inputs = options.train_on_inputs;
  encoding.special_as_text = options.special_as_text;
  std::unique_ptr<const Tokenizer> bytes;
  if (tokenizer != nullptr) {
    encoding.end_of_text = end_of_text_id(directory, *tokenizer);
  } else if (hold_text(files)) {
    bytes = byte_tokenizer();
    encoding.tokenizer = bytes.get();
    encoding.end_of_text = kEndOfTextId;
  }
  std::optional<ChatTemplate> chat;
  if (std::any_of(files.begin(), files.end(),
                  [](const DataFile& file) { return may_be_conversations(file.format); }))
    chat = options.chat_template.empty() ? load_chat_template(directory.path())
                                         : choose_chat_template(directory.path(), options.chat_template);
  if (chat) encoding.chat_template = &*chat;
  encoding.variables = template_variables(options);
  if (tokenizer != nullptr && !encoding.end_of_text && tokenizer->spec().after.empty() &&
      end_texts(files, chat.has_value()) && watch.note)
    watch.note(fmt::format(
        "{} names no end of text (eos_token of tokenizer_config.json, eos_token_id of config.json): "
        "none is learned behind texts and completions",
        directory.path()));
  const DatasetOptions reading{.has_chat_template = chat.has_value(),
                               .text_field = options.text_field,
                               .skip_bad_rows = options.skip_bad_rows};

  Fingerprinter key;
  key.add_field(kForm);
  key.add_field(sample_form());
  key.add_field(encoding.tokenizer == nullptr ? "" : to_string(tokenizer_print(directory, bytes != nullptr)));
  key.add_field(fmt::format("{} {} {} {} {}", encoding.end_of_text.value_or(-1), vocabulary,
                            options.train_on_inputs, options.special_as_text, options.skip_bad_rows));
  key.add_field(options.text_field);
  key.add_field(chat ? chat->source() : "");
  key.add_field(encoding.variables.dump());
  for (const DataFile& file : files) {
    key.add_field(dataset_format_name(file.format));
    key.add_field(to_string(file.names));
    add_file(key, file.path);
  }

  const SampleCache::Found found = cache.find(key.value(), vocabulary, [&](SampleWriter& writer) {
    const auto reader = std::make_shared<DatasetReader>(files, reading);
    if (const auto& from = writer.kept_until()) reader->seek({(*from)[0], (*from)[1], (*from)[2]});
    Preparation preparation;
    preparation.source = files.front().path;
    preparation.next = [reader] { return reader->next(); };
    preparation.take_skipped = [reader] { return reader->take_skipped(); };
    preparation.bytes_read = [reader] { return reader->bytes_read(); };
    preparation.all_bytes = reader->total_bytes();
    preparation.encoder = [&]() -> EncodeRow {
      auto encoder = std::make_shared<RowEncoder>(encoding);
      return [encoder](const Row& row, const RowPlace& place) { return encoder->encode(row, place); };
    };
    preparation.threads = std::max(1, options.threads);
    preparation.skip_bad_rows = options.skip_bad_rows;
    preparation.progress = [&](const PreparationProgress& progress) {
      if (watch.progress) watch.progress(files.front().path, progress);
    };
    prepare_samples(writer, preparation);
  });
  report.format = formats_of(files);
  report.files = static_cast<int64_t>(files.size());
  report.totals = found.samples->totals();
  report.was_prepared = found.was_there;
  report.bad_rows = found.samples->bad_rows();
  if (report.totals.samples == 0)
    throw_user(ExitCode::kBadFile, "{}: {} of {} rows could not be read; none is left{}{}",
               files.front().path, report.totals.bad_rows, report.totals.rows,
               report.bad_rows.empty() ? "" : ". The first: ",
               report.bad_rows.empty() ? "" : report.bad_rows.front());
  return found.samples;
}

JoinedStream open_stream(const std::vector<DataFile>& files, const RunOptions& options,
                         const ModelDirectory& directory, int64_t vocabulary, const Tokenizer* tokenizer,
                         const std::function<const SampleCache&()>& cache, const DataWatch& watch,
                         DataReport& report) {
  const TokenDType dtype = options.token_dtype.empty() ? default_token_dtype(vocabulary)
                                                       : parse_token_dtype(options.token_dtype).value();
  std::unique_ptr<const Tokenizer> bytes;
  std::vector<std::shared_ptr<const TokenStream>> streams;
  for (const DataFile& file : files) {
    if (file.format == DatasetFormat::kShards) {
      streams.push_back(open_token_shard(file.path, dtype, vocabulary));
      continue;
    }
    if (tokenizer == nullptr && !is_packed(file.path)) {
      streams.push_back(open_text(file.path, vocabulary));
      continue;
    }
    if (tokenizer == nullptr && !bytes) bytes = byte_tokenizer();
    streams.push_back(open_tokenized_text(
        {.path = file.path,
         .tokenizer = tokenizer != nullptr ? *tokenizer : *bytes,
         .tokenizer_print = tokenizer_print(directory, tokenizer == nullptr),
         .end_of_text = tokenizer == nullptr ? kEndOfTextId : end_of_text_id(directory, *tokenizer),
         .vocabulary = vocabulary},
        cache(), [&](const PreparationProgress& progress) {
          if (watch.progress) watch.progress(file.path, progress);
        }));
  }
  report.files = static_cast<int64_t>(files.size());
  report.format = formats_of(files);
  report.is_stream = true;
  return JoinedStream(std::move(streams));
}

RunData open_run_data(const RunFiles& files, const RunOptions& options, const ModelDirectory& directory,
                      int64_t vocabulary, const Tokenizer* tokenizer, const DataWatch& watch) {
  return Opener(options, directory, vocabulary, tokenizer, watch).open(files);
}

std::string data_lines(std::string_view title, const DataReport& report, int64_t length) {
  const WindowsReport& windows = report.windows;
  const std::string files = report.files == 1 ? "" : fmt::format(" from {} files", report.files);
  if (report.is_stream)
    return fmt::format("{}: {}, {} tokens{} in {} windows of {}\n", title, report.format,
                       with_commas(report.tokens), files, with_commas(windows.windows), length);
  const std::string indent(title.size() + 2, ' ');
  std::string text =
      fmt::format("{}: {}, {} samples{}, {} positions of which {:.1f} % are learned{}\n", title,
                  report.format, with_commas(windows.samples), files, with_commas(windows.positions),
                  windows.positions == 0
                      ? 0
                      : 100 * static_cast<double>(windows.targets) / static_cast<double>(windows.positions),
                  report.was_prepared ? " (prepared by an earlier run)" : "");
  text += fmt::format("{}{} windows of {}: {}, {:.1f} % filled\n", indent, with_commas(windows.windows),
                      length, windows.packed ? "packed" : "padded", 100 * windows.filled(length));
  if (report.totals.bad_rows > 0)
    text += fmt::format("{}{} of {} rows skipped because they are broken\n", indent,
                        with_commas(report.totals.bad_rows), with_commas(report.totals.rows));
  for (const std::string& row : report.bad_rows) text += fmt::format("{}  {}\n", indent, row);
  if (report.totals.began_with_answer > 0)
    text += fmt::format(
        "{}{} conversations begin with the assistant, which answers nothing there: what stands before the "
        "first question is left out\n",
        indent, with_commas(report.totals.began_with_answer));
  if (windows.truncated > 0)
    text +=
        fmt::format("{}{} samples truncated to {} positions (the longest has {}): {} learned tokens lost\n",
                    indent, with_commas(windows.truncated), length, with_commas(windows.longest),
                    with_commas(windows.truncated_targets));
  if (windows.cut > 0)
    text += fmt::format("{}{} documents cut into pieces\n", indent, with_commas(windows.cut));
  if (windows.unsupervised > 0)
    text += fmt::format(
        "{}warning: {} samples have no learned token within {} positions and are left out; the first is "
        "number {}\n",
        indent, with_commas(windows.unsupervised), length, windows.first_unsupervised + 1);
  return text;
}

}  // namespace snug
