#include "formats/weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/checked.h"
#include "base/json.h"

namespace snug {
namespace {

constexpr JsonLimits kIndexLimits{.size = Bytes(100'000'000), .depth = 8, .values = 100'000};

constexpr size_t kMostShards = 99'999;  // their names have 5 digits

// Bytes that a tensor takes at least: "a":"f",
constexpr size_t kSmallestEntry = 8;

// A file name that stays inside its directory.
bool is_safe_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// "model-00001-of-00003.safetensors"
bool is_shard_name(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors") &&
         name.find("-of-") != std::string_view::npos;
}

bool is_other_format(std::string_view name) {
  return (name.starts_with("pytorch_model") &&
          (name.ends_with(".bin") || name.ends_with(".bin.index.json"))) ||
         name.ends_with(".pth") || name.ends_with(".pt") || name == "tf_model.h5" ||
         name == "flax_model.msgpack" || name.ends_with(".gguf");
}

// What an index lists, by file and then by name. Names lie one after the other: a tree of them would take many times the file.
struct Listing {
  struct Tensor {
    uint32_t file, begin, length;
  };

  std::string_view name(const Tensor& tensor) const {
    return std::string_view(names).substr(tensor.begin, tensor.length);
  }
  std::span<const Tensor> of_file(size_t file) const {
    const auto [first, last] =
        std::equal_range(tensors.begin(), tensors.end(), Tensor{static_cast<uint32_t>(file), 0, 0},
                         [](const Tensor& a, const Tensor& b) { return a.file < b.file; });
    return {first, last};
  }
  bool lists(size_t file, std::string_view wanted) const {
    const auto in_file = of_file(file);
    const auto found =
        std::lower_bound(in_file.begin(), in_file.end(), wanted,
                         [&](const Tensor& tensor, std::string_view n) { return name(tensor) < n; });
    return found != in_file.end() && name(*found) == wanted;
  }

  std::vector<std::string> files;  // sorted
  std::vector<Tensor> tensors;
  std::string names;
};

Listing read_index(const std::string& path) {
  Listing listing;
  std::map<std::string, uint32_t, std::less<>> numbers;  // of the files
  const auto take = [&](std::string&& tensor, Json&& file) {
    if (!file.is_string() || !is_safe_component(file.get_ref<const std::string&>()))
      throw_unexpected(path, fmt::format("weight_map: \"{}\"", tensor), file,
                       "the name of a file in the same directory");
    const auto number = numbers.emplace(file.get<std::string>(), numbers.size()).first->second;
    if (numbers.size() > kMostShards)
      throw_user(ExitCode::kBadFile, "{}: weight_map names more than {} files", path, kMostShards);
    listing.tensors.push_back(
        {number, static_cast<uint32_t>(listing.names.size()), static_cast<uint32_t>(tensor.size())});
    listing.names += tensor;
  };
  const std::string text = read_small_file(path, kIndexLimits.size);
  listing.names.reserve(text.size());  // growing step by step would hold them twice
  listing.tensors.reserve(text.size() / kSmallestEntry);
  const std::optional<Json> other = parse_json_members(text, path, kIndexLimits, "weight_map", take);
  if (other)
    throw_user(ExitCode::kBadFile, "{}: weight_map is {}; expected an object from tensor names to file names",
               path, other->is_null() ? "missing" : quote_json(*other));
  if (listing.tensors.empty())
    throw_user(ExitCode::kBadFile, "{}: weight_map is empty; expected the model's tensors", path);
  // Files by name.
  std::vector<uint32_t> sorted(numbers.size());
  for (const auto& [file, number] : numbers) {
    sorted[number] = static_cast<uint32_t>(listing.files.size());
    listing.files.push_back(file);
  }
  for (Listing::Tensor& tensor : listing.tensors) tensor.file = sorted[tensor.file];
  const auto name_first = [&](const Listing::Tensor& a, const Listing::Tensor& b) {
    return listing.name(a) < listing.name(b);
  };
  std::sort(listing.tensors.begin(), listing.tensors.end(), name_first);
  for (size_t i = 1; i < listing.tensors.size(); ++i)
    if (listing.name(listing.tensors[i]) == listing.name(listing.tensors[i - 1]))
      throw_user(ExitCode::kBadFile, "{}: the key \"{}\" occurs twice in one object", path,
                 listing.name(listing.tensors[i]));
  std::sort(listing.tensors.begin(), listing.tensors.end(),
            [&](const Listing::Tensor& a, const Listing::Tensor& b) {
              return a.file != b.file ? a.file < b.file : listing.name(a) < listing.name(b);
            });
  return listing;
}

}  // namespace

bool WeightSource::present(const std::string& directory) {
  return file_exists(join_path(directory, kSingleWeightsFile)) ||
         file_exists(join_path(directory, kWeightsIndexFile));
}

bool is_weights_file(std::string_view name) {
  return name == kSingleWeightsFile || name == kWeightsIndexFile || is_shard_name(name);
}

WeightSource WeightSource::open(const std::string& directory) {
  const std::string single = join_path(directory, kSingleWeightsFile);
  const std::string index_path = join_path(directory, kWeightsIndexFile);
  const bool has_single = file_exists(single);
  const bool has_index = file_exists(index_path);
  if (has_single && has_index)
    throw_user(ExitCode::kBadFile, "{}: has both {} and {}; remove the one that is out of date", directory,
               kSingleWeightsFile, kWeightsIndexFile);
  WeightSource source;
  if (has_single) {
    source.files_.emplace_back(single);
    source.collect();
    return source;
  }
  if (!has_index) {
    for (const std::string& name : list_directory(directory))
      if (is_other_format(name))
        throw_user(ExitCode::kBadFile,
                   "{}: has weights only as {}; convert to safetensors (expected {}): other formats are not "
                   "read, and pickled "
                   "ones can run code",
                   directory, name, kSingleWeightsFile);
    throw_user(ExitCode::kBadFile, "{}: has no weights; expected {} or {}", directory, kSingleWeightsFile,
               kWeightsIndexFile);
  }

  const Listing listing = read_index(index_path);
  for (size_t file = 0; file < listing.files.size(); ++file) {
    const std::string path = join_path(directory, listing.files[file]);
    const std::span<const Listing::Tensor> tensors = listing.of_file(file);
    if (!file_exists(path))
      throw_user(ExitCode::kBadFile, "{}: is missing; {} lists {} tensors in it", path, kWeightsIndexFile,
                 tensors.size());
    const SafetensorsFile& shard = source.files_.emplace_back(path);
    for (const Listing::Tensor& tensor : tensors)
      if (shard.find(listing.name(tensor)) == nullptr)
        throw_user(ExitCode::kBadFile, "{}: has no tensor \"{}\", which {} lists in it", path,
                   listing.name(tensor), kWeightsIndexFile);
    for (const SafetensorsEntry& entry : shard.entries())
      if (!listing.lists(file, entry.name)) {
        bool elsewhere = false;
        for (size_t other = 0; other < listing.files.size(); ++other)
          elsewhere = elsewhere || listing.lists(other, entry.name);
        throw_user(ExitCode::kBadFile, "{}: has tensor \"{}\", which {} {}", path, entry.name,
                   kWeightsIndexFile, elsewhere ? "lists in another file" : "does not list");
      }
  }
  source.collect();
  return source;
}

void WeightSource::collect() {
  for (size_t i = 0; i < files_.size(); ++i)
    for (const SafetensorsEntry& entry : files_[i].entries())
      tensors_.push_back({entry.name, entry.dtype, entry.shape, entry.bytes(), i});
  std::sort(tensors_.begin(), tensors_.end(),
            [](const WeightEntry& a, const WeightEntry& b) { return a.name < b.name; });
}

const WeightEntry* WeightSource::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const WeightEntry& entry, std::string_view n) { return entry.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

Bytes WeightSource::total_bytes() const {
  Bytes total;
  for (const WeightEntry& entry : tensors_) total += Bytes(entry.bytes);
  return total;
}

void WeightSource::read(const WeightEntry& entry, int64_t first, std::span<std::byte> destination) const {
  const SafetensorsFile& file = files_.at(entry.file);
  const SafetensorsEntry* place = file.find(entry.name);
  require(place != nullptr, "{}: tensor \"{}\" is not of this source", file.path(), entry.name);
  file.read(*place, first, destination);
}

WeightSink::WeightSink(std::string directory, const std::vector<TensorSpec>& tensors,
                       Bytes largest_shard_bytes)
    : directory_(std::move(directory)) {
  require(largest_shard_bytes.value > 0, "shards of {} bytes", largest_shard_bytes.value);
  std::vector<std::vector<TensorSpec>> parts(1);
  int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t bytes = checked_mul(tensor.shape.elements(), file_dtype_bytes(tensor.dtype));
    if (!parts.back().empty() && checked_add(filled, bytes) > largest_shard_bytes.value) {
      parts.emplace_back();
      filled = 0;
    }
    parts.back().push_back(tensor);
    filled = checked_add(filled, bytes);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string file = parts.size() == 1
                                 ? std::string(kSingleWeightsFile)
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    shards_.push_back({file, lay_out_tensors(std::move(parts[i]))});
    for (const SafetensorsEntry& entry : shards_.back().entries)
      order_.push_back({entry.name, entry.dtype, entry.shape});
  }
  open_shard();
}

void WeightSink::open_shard() {
  const Shard& shard = shards_.at(writers_.size());
  std::vector<TensorSpec> specs;
  for (const SafetensorsEntry& entry : shard.entries) specs.push_back({entry.name, entry.dtype, entry.shape});
  writers_.push_back(
      std::make_unique<SafetensorsWriter>(join_path(directory_, shard.file), std::move(specs)));
  next_entry_ = 0;
}

void WeightSink::write(std::string_view name, int64_t first, std::span<const std::byte> bytes) {
  // A tensor may take several calls, so the entry moves on only when another name comes.
  const auto at = [&](size_t i) -> const SafetensorsEntry* {
    const auto& entries = shards_[writers_.size() - 1].entries;
    return i < entries.size() ? &entries[i] : nullptr;
  };
  const SafetensorsEntry* entry = at(next_entry_);
  // Tensors without bytes may have been passed over; the writer itself refuses to skip any byte.
  while (entry != nullptr && entry->name != name) entry = at(++next_entry_);
  if (entry == nullptr && writers_.size() < shards_.size()) {
    writers_.back()->prepare();
    open_shard();
    entry = at(0);
    while (entry != nullptr && entry->name != name) entry = at(++next_entry_);
  }
  require(entry != nullptr && entry->name == name, "{}: tensor \"{}\" is written out of order", directory_,
          name);
  writers_.back()->write(*entry, first, bytes);
}

void WeightSink::commit() {
  require(writers_.size() == shards_.size(), "{}: {} of {} weight files were written", directory_,
          writers_.size(), shards_.size());
  for (const auto& writer : writers_) writer->prepare();
  for (const auto& writer : writers_) writer->commit();
  std::set<std::string, std::less<>> current;
  for (const Shard& shard : shards_) current.insert(shard.file);
  if (shards_.size() > 1) {
    int64_t total = 0;
    std::map<std::string, std::string> file_of;
    for (const Shard& shard : shards_) {
      for (const SafetensorsEntry& entry : shard.entries) {
        total = checked_add(total, entry.bytes());
        file_of.emplace(entry.name, shard.file);
      }
    }
    const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", file_of}};
    write_file(join_path(directory_, kWeightsIndexFile), index.dump(2) + "\n");
    current.emplace(kWeightsIndexFile);
  }
  for (const std::string& name : list_directory(directory_)) {
    if (is_weights_file(name) && !current.contains(name)) remove_all(join_path(directory_, name));
  }
}

}  // namespace snug
