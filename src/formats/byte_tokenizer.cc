#include "formats/byte_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/json.h"
#include "formats/tokenizer_config.h"

namespace snug {
namespace {

// Ours has 8 KB; a larger file than this is a trained one.
constexpr Bytes kLargestFile{256 * 1024};

std::string utf8(char32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};  // all codes here are below 0x800
}

// GPT-2's table: bytes that print stand for themselves as code points, the others follow from U+0100 on, in
// order.
const std::array<std::string, 256>& byte_symbols() {
  static const std::array<std::string, 256> symbols = [] {
    std::array<std::string, 256> table;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      table[byte] = utf8(prints ? byte : next++);
    }
    return table;
  }();
  return symbols;
}

// What the value at `key` is, or null when absent.
const Json& at(const Json& object, std::string_view key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNull : *found;
}

bool is_type(const Json& component, std::string_view type) { return at(component, "type") == type; }

// A template of the text alone, which transformers puts in when it saves a tokenizer.
bool adds_nothing(const Json& post_processor) {
  const Json& single = at(post_processor, "single");
  return is_type(post_processor, "TemplateProcessing") && single.is_array() && single.size() == 1 &&
         single[0].is_object() && single[0].contains("Sequence");
}

// The first difference from the byte tokenizer, or an empty text.
std::string difference(const Json& json) {
  const Json& model = at(json, "model");
  if (!is_type(model, "BPE"))
    return fmt::format("model.type is {}; expected \"BPE\"", quote_json(at(model, "type")));
  const Json& vocabulary = at(model, "vocab");
  const Json& merges = at(model, "merges");
  if (!vocabulary.is_object())
    return fmt::format("model.vocab is {}; expected an object", quote_json(vocabulary));
  if (!merges.is_array() || !merges.empty())
    return fmt::format("it is a BPE tokenizer of {} symbols with {} merges; expected 256 bytes and no merges",
                       vocabulary.size(), merges.size());
  const bool has_end = vocabulary.contains(std::string(kEndOfText));
  if (vocabulary.size() != 256 + (has_end ? 1U : 0U))
    return fmt::format("model.vocab has {} symbols; expected the 256 bytes", vocabulary.size());
  for (size_t byte = 0; byte < 256; ++byte) {
    const Json& id = at(vocabulary, byte_symbols()[byte]);
    if (id != byte) return fmt::format("the id of byte {} is {}; expected {}", byte, quote_json(id), byte);
  }
  if (has_end && vocabulary[std::string(kEndOfText)] != kEndOfTextId)
    return fmt::format("the id of {} is {}; expected {}", kEndOfText,
                       quote_json(vocabulary[std::string(kEndOfText)]), kEndOfTextId);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json& value = at(model, key); !value.is_null() && value != "")
      return fmt::format("model.{} is {}; expected null", key, quote_json(value));

  const Json& added = at(json, "added_tokens");
  const bool one = added.is_array() && added.size() == 1 && at(added[0], "content") == kEndOfText &&
                   at(added[0], "id") == kEndOfTextId;
  if (!one)
    return fmt::format("added_tokens is {}; expected {} with id {} alone", quote_json(added), kEndOfText,
                       kEndOfTextId);
  for (const char* key : {"lstrip", "rstrip"})
    if (at(added[0], key) == true) return fmt::format("added_tokens: {} is true; expected false", key);

  if (const Json& normalizer = at(json, "normalizer"); !normalizer.is_null())
    return fmt::format("normalizer is {}; expected null", quote_json(normalizer));
  const Json& pre_tokenizer = at(json, "pre_tokenizer");
  if (!is_type(pre_tokenizer, "ByteLevel") || at(pre_tokenizer, "add_prefix_space") != false)
    return fmt::format("pre_tokenizer is {}; expected ByteLevel without a prefix space",
                       quote_json(pre_tokenizer));
  if (const Json& post = at(json, "post_processor");
      !post.is_null() && !is_type(post, "ByteLevel") && !adds_nothing(post))
    return fmt::format("post_processor is {}; expected one that adds no tokens", quote_json(post));
  return "";
}

// The same for the tokens that files beside it name: with others than its own it is an ordinary tokenizer.
std::string difference_beside(const SpecialTokens& tokens) {
  const auto differs = [](const TokenText& token) {
    return !token.content.empty() && (token.content != kEndOfText || token.lstrip || token.rstrip);
  };
  for (const NumberedToken& token : tokens.numbered)
    if (differs(token.token) || token.id != kEndOfTextId)
      return fmt::format("{} has {}", tokens.numbered_field, quote_json(Json(token.token.content)));
  for (const auto* list : {&tokens.named, &tokens.extra})
    for (const NamedToken& token : *list)
      if (differs(token.token))
        return fmt::format("{}: {} is {}", token.file, token.name, quote_json(Json(token.token.content)));
  return "";
}

}  // namespace

std::vector<int32_t> encode_bytes(std::string_view text) {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string decode_bytes(std::span<const int32_t> ids) {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids)
    if (id >= 0 && id < kEndOfTextId) text += static_cast<char>(static_cast<unsigned char>(id));
  return text;
}

std::string byte_tokenizer_json() {
  Json vocabulary = Json::object();
  for (size_t byte = 0; byte < 256; ++byte) vocabulary[byte_symbols()[byte]] = byte;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = Json::array({Json{{"id", kEndOfTextId},
                                           {"content", kEndOfText},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}}});
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"] = Json{{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}};
  return json.dump(2) + "\n";
}

std::string byte_tokenizer_config_json(int64_t longest_input) {
  const Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"bos_token", kEndOfText},
                     {"eos_token", kEndOfText},
                     {"unk_token", nullptr},
                     {"clean_up_tokenization_spaces", false},
                     {"model_max_length", longest_input}};
  return json.dump(2) + "\n";
}

void write_byte_tokenizer(const std::string& directory, int64_t longest_input) {
  write_file(join_path(directory, "tokenizer.json"), byte_tokenizer_json());
  write_file(join_path(directory, "tokenizer_config.json"), byte_tokenizer_config_json(longest_input));
}

std::optional<std::string> difference_from_byte_tokenizer(const std::string& directory) {
  const std::string file = join_path(directory, "tokenizer.json");
  if (!file_exists(file)) return "there is no tokenizer.json";
  if (const int64_t size = InputFile(file).size(); size > kLargestFile.value)
    return fmt::format("tokenizer.json has {} bytes", size);
  std::string fault = difference(read_json_object(file));
  if (fault.empty()) fault = difference_beside(read_tokenizer_config(directory).tokens);
  if (fault.empty()) return std::nullopt;
  return fault;
}

}  // namespace snug
