// formats/weights.h — the tensors of a model directory, over one safetensors file or several
//
// One file is `model.safetensors`. Several are `model-00001-of-0000N.safetensors` with
// `model.safetensors.index.json`, whose weight_map names each tensor's file. Every tensor must be listed
// exactly once, be in the file it is listed for, and no file may hold an unlisted one. Shard names are single
// path components: no '/', no "..". The index's total_size is not relied on: files in the wild disagree about
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"

namespace snug {

inline constexpr std::string_view kSingleWeightsFile = "model.safetensors";
inline constexpr std::string_view kWeightsIndexFile = "model.safetensors.index.json";
inline constexpr Bytes kDefaultShardBytes{5'000'000'000};

// Whether safetensors weights of a model directory, or their index, may have this name.
bool is_weights_file(std::string_view name);

struct WeightEntry {
  std::string name;
  FileDType dtype = FileDType::kF32;
  Shape shape;
  int64_t bytes = 0;
  size_t file = 0;  // index into the source's files
};

// Where weights are read from: the union of the tensors of all files.
class WeightSource {
 public:
  // Opens the weights of a model directory and validates every header. UserError(kBadFile) for none, for both
  // a single file and an index, for pickled weights only, and for everything the first lines of this header
  // state.
  static WeightSource open(const std::string& directory);
  // Whether the directory has safetensors weights at all.
  static bool present(const std::string& directory);

  // In name order.
  const std::vector<WeightEntry>& tensors() const { return tensors_; }
  const WeightEntry* find(std::string_view name) const;
  // Where a tensor lies, for messages.
  const std::string& file_of(const WeightEntry& entry) const { return files_[entry.file].path(); }
  Bytes total_bytes() const;

  // Fills `destination` with bytes [first, first + destination.size()) of the tensor. Safe from several
  // threads at once.
  void read(const WeightEntry& entry, int64_t first, std::span<std::byte> destination) const;

 private:
  WeightSource() = default;
  void collect();

  std::vector<SafetensorsFile> files_;
  std::vector<WeightEntry> tensors_;
};

// Where weights are written to: one file while they are at most `largest_shard_bytes`, else shards filled in
// the order of `tensors` (a tensor is never split). Nothing changes under its final name before commit().
class WeightSink {
 public:
  WeightSink(std::string directory, const std::vector<TensorSpec>& tensors,
             Bytes largest_shard_bytes = kDefaultShardBytes);

  // Every tensor in the order in which they are to be written.
  const std::vector<TensorSpec>& order() const { return order_; }
  // Appends bytes of the tensor, from its byte `first` on. Tensors come in order(), each completely.
  void write(std::string_view name, int64_t first, std::span<const std::byte> bytes);
  // Publishes all files, then the index, then removes weights of an older save under other names (shards,
  // index, single file), which would contradict the new ones.
  void commit();

 private:
  struct Shard {
    std::string file;
    std::vector<SafetensorsEntry> entries;
  };
  void open_shard();

  std::string directory_;
  std::vector<Shard> shards_;
  std::vector<TensorSpec> order_;
  std::vector<std::unique_ptr<SafetensorsWriter>>
      writers_;            // one for each shard begun; only the last one is still written
  size_t next_entry_ = 0;  // of the last writer
};

}  // namespace snug
