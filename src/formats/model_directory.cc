#include "formats/model_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/file.h"
#include "base/json_cursor.h"

namespace snug {
namespace {

// What may become a tree, which takes far more memory than its text: some 16 MiB at most (memory_test.cc). Real files have hundreds of values.
constexpr JsonLimits kConfigLimits{.size = Bytes(4 << 20), .depth = 64, .values = 50'000};

struct FamilyRow {
  ModelFamily family;
  std::string_view model_type;
  std::array<std::string_view, 2> architectures;  // with the language-model head, and the bare model
};

constexpr std::array<FamilyRow, 2> kFamilies = {{
    {ModelFamily::kGpt2, "gpt2", {"GPT2LMHeadModel", "GPT2Model"}},
    {ModelFamily::kLlama, "llama", {"LlamaForCausalLM", "LlamaModel"}},
}};

constexpr std::array<std::string_view, 12> kSideFiles = {"generation_config.json",
                                                         "tokenizer.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "vocab.json",
                                                         "vocab.txt",
                                                         "merges.txt",
                                                         "tokenizer.model",
                                                         "spiece.model"};

constexpr std::array<std::string_view, 3> kCards = {"README.md", "USE_POLICY.md", "NOTICE"};

template <size_t N>
bool holds(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_side_file(std::string_view name) {
  return holds(kSideFiles, name) || holds(kCards, name) || name.starts_with("LICENSE") ||
         name.starts_with("LICENCE");
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat status_a {};
  struct stat status_b {};
  return ::stat(a.c_str(), &status_a) == 0 && ::stat(b.c_str(), &status_b) == 0 &&
         status_a.st_dev == status_b.st_dev && status_a.st_ino == status_b.st_ino;
}

ModelFamily parse_family(const Json& config, const std::string& file) {
  const auto model_type = field<std::string>(config, "model_type", file);
  const auto* row = std::find_if(kFamilies.begin(), kFamilies.end(),
                                 [&](const FamilyRow& r) { return r.model_type == model_type; });
  if (row == kFamilies.end())
    throw_user(ExitCode::kBadFile, "{}: model_type is \"{}\"; expected \"gpt2\" or \"llama\"", file,
               model_type);
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || architectures->is_null()) return row->family;
  if (!architectures->is_array())
    throw_unexpected(file, "architectures", *architectures, "an array of class names");
  for (const Json& name : *architectures) {
    const bool known =
        name.is_string() && std::find(row->architectures.begin(), row->architectures.end(),
                                      name.get_ref<const std::string&>()) != row->architectures.end();
    if (!known)
      throw_unexpected(file, "architectures", name,
                       fmt::format("{} (a language model's head)", row->architectures[0]));
  }
  return row->family;
}

// eos_token_id of config.json or generation_config.json.
std::vector<int32_t> read_end_of_text_ids(std::string_view text, const std::string& file) {
  constexpr std::string_view kField = "eos_token_id";
  std::vector<int32_t> ids;
  JsonCursor cursor(text, file);
  const auto read_id = [&] {
    if (cursor.peek() != JsonCursor::Kind::kNumber) cursor.throw_expected(kField, "an id or a list of ids");
    const int64_t id = cursor.read_integer(kField);
    if (id > std::numeric_limits<int32_t>::max())
      throw_user(ExitCode::kBadFile, "{}: {} is {}; expected an id of at most {}", file, kField, id,
                 std::numeric_limits<int32_t>::max());
    if (id >= 0) ids.push_back(static_cast<int32_t>(id));  // −1 is how some files say that there is none
  };
  cursor.enter_object("the top");
  for (std::string key; cursor.next_key(key);) {
    if (key != kField || cursor.peek() == JsonCursor::Kind::kNull) {
      cursor.skip_value();
    } else if (cursor.peek() == JsonCursor::Kind::kArray) {
      cursor.enter_array(kField);
      ids.reserve(cursor.count_elements());
      while (cursor.next_element()) read_id();
    } else {
      read_id();
    }
  }
  cursor.finish();
  return ids;
}

}  // namespace

bool is_model_file(std::string_view name) { return name == "config.json" || holds(kSideFiles, name); }

ModelDirectory ModelDirectory::open(const std::string& path) {
  if (!directory_exists(path))
    throw_user(ExitCode::kBadFile, "{}: {}; expected a model directory with config.json", path,
               file_exists(path) ? "is a file" : "does not exist");
  ModelDirectory model;
  model.path_ = path;
  const std::string file = model.config_path();
  if (!file_exists(file))
    throw_user(ExitCode::kBadFile, "{}: has no config.json; expected a Hugging Face model directory", path);
  model.config_text_ = read_small_file(file, kConfigLimits.size);
  model.config_ = parse_json(model.config_text_, file, kConfigLimits);
  if (!model.config_.is_object()) throw_unexpected(file, "the top", model.config_, "an object");

  // Before the family's own keys, so that these are refused for what they are.
  if (const auto found = model.config_.find("quantization_config");
      found != model.config_.end() && !found->is_null())
    throw_user(ExitCode::kBadFile,
               "{}: has a quantization_config; quantized weights cannot be trained (expected the original "
               "model)",
               file);
  if (const auto found = model.config_.find("auto_map"); found != model.config_.end() && !found->is_null())
    throw_user(ExitCode::kBadFile,
               "{}: has an auto_map; the model needs its author's own code, which Snug does not run", file);
  model.family_ = parse_family(model.config_, file);
  return model;
}

std::string ModelDirectory::config_path() const { return join_path(path_, "config.json"); }

Gpt2Config ModelDirectory::gpt2_config() const {
  require(family_ == ModelFamily::kGpt2, "{} is not of the GPT-2 family", path_);
  return parse_gpt2_config(config_, config_path());
}

LlamaConfig ModelDirectory::llama_config() const {
  require(family_ == ModelFamily::kLlama, "{} is not of the Llama family", path_);
  return parse_llama_config(config_, config_path());
}

std::vector<int32_t> ModelDirectory::end_of_text_ids() const {
  if (const std::string file = join_path(path_, "generation_config.json"); file_exists(file))
    if (std::vector<int32_t> ids = read_end_of_text_ids(read_small_file(file, kConfigLimits.size), file);
        !ids.empty())
      return ids;
  return read_end_of_text_ids(config_text_, config_path());
}

int64_t ModelDirectory::vocab_size() const {
  return family_ == ModelFamily::kGpt2 ? gpt2_config().vocab_size : llama_config().vocab_size;
}

std::vector<std::string> ModelDirectory::side_files() const {
  std::vector<std::string> names = list_directory(path_);
  std::erase_if(names, [&](const std::string& name) {
    return !is_side_file(name) || !file_exists(join_path(path_, name));
  });
  return names;
}

void ModelDirectory::write_config(const std::string& directory,
                                  const std::vector<std::pair<std::string, Json>>& changes) const {
  const std::string target = join_path(directory, "config.json");
  Json changed = config_;
  for (const auto& [key, value] : changes) changed[key] = value;
  write_file(target, changed == config_ ? config_text_ : changed.dump(2) + "\n");
}

void ModelDirectory::copy_side_files(const std::string& directory) const {
  for (const std::string& name : side_files()) {
    const std::string from = join_path(path_, name);
    const std::string to = join_path(directory, name);
    if (!is_same_file(from, to)) copy_file(from, to);
  }
}

}  // namespace snug
