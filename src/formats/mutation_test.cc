// Every parser of this folder, given thousands of damaged files, either reads them or refuses them with a UserError. A crash,
// an InternalError or any other exception is a failure. The mutations are the same on every run.
#include <functional>
#include <random>

#include "base/testing.h"
#include "formats/byte_tokenizer.h"
#include "formats/model_directory.h"
#include "formats/run_config.h"
#include "formats/token_shard.h"
#include "formats/tokenizer_config.h"

namespace snug {
namespace {

constexpr int kRounds = 2000;

// Replaces, inserts, removes or repeats a few bytes or pieces of syntax.
std::string mutate(std::string text, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "-1",
                                                   "0",
                                                   "1e999",
                                                   "\n",
                                                   "\\",
                                                   "null",
                                                   "true",
                                                   "\xff",
                                                   " ",
                                                   "#",
                                                   "!x ",
                                                   "&a ",
                                                   "*a ",
                                                   "? ",
                                                   "- ",
                                                   "|",
                                                   "---",
                                                   "18446744073709551615",
                                                   "\\u0000",
                                                   std::string(1, '\0')};
  const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  for (size_t edits = 1 + pick(3); edits > 0; --edits) {
    const size_t at = pick(text.size() + 1);
    const size_t length = std::min(text.size() - at, 1 + pick(8));
    switch (pick(4)) {
      case 0:
        text.replace(at, length, kPieces[pick(kPieces.size())]);
        break;
      case 1:
        text.insert(at, kPieces[pick(kPieces.size())]);
        break;
      case 2:
        text.erase(at, length);
        break;
      default:
        text.insert(at, text.substr(at, length));
    }
  }
  return text;
}

// Returns how many of the damaged texts were refused.
int refusals(const std::string& text, const std::function<void(const std::string&)>& parse) {
  std::mt19937 random(20260101);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string damaged = mutate(text, random);
    try {
      parse(damaged);
    } catch (const UserError& error) {
      ++refused;
      EXPECT_NE(std::string_view(error.what()), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << round << ": " << error.what() << "\n" << damaged;
    }
  }
  return refused;
}

// A fresh file: file systems flush one that is truncated and written again.
void write_quickly(const std::string& path, const std::string& bytes) {
  remove_all(path);
  OutputFile(path, OutputFile::Mode::kExclusive).write(bytes);
}

TEST(Mutations, Safetensors) {
  const TemporaryDirectory directory;
  const std::string path = directory / "m.safetensors";
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},"z":{"dtype":"U8","shape":[0],"data_offsets":[16,16]}})";
  const auto parse = [&](const std::string& damaged) {
    std::string length;
    for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(damaged.size() >> shift & 0xFF);
    write_quickly(path, length + damaged + std::string(16, 'x'));
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.entries()) {
      ASSERT_LE(entry.bytes(), 16);
      std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes()));
      file.read(entry, 0, bytes);
    }
  };
  EXPECT_NO_THROW(parse(header));
  EXPECT_GT(refusals(header, parse), kRounds / 2);
}

TEST(Mutations, WholeSafetensorsFiles) {
  const TemporaryDirectory directory;
  const std::string path = directory / "m.safetensors";
  const std::vector<SafetensorsEntry> entries =
      lay_out_tensors({{"a", FileDType::kF32, {2}}, {"b", FileDType::kI16, {3}}});
  EXPECT_GT(refusals(safetensors_header(entries) + std::string(14, 'x'),
                     [&](const std::string& damaged) {
                       write_quickly(path, damaged);
                       const SafetensorsFile file(path);
                     }),
            kRounds / 2);
}

TEST(Mutations, WeightIndex) {
  const TemporaryDirectory directory;
  write_quickly(
      directory / "model-1.safetensors",
      safetensors_header(lay_out_tensors({{"a", FileDType::kU8, {1}}, {"b", FileDType::kU8, {1}}})) + "xx");
  EXPECT_GT(
      refusals(
          R"({"metadata":{"total_size":2},"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})",
          [&](const std::string& damaged) {
            write_quickly(directory / "model.safetensors.index.json", damaged);
            WeightSource::open(directory.path());
          }),
      kRounds / 2);
}

