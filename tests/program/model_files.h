// tests/program/model_files.h — small model directories, data files and what the program writes, read without Snug's own readers
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace snug {

using Json = nlohmann::ordered_json;

// GPT-2 of `blocks` blocks; 257 ids (the byte tokenizer's) unless `vocabulary` says otherwise.
struct Gpt2Size {
  int64_t blocks = 2, width = 48, heads = 4, positions = 64, vocabulary = 257;
  double dropout = 0.1;
};
Json gpt2_json(const Gpt2Size& size = {});

// Llama with grouped-query attention: half as many key-value heads as heads.
struct LlamaSize {
  int64_t blocks = 2, width = 48, heads = 4, inner = 128, positions = 128, vocabulary = 257;
  bool tied = true;
};
Json llama_json(const LlamaSize& size = {});

// Makes a directory with this config.json alone.
std::string make_model(const std::filesystem::path& directory, const Json& config);

// The path of tests/fixtures/tokenizers/NAME.
std::string tokenizer_fixture(std::string_view name);

// A copy of tests/fixtures/NAME without the reference values.
std::string copy_fixture(const std::string& name, const std::filesystem::path& directory);

// Header and data of a safetensors file.
struct Safetensors {
  Json header;       // as in the file, __metadata__ left out
  std::string data;  // all tensors' bytes

  static Safetensors read(const std::filesystem::path& path);
  std::string bytes() const;                           // the whole file again
  std::map<std::string, std::string> tensors() const;  // dtype, shape and bytes of each as one string
};

// Every tensor of the directory's weights, single or sharded.
std::map<std::string, std::string> all_tensors(const std::filesystem::path& directory);

// Text of about `bytes` bytes, always the same.
std::string sample_text(size_t bytes);
// The stream that text means: its bytes and the end of text (256), as little-endian uint16.
std::string as_uint16_tokens(std::string_view text);
// The same with llm.c's header of 256 int32 before it.
std::string as_llmc_shard(std::string_view text);

Json json_file(const std::filesystem::path& path);
std::vector<Json> json_lines(const std::filesystem::path& path);

}  // namespace snug
