#include "formats/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"

namespace snug {

const std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr Bytes kLargestFile{512 << 20};
constexpr size_t kDeepest = 64;
constexpr int64_t kMostValues = 400'000;  // outside vocabulary and merges
constexpr std::string_view kWhatToDo =
    "Snug reads BPE tokenizers; bring token shards made with the model's own tokenizer instead";

// Reads a file as a stream: vocabulary and merges go into the specification at once, everything else becomes
// a tree. With `whole` the top is the vocabulary itself (vocab.json).
class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(TokenizerSpec& spec, bool whole) : spec_(spec), whole_(whole) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (mode_ != Mode::kVocabulary) return add(value);
    if (value >= static_cast<uint64_t>(kMostIds))
      throw_user(ExitCode::kBadFile, "{}: {} of {} is {}; expected an id below {}", spec_.file,
                 vocabulary_field(), quoted(token_), value, kMostIds);
    spec_.tokens.push_back(token_);
    spec_.ids.push_back(static_cast<int32_t>(value));
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& value) override {
    if (mode_ == Mode::kMerges) {  // the older form: both with a space between
      const size_t space = value.find(' ');
      if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos)
        throw_user(ExitCode::kBadFile,
                   "{}: model.merges[{}] is {}; expected two tokens with one space between", spec_.file,
                   spec_.merges.size() / 2, quoted(value));
      spec_.merges.push_back(std::string_view(value).substr(0, space));
      spec_.merges.push_back(std::string_view(value).substr(space + 1));
      return true;
    }
    if (mode_ == Mode::kPair) {
      if (++parts_ <= 2) spec_.merges.push_back(value);
      return true;
    }
    return add(std::move(value));
  }

  bool start_object(std::size_t) override {
    if (mode_ == Mode::kTree && (whole_ ? open_.empty() : at_model() && key_ == "vocab")) {
      mode_ = Mode::kVocabulary;
      return true;
    }
    return open(Json::object());
  }
  bool key(string_t& name) override {
    if (mode_ == Mode::kVocabulary) {
      token_ = std::move(name);
      return true;
    }
    if (mode_ == Mode::kSkip) return true;
    if (!keys_.back().insert(name).second)
      throw_user(ExitCode::kBadFile, "{}: the key {} occurs twice in one object", spec_.file, quoted(name));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kPair;
      parts_ = 0;
      return true;
    }
    if (mode_ == Mode::kTree && at_model() && key_ == "merges") {
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kTree && at_model() && key_ == "vocab") {  // a Unigram model: refused by its type
      mode_ = Mode::kSkip;
      skipped_ = 1;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view why = error.what();
    if (const size_t colon = why.find(": "); colon != std::string_view::npos) why.remove_prefix(colon + 2);
    throw_user(ExitCode::kBadFile, "{}: byte {}: not valid JSON: {}", spec_.file, position, why);
  }

 private:
  enum class Mode : uint8_t { kTree, kVocabulary, kMerges, kPair, kSkip };

  static std::string quoted(const std::string& text) { return quote_json(Json(text)); }
  const char* vocabulary_field() const { return whole_ ? "the id" : "model.vocab: the id"; }
  // Directly inside the object "model" of the top.
  bool at_model() const { return open_.size() == 2 && model_; }

  [[noreturn]] void misplaced(const Json& value) {
    if (mode_ == Mode::kVocabulary)
      throw_user(ExitCode::kBadFile, "{}: {} of {} is {}; expected a non-negative integer", spec_.file,
                 vocabulary_field(), quoted(token_), quote_json(value));
    const size_t begun = mode_ == Mode::kPair ? std::min<size_t>(parts_, 2) : 0;  // of this pair
    throw_user(ExitCode::kBadFile, "{}: model.merges[{}] is {}; expected two tokens", spec_.file,
               (spec_.merges.size() - begun) / 2, quote_json(value));
  }

  Json* place(Json value) {
    if (++values_ > kMostValues)
      throw_user(ExitCode::kBadFile, "{}: more than {} values outside vocabulary and merges", spec_.file,
                 kMostValues);
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array())
      return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    auto& object = open_.back()->get_ref<Json::object_t&>();
    object.push_back({key_, std::move(value)});
    return &object.back().second;
  }

  template <typename T>
  bool add(T&& value) {
    if (mode_ == Mode::kSkip) return true;
    if (mode_ != Mode::kTree) misplaced(Json(std::forward<T>(value)));
    place(Json(std::forward<T>(value)));
    return true;
  }

  bool open(Json container) {
    if (mode_ == Mode::kSkip) {
      if (++skipped_ > kDeepest) too_deep();
      return true;
    }
    if (mode_ != Mode::kTree) misplaced(container);
    if (open_.size() >= kDeepest) too_deep();
    if (open_.size() == 1) model_ = key_ == "model" && container.is_object();
    open_.push_back(place(std::move(container)));  // the parent cannot grow while this child is open
    keys_.emplace_back();
    return true;
  }

  [[noreturn]] void too_deep() const {
    throw_user(ExitCode::kBadFile, "{}: nested deeper than {} levels", spec_.file, kDeepest);
  }

  bool close() {
    switch (mode_) {
      case Mode::kPair:
        if (parts_ != 2)
          throw_user(ExitCode::kBadFile, "{}: model.merges[{}] has {} tokens; expected two", spec_.file,
                     (spec_.merges.size() - std::min<size_t>(parts_, 2)) / 2, parts_);
        mode_ = Mode::kMerges;
        return true;
      case Mode::kSkip:
        if (--skipped_ == 0) mode_ = Mode::kTree;
        return true;
      case Mode::kVocabulary:
      case Mode::kMerges:
        mode_ = Mode::kTree;
        if (!whole_) place(true);  // it was there
        return true;
      case Mode::kTree:
        break;
    }
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  TokenizerSpec& spec_;
  bool whole_;
  Mode mode_ = Mode::kTree;
  bool model_ = false;
  size_t parts_ = 0, skipped_ = 0;
  std::string token_, key_;
  Json root_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;
  int64_t values_ = 0;
};

