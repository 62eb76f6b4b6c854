#include "model_files.h"

#include <bit>
#include <cstring>
#include <sstream>

#include "program_run.h"

namespace snug {

namespace fs = std::filesystem;

Json gpt2_json(const Gpt2Size& size) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", size.dropout},
          {"embd_pdrop", size.dropout},
          {"resid_pdrop", size.dropout},
          {"n_embd", size.width},
          {"n_head", size.heads},
          {"n_layer", size.blocks},
          {"n_positions", size.positions},
          {"layer_norm_epsilon", 1e-5},
          {"initializer_range", 0.02},
          {"vocab_size", size.vocabulary},
          {"bos_token_id", 256},
          {"eos_token_id", 256}};
}

Json llama_json(const LlamaSize& size) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", size.width},
          {"intermediate_size", size.inner},
          {"num_hidden_layers", size.blocks},
          {"num_attention_heads", size.heads},
          {"num_key_value_heads", size.heads / 2},
          {"max_position_embeddings", size.positions},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"initializer_range", 0.02},
          {"tie_word_embeddings", size.tied},
          {"vocab_size", size.vocabulary},
          {"bos_token_id", 256},
          {"eos_token_id", 256}};
}

std::string make_model(const fs::path& directory, const Json& config) {
  fs::create_directories(directory);
  write_text(directory / "config.json", config.dump(2));
  return directory.string();
}

std::string tokenizer_fixture(std::string_view name) {
  return (fs::path(SNUG_SOURCE_DIR) / "tests/fixtures/tokenizers" / name).string();
}

std::string copy_fixture(const std::string& name, const fs::path& directory) {
  fs::create_directories(directory);
  for (const fs::directory_entry& file :
       fs::directory_iterator(fs::path(SNUG_SOURCE_DIR) / "tests/fixtures" / name)) {
    const std::string base = file.path().filename().string();
    if (base == "config.json" || base.starts_with("model")) fs::copy_file(file.path(), directory / base);
  }
  return directory.string();
}

Safetensors Safetensors::read(const fs::path& path) {
  static_assert(std::endian::native == std::endian::little);
  const std::string file = file_text(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  Safetensors parsed{Json::parse(file.substr(8, length)), file.substr(8 + length)};
  parsed.header.erase("__metadata__");
  return parsed;
}

std::string Safetensors::bytes() const {
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

std::map<std::string, std::string> Safetensors::tensors() const {
  std::map<std::string, std::string> list;
  for (const auto& [name, entry] : header.items()) {
    const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
    list[name] = entry["dtype"].get<std::string>() + entry["shape"].dump() + data.substr(begin, end - begin);
  }
  return list;
}

std::map<std::string, std::string> all_tensors(const fs::path& directory) {
  std::map<std::string, std::string> list;
  for (const fs::directory_entry& file : fs::directory_iterator(directory))
    if (file.path().extension() == ".safetensors") list.merge(Safetensors::read(file.path()).tensors());
  return list;
}

std::string sample_text(size_t bytes) {
  std::string text;
  for (int verse = 1; text.size() < bytes; ++verse)
    text += "And the evening and the morning were day " + std::to_string(verse) + ": it was good.\n";
  text.resize(bytes);
  return text;
}

std::string as_uint16_tokens(std::string_view text) {
  std::string tokens;
  for (char byte : text) {
    tokens += byte;
    tokens += '\0';
  }
  tokens += std::string("\0\1", 2);
  return tokens;
}

std::string as_llmc_shard(std::string_view text) {
  int32_t header[256] = {20240520, 1, static_cast<int32_t>(text.size() + 1)};
  return std::string(reinterpret_cast<const char*>(header), sizeof header) + as_uint16_tokens(text);
}

Json json_file(const fs::path& path) { return Json::parse(file_text(path)); }

std::vector<Json> json_lines(const fs::path& path) {
  std::istringstream text(file_text(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace snug
