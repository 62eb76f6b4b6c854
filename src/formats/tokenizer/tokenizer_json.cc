#include "formats/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_cursor.h"
#include "formats/tokenizer/tokens_beside.h"

namespace snug {

const std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr Bytes kLargestFile{512 << 20};
constexpr size_t kMostAddedTokens = 100'000;
constexpr int64_t kMostTreeValues = 20'000;  // of the parts that become trees
const std::string kExpectedId = fmt::format("an id below {}", kMostIds);
constexpr std::string_view kWhatToDo =
    "Snug reads BPE tokenizers; bring token shards made with the model's own tokenizer instead";

// Files of tokenizers that Snug does not read.
constexpr std::array<std::string_view, 5> kOtherTokenizers = {
    "tokenizer.model", "spiece.model", "tokenizer.tiktoken", "qwen.tiktoken", "vocab.txt"};

void check_size(std::string_view text, const std::string& file) {
  if (static_cast<int64_t>(text.size()) > kLargestFile.value)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected at most {}", file,
               format_bytes(Bytes(static_cast<int64_t>(text.size()))), format_bytes(kLargestFile));
}

// What the vocabulary and the merges are among the model's other values.
constexpr std::string_view kVocabulary = "model.vocab", kMerges = "model.merges";

std::string quote_token(std::string_view text) { return quote_json(Json(std::string(text))); }

// An object of tokens and their ids.
void read_vocabulary(JsonCursor& cursor, std::string_view field, TokenizerSpec& spec) {
  cursor.enter_object(field);
  for (std::string token; cursor.next_key(token);) {
    const auto id_of = [&] { return fmt::format("{}: the id of {}", field, quote_token(token)); };
    constexpr std::string_view kExpected = "a non-negative integer";
    const std::optional<int64_t> id = cursor.take_integer();
    if (!id) cursor.throw_expected(id_of(), kExpected);
    if (*id < 0) throw_unexpected(spec.file, id_of(), *id, kExpected);
    if (*id >= kMostIds) throw_unexpected(spec.file, id_of(), *id, kExpectedId);
    spec.tokens.push_back(token);
    spec.ids.push_back(static_cast<int32_t>(*id));
  }
}

// Pairs of tokens: ["a", "b"], or, as older files have them, "a b".
void read_merges(JsonCursor& cursor, TokenizerSpec& spec) {
  cursor.enter_array(kMerges);
  for (size_t i = 0; cursor.next_element(); ++i) {
    const auto field = [&] { return fmt::format("{}[{}]", kMerges, i); };
    if (cursor.peek() == JsonCursor::Kind::kString) {
      const std::string pair = cursor.read_string(kMerges);
      const size_t space = pair.find(' ');
      if (space == std::string::npos || pair.find(' ', space + 1) != std::string::npos)
        throw_user(ExitCode::kBadFile, "{}: {} is {}; expected two tokens with one space between", spec.file,
                   field(), quote_token(pair));
      spec.merges.push_back(std::string_view(pair).substr(0, space));
      spec.merges.push_back(std::string_view(pair).substr(space + 1));
      continue;
    }
    if (cursor.peek() != JsonCursor::Kind::kArray) cursor.throw_expected(field(), "two tokens");
    cursor.enter_array(kMerges);
    size_t tokens = 0;
    for (; cursor.next_element(); ++tokens) {
      if (cursor.peek() != JsonCursor::Kind::kString) cursor.throw_expected(field(), "two tokens");
      const std::string token = cursor.read_string(kMerges);
      if (tokens < 2) spec.merges.push_back(token);
    }
    if (tokens != 2)
      throw_user(ExitCode::kBadFile, "{}: {} has {} tokens; expected two", spec.file, field(), tokens);
  }
}