TEST(Mutations, Configurations) {
  const auto gpt2 = [](const std::string& damaged) { parse_gpt2_config(parse_json(damaged, "f"), "f"); };
  EXPECT_GT(
      refusals(
          R"({"model_type":"gpt2","vocab_size":61,"n_embd":16,"n_head":2,"n_inner":null,"resid_pdrop":0.1,)"
          R"("activation_function":"gelu","scale_attn_weights":true,"tie_word_embeddings":false})",
          gpt2),
      kRounds / 2);
  const auto llama = [](const std::string& damaged) { parse_llama_config(parse_json(damaged, "f"), "f"); };
  EXPECT_GT(
      refusals(
          R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"rope_parameters":)"
          R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":128,"beta_fast":32}})",
          llama),
      kRounds / 2);
}

TEST(Mutations, ModelDirectories) {
  const TemporaryDirectory directory;
  EXPECT_GT(
      refusals(R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"quantization_config":null})",
               [&](const std::string& damaged) {
                 write_quickly(directory / "config.json", damaged);
                 ModelDirectory::open(directory.path());
               }),
      kRounds / 4);
}

TEST(Mutations, ByteTokenizers) {
  const TemporaryDirectory directory;
  std::mt19937 random(7);
  const std::string whole = byte_tokenizer_json();
  for (int round = 0; round < 200; ++round) {
    write_quickly(directory / "tokenizer.json", mutate(whole, random));
    try {
      difference_from_byte_tokenizer(directory.path());
    } catch (const UserError&) {
      continue;  // refused
    }
  }
}

TEST(Mutations, TokensBesideATokenizer) {
  EXPECT_GT(
      refusals(
          R"({"added_tokens_decoder":{"0":{"content":"<s>","lstrip":false}},"extra_special_tokens":["<x>",)"
          R"({"__type":"AddedToken","content":"<y>"}],"eos_token":{"content":"</s>"},"add_bos_token":true})",
          [](const std::string& damaged) { parse_tokenizer_config(damaged, "f"); }),
      kRounds / 2);
  EXPECT_GT(
      refusals(R"({"eos_token":{"content":"</s>"},"additional_special_tokens":["<x>"],"pad_token":null})",
               [](const std::string& damaged) { parse_special_tokens_map(damaged, "f"); }),
      kRounds / 2);
  EXPECT_GT(refusals(R"({"<x>":257,"<y>":258})",
                     [](const std::string& damaged) { parse_added_tokens(damaged, "f"); }),
            kRounds / 2);
}

TEST(Mutations, TokenShards) {
  const TemporaryDirectory directory;
  std::string bytes(1024, '\0');
  for (const auto& [at, value] :
       std::initializer_list<std::pair<size_t, int32_t>>{{0, 20240520}, {4, 1}, {8, 4}})
    bytes.replace(at, 4, reinterpret_cast<const char*>(&value), 4);
  bytes += std::string(8, '\1');
  std::mt19937 random(11);
  for (int round = 0; round < kRounds; ++round) {
    // Most edits to the first 16 bytes, where the header's fields are.
    const std::string damaged = mutate(bytes.substr(0, 16), random) + bytes.substr(16);
    write_quickly(directory / "a.bin", damaged);
    try {
      const auto stream = open_token_shard(directory / "a.bin", TokenDType::kUint16, 60000);
      std::vector<int32_t> ids(static_cast<size_t>(stream->size()));
      stream->read(0, ids);
    } catch (const UserError&) {
      continue;  // refused
    }
  }
}

TEST(Mutations, RunConfigurations) {
  EXPECT_GT(refusals("# run\nmodel: dir\nlearning_rate: 5e-5\nname: \"a: b\"\nother: 'x'\ntext: >\n  "
                     "folded\n  text\nfiles: [a, 'b, c']\n"
                     "nothing:\nlist:\n  - x\n  - ~\nmap: {y: {z: [1, \"2\"]}}\n",
                     [](const std::string& damaged) { parse_run_config(damaged, "run.yaml"); }),
            kRounds / 4);
}

}  // namespace
}  // namespace snug
