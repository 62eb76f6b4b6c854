#include "backends/cpu/measured_costs.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backends/cpu/onednn.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"

namespace snug::cpu {
namespace {

constexpr int64_t kFormat = 1;
constexpr JsonLimits kLimits{.size = Bytes(4 << 20), .depth = 4, .values = 64 * 1024};
// Longer than any operation takes; a file with more is broken.
constexpr NumberRange kSeconds{.first = 1e-12, .last = 1e6, .expected = "seconds above 0"};
// Two measurements whose times differ by less are one result.
constexpr double kSameTime = 1.15;
constexpr std::array<std::string_view, 5> kSources = {"measured", "doubted", "confirmed", "no_memory",
                                                      "no_time"};

// "AMD EPYC 00a00f11": the brand alone names several processors.
std::string processor_name() {
  std::string brand;
  std::array<unsigned, 4> words{};
  unsigned signature = 0;
  if (__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]) != 0) signature = words[0];
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    if (__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3]) == 0) break;
    std::array<char, sizeof words> text{};
    std::memcpy(text.data(), words.data(), sizeof words);
    brand.append(text.data(), strnlen(text.data(), text.size()));
  }
  const size_t first = brand.find_first_not_of(' '), last = brand.find_last_not_of(' ');
  brand = first == std::string::npos ? "processor" : brand.substr(first, last - first + 1);
  // A virtual machine may give any bytes.
  for (char& c : brand)
    if (c < ' ' || c > '~') c = '?';
  return fmt::format("{} {:08x}", brand, signature);
}

double rounded(double seconds) { return std::stod(fmt::format("{:.2e}", seconds)); }

std::string_view kind_of(std::string_view key) { return key.substr(0, key.find(' ')); }

// Kinds that share most of their code.
std::string_view family_of(std::string_view op) {
  for (std::string_view family :
       {"linear_dbias", "linear", "mlp", "attention", "head_loss", "layer_norm", "rms_norm", "embedding"})
    if (op.starts_with(family)) return family;
  if (op == "sum_squares" || op == "update_control" || op.starts_with("adamw")) return "update";
  return "elementwise";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

CostsKey costs_key(const Dispatch& dispatch) {
  return {.processor = processor_name(),
          .dispatch = cpu_class_name(dispatch.cpu_class),
          .threads = dispatch.threads,
          .onednn = onednn_version(),
          .snug = SNUG_VERSION};
}

std::string costs_file_name(const CostsKey& key) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char c :
       fmt::format("{}\n{}\n{}\n{}\n{}", key.processor, key.dispatch, key.threads, key.onednn, key.snug))
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return fmt::format("costs-{}-{}-{:016x}.json", key.dispatch, key.threads, hash);
}

const MeasuredCosts::Entry* MeasuredCosts::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.entry;
}

void MeasuredCosts::set(const std::string& key, const Entry& entry) {
  Stored& stored = entries_[key];
  stored.entry = entry;
  stored.entry.seconds = rounded(entry.seconds);
  stored.entry.roofline_seconds = rounded(entry.roofline_seconds);
  stored.age = next_age_++;
}

void MeasuredCosts::set_timed(const std::string& key, double seconds, double roofline_seconds) {
  Source source = Source::kMeasured;
  if (const Entry* before = find(key); before != nullptr && before->source == Source::kDoubted) {
    const auto [less, more] = std::minmax({before->seconds, rounded(seconds)});
    if (more <= kSameTime * less) source = Source::kConfirmed;
    seconds = less;
  }
  set(key, {.seconds = seconds, .roofline_seconds = roofline_seconds, .source = source});
}

bool MeasuredCosts::doubt(std::span<const std::string> keys) {
  bool any = false;
  for (const std::string& key : keys)
    if (const auto found = entries_.find(key);
        found != entries_.end() && found->second.entry.source == Source::kMeasured) {
      found->second.entry.source = Source::kDoubted;
      any = true;
    }
  if (!any) return false;
  for (const std::string& key : keys)
    if (const Entry* entry = find(key); entry != nullptr && !entry->was_timed()) entries_.erase(key);
  return true;
}

void MeasuredCosts::touch(const std::string& key) {
  if (const auto found = entries_.find(key); found != entries_.end()) found->second.age = next_age_++;
}

void MeasuredCosts::add_missing(const MeasuredCosts& others) {
  for (const auto& [key, stored] : others.entries_) entries_.try_emplace(key, Stored{stored.entry, 0});
}