Json read(std::string_view text, TokenizerSpec& spec, bool whole) {
  if (static_cast<int64_t>(text.size()) > kLargestFile.value)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected at most {}", spec.file,
               format_bytes(Bytes(static_cast<int64_t>(text.size()))), format_bytes(kLargestFile));
  // The parser takes a NUL for the end of its input and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw_user(ExitCode::kBadFile, "{}: byte {}: not valid JSON: a NUL", spec.file, nul + 1);
  Reader reader(spec, whole);
  require(Json::sax_parse(text.begin(), text.end(), &reader), "{}: the JSON parser stopped without an error",
          spec.file);
  return reader.take();
}

// Tokens and ids are each unique.
void check_vocabulary(const TokenizerSpec& spec, std::string_view field) {
  std::unordered_set<std::string_view> tokens;
  tokens.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i)
    if (!tokens.insert(spec.tokens[i]).second)
      throw_user(ExitCode::kBadFile, "{}: {} has {} twice", spec.file, field,
                 quote_json(Json(std::string(spec.tokens[i]))));
  std::unordered_map<int32_t, size_t> ids;
  ids.reserve(spec.ids.size());
  for (size_t i = 0; i < spec.ids.size(); ++i)
    if (const auto [found, fresh] = ids.emplace(spec.ids[i], i); !fresh)
      throw_user(ExitCode::kBadFile, "{}: {} gives id {} to {} and to {}", spec.file, field, spec.ids[i],
                 quote_json(Json(std::string(spec.tokens[found->second]))),
                 quote_json(Json(std::string(spec.tokens[i]))));
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
  const std::string text = component.text(key);
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
    step.pattern = {.is_regex = true, .text = R"(\w+|[^\w\s]+)"};
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
    value.unexpected(fmt::format("an id below {}", kMostIds));
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

void read_model(const Json& json, TokenizerSpec& spec) {
  const Component model{at(json, "model"), spec.file, "model"};
  if (!model.json.is_object()) model.unexpected("an object");
  // Files of the library's first versions have no type.
  const std::string type =
      at(model.json, "type").is_null() && model.json.contains("merges") ? "BPE" : model.type();
  if (type != "BPE")
    throw_user(ExitCode::kBadFile, "{}: model.type is \"{}\"; expected \"BPE\" ({})", spec.file, type,
               kWhatToDo);
  for (const char* key : {"vocab", "merges"})
    if (!(at(model.json, key) == true)) model.child(key).unexpected(key[0] == 'v' ? "an object" : "an array");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Component value = model.child(key); !value.json.is_null() && value.json != "")
      value.unexpected(
          fmt::format("null: Snug does not run BPE with prefixes or suffixes of words ({})", kWhatToDo));
  if (const Component dropout = model.child("dropout"); !dropout.json.is_null() && dropout.json != 0.0)
    dropout.unexpected("null: ids would be drawn at random");
  if (!at(model.json, "unk_token").is_null()) spec.unk_token = model.text("unk_token");
  spec.fuse_unk = model.boolean("fuse_unk", false);
  spec.byte_fallback = model.boolean("byte_fallback", false);
  spec.ignore_merges = model.boolean("ignore_merges", false);
  check_vocabulary(spec, "model.vocab");
}