// Tokens and ids are each unique.
void check_vocabulary(const TokenizerSpec& spec, std::string_view field) {
  std::vector<uint32_t> order(spec.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  const auto twice = [&](const auto& key) {
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    return std::adjacent_find(order.begin(), order.end(),
                              [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
  };
  if (const auto same = twice([&](uint32_t i) { return spec.tokens[i]; }); same != order.end())
    throw_user(ExitCode::kBadFile, "{}: {} has {} twice", spec.file, field, quote_token(spec.tokens[*same]));
  if (const auto same = twice([&](uint32_t i) { return spec.ids[i]; }); same != order.end()) {
    const auto [first, second] = std::minmax(same[0], same[1]);
    throw_user(ExitCode::kBadFile, "{}: {} gives id {} to {} and to {}", spec.file, field, spec.ids[first],
               quote_token(spec.tokens[first]), quote_token(spec.tokens[second]));
  }
}

// What the value at `key` is, or null when absent.
const Json& at(const Json& object, std::string_view key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNull : *found;
}

// One component of the file and what it is called in messages.
struct Component {
  const Json& json;
  const std::string& file;
  std::string field;

  std::string type() const {
    if (!json.is_object()) throw_unexpected(file, field, json, "an object with a type");
    const Json& value = at(json, "type");
    if (!value.is_string()) throw_unexpected(file, field + ".type", value, "a string");
    return value.get<std::string>();
  }
  Component child(const Json& value, std::string_view name) const {
    return {value, file, field + std::string(name)};
  }
  Component child(std::string_view key) const {
    return {at(json, key), file, fmt::format("{}.{}", field, key)};
  }

  bool boolean(std::string_view key, bool otherwise) const {
    const Component value = child(key);
    if (value.json.is_null()) return otherwise;
    if (!value.json.is_boolean()) value.unexpected("true or false");
    return value.json.get<bool>();
  }
  std::string text(std::string_view key) const {
    const Component value = child(key);
    if (!value.json.is_string()) value.unexpected("a string");
    return value.json.get<std::string>();
  }
  int64_t number(std::string_view key) const {
    const Component value = child(key);
    if (!value.json.is_number_unsigned() || value.json.get<uint64_t>() > INT32_MAX)
      value.unexpected("a non-negative integer");
    return value.json.get<int64_t>();
  }
  [[noreturn]] void unexpected(std::string_view expected) const {
    throw_unexpected(file, field, json, expected);
  }
  [[noreturn]] void not_read(std::string_view known) const {
    throw_user(ExitCode::kBadFile, "{}: {} is {}, which Snug does not run; expected {} ({})", file, field,
               quote_json(at(json, "type")), known, kWhatToDo);
  }
  // The components of a Sequence, or itself.
  template <typename Visit>
  void each(std::string_view list, const Visit& visit) const {
    if (type() != "Sequence") {
      visit(*this);
      return;
    }
    const Component parts = child(list);
    if (!parts.json.is_array()) parts.unexpected("an array");
    for (size_t i = 0; i < parts.json.size(); ++i)
      parts.child(parts.json[i], fmt::format("[{}]", i)).each(list, visit);
  }
};

TextPattern read_pattern(const Component& component) {
  const Component pattern = component.child("pattern");
  TextPattern read;
  read.is_regex = pattern.json.is_object() && pattern.json.contains("Regex");
  if (!read.is_regex && !(pattern.json.is_object() && pattern.json.contains("String")))
    pattern.unexpected("{\"String\": …} or {\"Regex\": …}");
  read.text = pattern.text(read.is_regex ? "Regex" : "String");
  if (read.text.empty()) pattern.unexpected("a pattern that is not empty");
  return read;
}

SplitBehavior read_behavior(const Component& component) {
  const std::string word = component.text("behavior");
  if (word == "Removed") return SplitBehavior::kRemoved;
  if (word == "Isolated") return SplitBehavior::kIsolated;
  if (word == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (word == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (word == "Contiguous") return SplitBehavior::kContiguous;
  component.child("behavior")
      .unexpected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// A replacement is one character.
std::string read_character(const Component& component, std::string_view key) {
  std::string text = component.text(key);
  if (text.empty() || decode_utf8(text, 0).length != text.size())
    component.child(key).unexpected("one character");
  return text;
}

PreTokenizerStep::Prepend read_prepend(const Component& component) {
  const Json& scheme = at(component.json, "prepend_scheme");
  if (scheme.is_null())  // the older form
    return component.boolean("add_prefix_space", true) ? PreTokenizerStep::Prepend::kAlways
                                                       : PreTokenizerStep::Prepend::kNever;
  const std::string word = component.text("prepend_scheme");
  if (word == "always") return PreTokenizerStep::Prepend::kAlways;
  if (word == "first") return PreTokenizerStep::Prepend::kFirst;
  if (word == "never") return PreTokenizerStep::Prepend::kNever;
  component.child("prepend_scheme").unexpected("always, first or never");
}

NormalizerStep read_normalizer(const Component& component) {
  const std::string type = component.type();
  NormalizerStep step;
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {{{"NFC", NormalForm::kNFC},
                                                                              {"NFD", NormalForm::kNFD},
                                                                              {"NFKC", NormalForm::kNFKC},
                                                                              {"NFKD", NormalForm::kNFKD}}};
  for (const auto& [name, form] : kForms)
    if (type == name) {
      step.form = form;
      return step;
    }
  if (type == "Prepend") {
    step.kind = NormalizerStep::Kind::kPrepend;
    step.content = component.text("prepend");
  } else if (type == "Replace") {
    step.kind = NormalizerStep::Kind::kReplace;
    step.pattern = read_pattern(component);
    step.content = component.text("content");
  } else if (type == "Lowercase") {
    step.kind = NormalizerStep::Kind::kLowercase;
  } else if (type == "Strip") {
    step.kind = NormalizerStep::Kind::kStrip;
    step.strip_left = component.boolean("strip_left", true);
    step.strip_right = component.boolean("strip_right", true);
  } else {
    component.not_read("NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip or a Sequence of them");
  }
  return step;
}

PreTokenizerStep read_pre_tokenizer(const Component& component) {
  using Kind = PreTokenizerStep::Kind;
  const std::string type = component.type();
  PreTokenizerStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
    step.add_prefix_space = component.boolean("add_prefix_space", true);
    step.use_regex = component.boolean("use_regex", true);
    step.pattern = {.is_regex = true, .text = std::string(kGpt2Regex)};
  } else if (type == "Split") {
    step.pattern = read_pattern(component);
    step.behavior = read_behavior(component);
    step.invert = component.boolean("invert", false);
  } else if (type == "Digits") {
    step.kind = Kind::kDigits;
    step.behavior =
        component.boolean("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.replacement = read_character(component, "replacement");
    step.prepend = read_prepend(component);
    step.split = component.boolean("split", true);
  } else if (type == "Punctuation") {
    step.kind = Kind::kPunctuation;
    step.behavior =
        at(component.json, "behavior").is_null() ? SplitBehavior::kIsolated : read_behavior(component);
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::kWhiteSpace;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Whitespace") {
    // An expression of Rust's, whose \w has the two joiners: \w+|[^\w\s]+.
    step.pattern = {.is_regex = true, .text = R"([\w\u200C\u200D]+|[^\w\s\u200C\u200D]+)"};
    step.behavior = SplitBehavior::kRemoved;
    step.invert = true;
  } else {
    component.not_read(
        "ByteLevel, Split, Digits, Metaspace, Punctuation, WhitespaceSplit, Whitespace or a Sequence of "
        "them");
  }
  return step;
}

DecoderStep read_decoder(const Component& component) {
  using Kind = DecoderStep::Kind;
  const std::string type = component.type();
  DecoderStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.content = read_character(component, "content");
    step.strip_start = static_cast<size_t>(component.number("start"));
    step.strip_stop = static_cast<size_t>(component.number("stop"));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    step.pattern = read_pattern(component);
    step.content = component.text("content");
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.content = read_character(component, "replacement");
    step.drops_first = read_prepend(component) != PreTokenizerStep::Prepend::kNever;
  } else {
    component.not_read("ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or a Sequence of them");
  }
  return step;
}

int32_t read_id(const Component& value) {
  if (!value.json.is_number_unsigned() || value.json.get<uint64_t>() >= static_cast<uint64_t>(kMostIds))
    value.unexpected(kExpectedId);
  return value.json.get<int32_t>();
}

// [token, id] of BertProcessing and RobertaProcessing.
int32_t read_token_and_id(const Component& value) {
  if (!value.json.is_array() || value.json.size() != 2 || !value.json[0].is_string())
    value.unexpected("a token and its id");
  return read_id(value.child(value.json[1], "[1]"));
}

void read_template(const Component& component, TokenizerSpec& spec) {
  const Component single = component.child("single");
  if (!single.json.is_array()) single.unexpected("an array");
  const Component specials = component.child("special_tokens");
  std::vector<int32_t> before, after;
  bool seen = false;
  for (size_t i = 0; i < single.json.size(); ++i) {
    const Component part = single.child(single.json[i], fmt::format("[{}]", i));
    if (const Component sequence = part.child("Sequence"); !sequence.json.is_null()) {
      if (seen || sequence.text("id") != "A") part.unexpected("the text (A) once");
      seen = true;
      continue;
    }
    const Component special = part.child("SpecialToken");
    if (special.json.is_null()) part.unexpected("Sequence or SpecialToken");
    const Component entry = specials.child(special.text("id"));
    const Component ids = entry.child("ids");
    if (!ids.json.is_array()) ids.unexpected("an array of ids");
    for (size_t k = 0; k < ids.json.size(); ++k)
      (seen ? after : before).push_back(read_id(ids.child(ids.json[k], fmt::format("[{}]", k))));
  }
  if (!seen) single.unexpected("the text (A) once");
  // A later processor puts its tokens around those of the one before it.
  spec.before.insert(spec.before.begin(), before.begin(), before.end());
  spec.after.insert(spec.after.end(), after.begin(), after.end());
}

void read_post_processor(const Component& component, TokenizerSpec& spec) {
  const std::string type = component.type();
  if (type == "TemplateProcessing") {
    read_template(component, spec);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    spec.before.insert(spec.before.begin(), read_token_and_id(component.child("cls")));
    spec.after.push_back(read_token_and_id(component.child("sep")));
  } else if (type != "ByteLevel") {
    component.not_read(
        "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing or a Sequence of them");
  }
}

// The model: its vocabulary and merges as they come, and what else it says.
void read_model(JsonCursor& cursor, TokenizerSpec& spec) {
  Json settings = Json::object();
  const auto setting = [&](std::string_view key) {
    settings[std::string(key)] = cursor.read_tree(fmt::format("model.{}", key));
  };
  // What stands for the vocabulary or the merges and is something else: other kinds of models are refused by their type.
  std::optional<std::string> other_vocabulary = "missing", other_merges = "missing";
  read_fields(cursor, "model",
              {{"vocab",
                [&](std::string_view) {
                  other_vocabulary.reset();
                  if (cursor.peek() == JsonCursor::Kind::kObject)
                    read_vocabulary(cursor, kVocabulary, spec);
                  else
                    other_vocabulary = cursor.quote_value();
                }},
               {"merges",
                [&](std::string_view) {
                  other_merges.reset();
                  if (cursor.peek() == JsonCursor::Kind::kArray)
                    read_merges(cursor, spec);
                  else
                    other_merges = cursor.quote_value();
                }},
               {"type", setting},
               {"unk_token", setting},
               {"fuse_unk", setting},
               {"byte_fallback", setting},
               {"ignore_merges", setting},
               {"dropout", setting},
               {"continuing_subword_prefix", setting},
               {"end_of_word_suffix", setting}});
  const Component model{settings, spec.file, "model"};
  // Files of the library's first versions have no type.
  const std::string type = at(settings, "type").is_null() && !other_merges ? "BPE" : model.type();
  if (type != "BPE")
    throw_user(ExitCode::kBadFile, "{}: model.type is \"{}\"; expected \"BPE\" ({})", spec.file, type,
               kWhatToDo);
  if (other_vocabulary)
    throw_user(ExitCode::kBadFile, "{}: {} is {}; expected an object", spec.file, kVocabulary,
               *other_vocabulary);
  if (other_merges)
    throw_user(ExitCode::kBadFile, "{}: {} is {}; expected an array", spec.file, kMerges, *other_merges);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Component value = model.child(key); !value.json.is_null() && value.json != "")
      value.unexpected(
          fmt::format("null: Snug does not run BPE with prefixes or suffixes of words ({})", kWhatToDo));
  if (const Component dropout = model.child("dropout"); !dropout.json.is_null() && dropout.json != 0.0)
    dropout.unexpected("null: ids would be drawn at random");
  if (!at(settings, "unk_token").is_null()) spec.unk_token = model.text("unk_token");
  spec.fuse_unk = model.boolean("fuse_unk", false);
  spec.byte_fallback = model.boolean("byte_fallback", false);
  spec.ignore_merges = model.boolean("ignore_merges", false);
  check_vocabulary(spec, kVocabulary);
}

// GPT2Tokenizer's own tokens, where no file names others or says that there are none.
SpecialTokens with_gpt2_defaults(SpecialTokens tokens, const std::string& file) {
  std::vector<NamedToken> named;
  for (const std::string_view name : kStandardTokens) {
    const bool has_default = name == "bos_token" || name == "eos_token" || name == "unk_token";
    if (const NamedToken* own = tokens.find(name))
      named.push_back(*own);
    else if (has_default && std::find(tokens.nulls.begin(), tokens.nulls.end(), name) == tokens.nulls.end())
      named.push_back({.name = std::string(name),
                       .token = {.content = "<|endoftext|>", .special = true, .normalized = {}},
                       .file = file + ": GPT-2's default"});
  }
  for (NamedToken& token : tokens.named)
    if (std::find(std::begin(kStandardTokens), std::end(kStandardTokens), token.name) ==
        std::end(kStandardTokens))
      named.push_back(std::move(token));
  tokens.named = std::move(named);
  return tokens;
}

void read_added_tokens(JsonCursor& cursor, std::string_view key, TokenizerSpec& spec) {
  cursor.enter_array(key);
  for (size_t i = 0; cursor.next_element(); ++i) {
    if (i == kMostAddedTokens)
      throw_user(ExitCode::kBadFile, "{}: {} has more than {} tokens", spec.file, key, kMostAddedTokens);
    const std::string field = fmt::format("{}[{}]", key, i);
    AddedToken token;
    std::optional<std::string> content;
    std::optional<int64_t> id;
    std::optional<bool> normalized;
    const auto flag = [&](auto& value) {
      return [&](std::string_view name) { value = cursor.read_boolean(fmt::format("{}.{}", field, name)); };
    };
    read_fields(
        cursor, field,
        {{"content",
          [&](std::string_view name) { content = cursor.read_string(fmt::format("{}.{}", field, name)); }},
         {"id",
          [&](std::string_view name) {
            id = cursor.take_integer();
            if (!id) cursor.throw_expected(fmt::format("{}.{}", field, name), kExpectedId);
          }},
         {"special", flag(token.special)},
         {"normalized", flag(normalized)},
         {"lstrip", flag(token.lstrip)},
         {"rstrip", flag(token.rstrip)},
         {"single_word", flag(token.single_word)}});
    if (!content || !id)
      throw_user(ExitCode::kBadFile, "{}: {} has no {}; expected content and id", spec.file, field,
                 content ? "id" : "content");
    if (*id < 0 || *id >= kMostIds) throw_unexpected(spec.file, field + ".id", *id, kExpectedId);
    token.content = *std::move(content);
    token.id = static_cast<int32_t>(*id);
    token.normalized = normalized.value_or(!token.special);
    spec.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file) {
  check_size(text, file);
  TokenizerSpec spec;
  spec.file = file;
  JsonCursor cursor(text, file, kMostTreeValues);
  bool has_model = false;
  // A part that is no list of tokens and no null becomes a small tree.
  using Read = std::function<void(const Component& part)>;
  const auto part = [&](Read read) {
    return [&cursor, &spec, read = std::move(read)](std::string_view key) {
      const Json json = cursor.read_tree(key);
      if (!json.is_null()) read({json, spec.file, std::string(key)});
    };
  };
  const auto passed_over = part([&](const Component& c) {
    spec.notices.push_back(fmt::format("{}: {} is passed over: texts are encoded whole", file, c.field));
  });
  read_fields(cursor, "the top",
              {{"model",
                [&](std::string_view) {
                  read_model(cursor, spec);
                  has_model = true;
                }},
               {"added_tokens",
                [&](std::string_view key) {
                  if (cursor.peek() == JsonCursor::Kind::kNull)
                    cursor.skip_value();
                  else
                    read_added_tokens(cursor, key, spec);
                }},
               {"normalizer", part([&](const Component& whole) {
                  whole.each("normalizers",
                             [&](const Component& c) { spec.normalizer.push_back(read_normalizer(c)); });
                })},
               {"pre_tokenizer", part([&](const Component& whole) {
                  whole.each("pretokenizers", [&](const Component& c) {
                    if (!spec.pre_tokenizer.empty() &&
                        spec.pre_tokenizer.back().kind == PreTokenizerStep::Kind::kByteLevel)
                      throw_user(ExitCode::kBadFile, "{}: {} comes after ByteLevel; expected ByteLevel last",
                                 spec.file, c.field);
                    spec.pre_tokenizer.push_back(read_pre_tokenizer(c));
                  });
                })},
               {"post_processor", part([&](const Component& whole) {
                  whole.each("processors", [&](const Component& c) { read_post_processor(c, spec); });
                })},
               {"decoder", part([&](const Component& whole) {
                  spec.has_decoder = true;
                  whole.each("decoders",
                             [&](const Component& c) { spec.decoder.push_back(read_decoder(c)); });
                })},
               {"truncation", passed_over},
               {"padding", passed_over}});
  cursor.finish();
  if (!has_model) throw_user(ExitCode::kBadFile, "{}: model is missing; expected an object", file);
  return spec;
}

TokenizerSpec parse_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_file,
                               std::string_view merges, const std::string& merges_file,
                               const TokenizerConfig& config) {
  TokenizerSpec spec;
  spec.file = vocabulary_file;
  check_size(vocabulary, vocabulary_file);
  JsonCursor cursor(vocabulary, vocabulary_file);
  read_vocabulary(cursor, "the vocabulary", spec);
  cursor.finish();
  if (spec.tokens.size() == 0)
    throw_user(ExitCode::kBadFile, "{}: holds no tokens; expected an object of tokens and ids",
               vocabulary_file);
  check_vocabulary(spec, "the vocabulary");

  spec.merges.reserve(merges.size());
  int64_t line_number = 0;
  for (size_t begin = 0; begin < merges.size();) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string_view line = merges.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos ||
        !is_valid_utf8(line))
      throw_user(ExitCode::kBadFile, "{}:{}: is {}; expected two tokens with one space between", merges_file,
                 line_number, quote_json(Json(std::string(line))));
    spec.merges.push_back(line.substr(0, space));
    spec.merges.push_back(line.substr(space + 1));
  }

  if (const std::string& name = config.tokenizer_class;
      !name.empty() && name != "GPT2Tokenizer" && name != "GPT2TokenizerFast")
    throw_user(ExitCode::kBadFile,
               "{}: tokenizer_class is \"{}\"; expected GPT2Tokenizer beside vocab.json and merges.txt "
               "(another class "
               "splits text in another way: save it as tokenizer.json with transformers)",
               config.file, name);
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kByteLevel;
  step.add_prefix_space = config.add_prefix_space;
  step.use_regex = true;
  step.pattern = {.is_regex = true, .text = std::string(kGpt2Regex)};
  spec.pre_tokenizer.push_back(step);
  spec.has_decoder = true;
  spec.decoder.push_back({.kind = DecoderStep::Kind::kByteLevel});

  const SpecialTokens tokens = with_gpt2_defaults(config.tokens, vocabulary_file);
  add_tokens_beside(spec, tokens);
  for (const auto& [adds, name, ids] : {std::tuple{config.add_bos_token, "bos_token", &spec.before},
                                        std::tuple{config.add_eos_token, "eos_token", &spec.after}}) {
    const NamedToken* named = adds ? tokens.find(name) : nullptr;
    if (named == nullptr) continue;
    for (const AddedToken& token : spec.added_tokens)
      if (token.content == named->token.content) ids->push_back(token.id);
  }
  return spec;
}

bool has_tokenizer(const std::string& directory) {
  const auto is_there = [&](std::string_view name) { return file_exists(join_path(directory, name)); };
  return is_there("tokenizer.json") || is_there("vocab.json") ||
         std::any_of(kOtherTokenizers.begin(), kOtherTokenizers.end(), is_there);
}

TokenizerSpec read_tokenizer(const std::string& path) {
  if (!directory_exists(path)) {
    const std::string name = file_name(path);
    if (name.ends_with(".model") || name.ends_with(".tiktoken"))
      throw_user(ExitCode::kBadFile,
                 "{}: is a SentencePiece or tiktoken file; expected tokenizer.json (transformers writes one: "
                 "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))",
                 path);
    if (name == "vocab.json" || name == "merges.txt") return read_tokenizer(parent_directory(path));
    return parse_tokenizer_json(read_small_file(path, kLargestFile), path);
  }
  if (const std::string file = join_path(path, "tokenizer.json"); file_exists(file)) {
    TokenizerSpec spec = parse_tokenizer_json(read_small_file(file, kLargestFile), file);
    add_tokens_beside(spec, read_tokenizer_config(path).tokens);
    return spec;
  }
  const std::string vocabulary = join_path(path, "vocab.json"), merges = join_path(path, "merges.txt");
  if (file_exists(vocabulary) && file_exists(merges))
    return parse_gpt2_files(read_small_file(vocabulary, kLargestFile), vocabulary,
                            read_small_file(merges, kLargestFile), merges, read_tokenizer_config(path));
  for (const std::string_view name : kOtherTokenizers)
    if (file_exists(join_path(path, name)))
      throw_user(ExitCode::kBadFile,
                 "{}: its tokenizer is in {}, which Snug does not read; expected tokenizer.json "
                 "(transformers writes "
                 "one: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))",
                 path, name);
  throw_user(
      ExitCode::kBadFile,
      "{}: has no tokenizer.json, nor vocab.json and merges.txt; bring one, or token shards instead of text",
      path);
}

}  // namespace snug
