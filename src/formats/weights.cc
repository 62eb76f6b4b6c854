#include "formats/weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/checked.h"
#include "base/json.h"

namespace snug {
namespace {

constexpr JsonLimits kIndexLimits{.size = Bytes(100'000'000), .depth = 8, .values = 4'000'000};

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

}  // namespace

bool WeightSource::present(const std::string& directory) {
  return file_exists(join_path(directory, kSingleWeightsFile)) ||
         file_exists(join_path(directory, kWeightsIndexFile));
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

  const Json index = read_json_object(index_path, kIndexLimits);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    throw_user(ExitCode::kBadFile, "{}: weight_map is {}; expected an object from tensor names to file names",
               index_path, map == index.end() ? "missing" : quote_json(*map));
  std::map<std::string, std::set<std::string, std::less<>>> listed;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_safe_component(file.get_ref<const std::string&>()))
      throw_unexpected(index_path, fmt::format("weight_map: \"{}\"", tensor), file,
                       "the name of a file in the same directory");
    listed[file.get<std::string>()].insert(tensor);
  }
  if (listed.empty())
    throw_user(ExitCode::kBadFile, "{}: weight_map is empty; expected the model's tensors", index_path);
  for (const auto& [file, names] : listed) {
    const std::string path = join_path(directory, file);
    if (!file_exists(path))
      throw_user(ExitCode::kBadFile, "{}: is missing; {} lists {} tensors in it", path, kWeightsIndexFile,
                 names.size());
    const SafetensorsFile& shard = source.files_.emplace_back(path);
    for (const std::string& name : names)
      if (shard.find(name) == nullptr)
        throw_user(ExitCode::kBadFile, "{}: has no tensor \"{}\", which {} lists in it", path, name,
                   kWeightsIndexFile);
    for (const SafetensorsEntry& entry : shard.entries())
      if (!names.contains(entry.name))
        throw_user(ExitCode::kBadFile, "{}: has tensor \"{}\", which {} {}", path, entry.name,
                   kWeightsIndexFile, map->contains(entry.name) ? "lists in another file" : "does not list");
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
    const bool is_weights = name == kSingleWeightsFile || name == kWeightsIndexFile || is_shard_name(name);
    if (is_weights && !current.contains(name)) remove_all(join_path(directory_, name));
  }
}

}  // namespace snug