void read_added_tokens(const Json& json, TokenizerSpec& spec) {
  const Component added{at(json, "added_tokens"), spec.file, "added_tokens"};
  if (added.json.is_null()) return;
  if (!added.json.is_array()) added.unexpected("an array");
  for (size_t i = 0; i < added.json.size(); ++i) {
    const Component entry = added.child(added.json[i], fmt::format("[{}]", i));
    if (!entry.json.is_object()) entry.unexpected("an object");
    AddedToken token{.content = entry.text("content"), .id = read_id(entry.child("id"))};
    token.special = entry.boolean("special", false);
    token.normalized = entry.boolean("normalized", !token.special);
    token.lstrip = entry.boolean("lstrip", false);
    token.rstrip = entry.boolean("rstrip", false);
    token.single_word = entry.boolean("single_word", false);
    spec.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file) {
  TokenizerSpec spec;
  spec.file = file;
  const Json json = read(text, spec, false);
  if (!json.is_object()) throw_unexpected(file, "the top", json, "an object");
  read_model(json, spec);
  read_added_tokens(json, spec);
  const auto component = [&](const char* field) { return Component{at(json, field), spec.file, field}; };
  if (const Component part = component("normalizer"); !part.json.is_null())
    part.each("normalizers", [&](const Component& c) { spec.normalizer.push_back(read_normalizer(c)); });
  if (const Component part = component("pre_tokenizer"); !part.json.is_null())
    part.each("pretokenizers", [&](const Component& c) {
      if (!spec.pre_tokenizer.empty() && spec.pre_tokenizer.back().kind == PreTokenizerStep::Kind::kByteLevel)
        throw_user(ExitCode::kBadFile, "{}: {} comes after ByteLevel; expected ByteLevel last", spec.file,
                   c.field);
      spec.pre_tokenizer.push_back(read_pre_tokenizer(c));
    });
  if (const Component part = component("post_processor"); !part.json.is_null())
    part.each("processors", [&](const Component& c) { read_post_processor(c, spec); });
  if (const Component part = component("decoder"); !part.json.is_null()) {
    spec.has_decoder = true;
    part.each("decoders", [&](const Component& c) { spec.decoder.push_back(read_decoder(c)); });
  }
  for (const char* key : {"truncation", "padding"})
    if (!at(json, key).is_null())
      spec.notices.push_back(fmt::format("{}: {} is passed over: texts are encoded whole", file, key));
  return spec;
}

TokenizerSpec parse_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_file,
                               std::string_view merges, const std::string& merges_file,
                               std::string_view config, const std::string& config_file) {
  TokenizerSpec spec;
  spec.file = vocabulary_file;
  read(vocabulary, spec, true);
  if (spec.tokens.size() == 0)
    throw_user(ExitCode::kBadFile, "{}: holds no tokens; expected an object of tokens and ids",
               vocabulary_file);
  check_vocabulary(spec, "the vocabulary");

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

  const Json settings = config.empty() ? Json::object() : parse_json(config, config_file);
  if (!settings.is_object()) throw_unexpected(config_file, "the top", settings, "an object");
  if (const Json& name = at(settings, "tokenizer_class");
      !name.is_null() && name != "GPT2Tokenizer" && name != "GPT2TokenizerFast")
    throw_user(
        ExitCode::kBadFile,
        "{}: tokenizer_class is {}; expected GPT2Tokenizer beside vocab.json and merges.txt (another class "
        "splits text in another way: save it as tokenizer.json with transformers)",
        config_file, quote_json(name));
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kByteLevel;
  step.add_prefix_space = Component{settings, config_file, "the top"}.boolean("add_prefix_space", false);
  step.use_regex = true;
  step.pattern = {.is_regex = true, .text = std::string(kGpt2Regex)};
  spec.pre_tokenizer.push_back(step);
  spec.has_decoder = true;
  spec.decoder.push_back({.kind = DecoderStep::Kind::kByteLevel});

  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const Json& value = at(settings, key);
    const Json& content = value.is_object() ? at(value, "content") : value;
    const std::string token = content.is_string() ? content.get<std::string>() : "<|endoftext|>";
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.tokens[i] != token) continue;
      const bool known = std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                                     [&](const AddedToken& added) { return added.content == token; });
      if (!known) spec.added_tokens.push_back({.content = token, .id = spec.ids[i], .special = true});
    }
  }
  return spec;
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
  if (const std::string file = join_path(path, "tokenizer.json"); file_exists(file))
    return parse_tokenizer_json(read_small_file(file, kLargestFile), file);
  const std::string vocabulary = join_path(path, "vocab.json"), merges = join_path(path, "merges.txt");
  if (file_exists(vocabulary) && file_exists(merges)) {
    const std::string config = join_path(path, "tokenizer_config.json");
    return parse_gpt2_files(read_small_file(vocabulary, kLargestFile), vocabulary,
                            read_small_file(merges, kLargestFile), merges,
                            file_exists(config) ? read_small_file(config, 16 * kMiB) : std::string(), config);
  }
  for (const char* name :
       {"tokenizer.model", "spiece.model", "tokenizer.tiktoken", "qwen.tiktoken", "vocab.txt"})
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