double MeasuredCosts::sample_seconds(const CostSample& sample, const Dispatch& dispatch) const {
  if (const Entry* entry = find(sample.key)) return entry->seconds;
  std::vector<double> of_kind, of_family;
  for (const auto& [key, stored] : entries_) {
    if (!stored.entry.was_timed()) continue;
    const std::string_view kind = kind_of(key);
    if (family_of(kind) != family_of(sample.op)) continue;
    of_family.push_back(stored.entry.seconds / stored.entry.roofline_seconds);
    if (kind == sample.op) of_kind.push_back(of_family.back());
  }
  const double roofline = roofline_seconds(sample.query(), sample.cost, dispatch, rates_);
  const double ratio = !of_kind.empty() ? median(of_kind) : !of_family.empty() ? median(of_family) : 1;
  return rounded(roofline * ratio);
}

std::string MeasuredCosts::to_json(const CostsKey& key) const {
  std::vector<const decltype(entries_)::value_type*> by_age;
  for (const auto& entry : entries_) by_age.push_back(&entry);
  std::sort(by_age.begin(), by_age.end(), [](auto* a, auto* b) { return a->second.age < b->second.age; });
  if (by_age.size() > kMostEntries)
    by_age.erase(by_age.begin(), by_age.end() - static_cast<std::ptrdiff_t>(kMostEntries));
  Json operations = Json::object();
  for (const auto* entry : by_age) {
    const Entry& e = entry->second.entry;
    operations[entry->first] = Json{{"seconds", e.seconds},
                                    {"roofline_seconds", e.roofline_seconds},
                                    {"source", kSources[static_cast<size_t>(e.source)]}};
  }
  const Json file{{"format", kFormat},
                  {"processor", key.processor},
                  {"dispatch", key.dispatch},
                  {"threads", key.threads},
                  {"onednn", key.onednn},
                  {"snug", key.snug},
                  {"product_flops_per_second", rates_.product_flops_per_second},
                  {"bytes_per_second", rates_.bytes_per_second},
                  {"operations", std::move(operations)}};
  return file.dump(1) + "\n";
}

MeasuredCosts MeasuredCosts::read(const std::string& path, const CostsKey& key) {
  const Json file = read_json_object(path, kLimits);
  if (const auto format = field<int64_t>(file, "format", path); format != kFormat)
    throw_user(ExitCode::kBadFile, "{}: format is {}; expected {}", path, format, kFormat);
  const CostsKey found{.processor = field<std::string>(file, "processor", path),
                       .dispatch = field<std::string>(file, "dispatch", path),
                       .threads = field<int64_t>(file, "threads", path),
                       .onednn = field<std::string>(file, "onednn", path),
                       .snug = field<std::string>(file, "snug", path)};
  if (found != key)
    throw_user(ExitCode::kBadFile,
               "{}: measured on {}, {}, {} threads, oneDNN {}, Snug {}; expected {}, {}, {}, {}, {}", path,
               found.processor, found.dispatch, found.threads, found.onednn, found.snug, key.processor,
               key.dispatch, key.threads, key.onednn, key.snug);
  MeasuredCosts costs(
      {.product_flops_per_second = field<double>(file, "product_flops_per_second", path, kPositive),
       .bytes_per_second = field<double>(file, "bytes_per_second", path, kPositive)});
  const auto operations = file.find("operations");
  if (operations == file.end() || !operations->is_object())
    throw_user(ExitCode::kBadFile, "{}: operations is missing; expected an object", path);
  for (const auto& [name, value] : operations->items()) {
    const std::string where = fmt::format("{}: {}", path, name);
    if (!value.is_object()) throw_unexpected(path, name, value, "an object");
    const auto source = field<std::string>(value, "source", where);
    const auto known = std::find(kSources.begin(), kSources.end(), source);
    if (known == kSources.end())
      throw_user(ExitCode::kBadFile, "{}: source is \"{}\"; expected one of {}", where, source,
                 fmt::join(kSources, ", "));
    costs.set(name, {.seconds = field<double>(value, "seconds", where, kSeconds),
                     .roofline_seconds = field<double>(value, "roofline_seconds", where, kSeconds),
                     .source = static_cast<Source>(known - kSources.begin())});
  }
  return costs;
}

void MeasuredCosts::write(const std::string& path, const CostsKey& key) const {
  make_directories(parent_directory(path));
  write_file(path, to_json(key));
}

}  // namespace snug::cpu
