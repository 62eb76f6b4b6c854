#include "base/json.h"

#include <memory>
#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "base/utf8.h"

namespace snug {
namespace {

constexpr size_t kLongestQuote = 80;

// Reads bytes for the parser and counts them, so that errors found by the handler have a position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Builds the value and enforces the limits. Keys are appended to the ordered object without its own search,
// which would be quadratic; duplicates are found by a set for each open object.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view file, const JsonLimits& limits, const char* begin, const char** reached)
      : file_(file), limits_(limits), begin_(begin), reached_(reached) {}

  Json take() { return std::move(root_); }
  bool is_whole() const { return values_ > 0 && open_.empty(); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& name) override {
    if (!keys_.back()->insert(name).second)
      throw_user(ExitCode::kBadFile, "{}: byte {}: the key \"{}\" occurs twice in one object", file_, byte(),
                 name);
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: why": the position is given already.
    std::string_view why = error.what();
    if (const size_t tag = why.find("] "); tag != std::string_view::npos) why.remove_prefix(tag + 2);
    if (const size_t colon = why.find(": ");
        why.starts_with("parse error") && colon != std::string_view::npos)
      why.remove_prefix(colon + 2);
    throw_user(ExitCode::kBadFile, "{}: byte {}: not valid JSON: {}", file_, position, why);
  }

 private:
  int64_t byte() const { return *reached_ - begin_; }

  Json* place(Json value) {
    if (++values_ > limits_.values)
      throw_user(ExitCode::kBadFile, "{}: byte {}: more than {} values", file_, byte(), limits_.values);
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->get_ref<Json::array_t&>();
      return &array.emplace_back(std::move(value));
    }
    auto& object = open_.back()->get_ref<Json::object_t&>();
    object.push_back({std::move(key_), std::move(value)});
    return &object.back().second;
  }

  template <typename T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      throw_user(ExitCode::kBadFile, "{}: byte {}: nested deeper than {} levels", file_, byte(),
                 limits_.depth);
    const bool is_object = container.is_object();
    // The parent cannot grow while this child is open, so the pointer stays good.
    open_.push_back(place(std::move(container)));
    keys_.push_back(is_object ? std::make_unique<std::unordered_set<std::string>>() : nullptr);
    return true;
  }

  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view file_;
  const JsonLimits& limits_;
  const char* begin_;
  const char** reached_;
  Json root_;
  std::string key_;
  std::vector<Json*> open_;
  std::vector<std::unique_ptr<std::unordered_set<std::string>>> keys_;
  int64_t values_ = 0;
};

// Builds one member after the other (parse_json_members).
class MemberReader : public nlohmann::json_sax<Json> {
 public:
  using Take = std::function<void(std::string&&, Json&&)>;

  MemberReader(std::string_view file, const JsonLimits& limits, const char* begin, const char** reached,
               std::string_view key, const Take& take)
      : file_(file), limits_(limits), begin_(begin), reached_(reached), key_(key), take_(take) {}

  std::optional<Json> other() { return found_ ? std::nullopt : std::optional(std::move(other_)); }

  bool null() override {
    return forward([](Builder& builder) { return builder.null(); });
  }
  bool boolean(bool value) override {
    return forward([&](Builder& builder) { return builder.boolean(value); });
  }
  bool number_integer(number_integer_t value) override {
    return forward([&](Builder& builder) { return builder.number_integer(value); });
  }
  bool number_unsigned(number_unsigned_t value) override {
    return forward([&](Builder& builder) { return builder.number_unsigned(value); });
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return forward([&](Builder& builder) { return builder.number_float(value, text); });
  }
  bool string(string_t& value) override {
    return forward([&](Builder& builder) { return builder.string(value); });
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t size) override {
    const bool is_top = !member_ && place_ == Place::kOutside;
    const bool is_at_key = !member_ && place_ == Place::kTop && name_ == key_;
    if (!is_top && !is_at_key) return forward([&](Builder& builder) { return builder.start_object(size); });
    if (is_at_key && found_)
      throw_user(ExitCode::kBadFile, "{}: the key \"{}\" occurs twice in one object", file_, key_);
    place_ = is_top && !key_.empty() ? Place::kTop : Place::kMembers;
    found_ = found_ || place_ == Place::kMembers;
    return true;
  }
  bool key(string_t& name) override {
    if (member_) return member_->key(name);
    name_ = std::move(name);
    return true;
  }
  bool end_object() override {
    if (member_) return forward([](Builder& builder) { return builder.end_object(); });
    place_ = place_ == Place::kMembers && !key_.empty() ? Place::kTop : Place::kOutside;
    return true;
  }
  bool start_array(std::size_t size) override {
    return forward([&](Builder& builder) { return builder.start_array(size); });
  }
  bool end_array() override {
    return forward([](Builder& builder) { return builder.end_array(); });
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    return Builder(file_, limits_, begin_, reached_).parse_error(position, token, error);
  }

 private:
  enum class Place : uint8_t { kOutside, kTop, kMembers };

  // An event of a member; its last one ends it.
  template <typename Event>
  bool forward(const Event& event) {
    if (!member_) member_.emplace(file_, limits_, begin_, reached_);
    const bool goes_on = event(*member_);
    if (!member_->is_whole()) return goes_on;
    Json value = member_->take();
    member_.reset();
    if (place_ == Place::kOutside) throw_unexpected(file_, "the top", value, "an object");
    if (place_ == Place::kMembers)
      take_(std::move(name_), std::move(value));
    else if (name_ == key_)
      other_ = std::move(value);
    return goes_on;
  }

  std::string_view file_;
  const JsonLimits& limits_;
  const char* begin_;
  const char** reached_;
  std::string_view key_;
  const Take& take_;
  Place place_ = Place::kOutside;
  bool found_ = false;
  std::string name_;
  Json other_;
  std::optional<Builder> member_;
};

template <typename T>
std::string expected_text(const NumberRange& range) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_same_v<T, int64_t>)
    return range.expected.empty() ? "an integer" : fmt::format("a {} integer", range.expected);
  if constexpr (std::is_same_v<T, double>)
    return range.expected.empty() ? "a number" : fmt::format("a {} number", range.expected);
}

template <typename T>
std::optional<T> as(const Json& value, const NumberRange& range) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_string()) return value.get<std::string>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return std::nullopt;
    if (!value.is_number_integer()) return std::nullopt;
    const auto number = value.get<int64_t>();
    const auto real = static_cast<double>(number);
    if (real >= range.first && real <= range.last) return number;
  } else {
    if (!value.is_number()) return std::nullopt;
    const auto number = value.get<double>();
    if (number >= range.first && number <= range.last) return number;
  }
  return std::nullopt;
}

void check_json_text(std::string_view text, std::string_view file, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.size.value)
    throw_user(ExitCode::kBadFile, "{}: is {}; expected at most {}", file,
               format_bytes(Bytes(static_cast<int64_t>(text.size()))), format_bytes(limits.size));
  // The parser takes a NUL for the end of its input and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw_user(ExitCode::kBadFile, "{}: byte {}: not valid JSON: a NUL", file, nul + 1);
}

void run_parser(std::string_view text, std::string_view file, const char** reached,
                nlohmann::json_sax<Json>& handler) {
  const bool done = Json::sax_parse(CountingIterator(text.data(), reached),
                                    CountingIterator(text.data() + text.size(), reached), &handler);
  require(done, "{}: the JSON parser stopped without an error", file);
}

}  // namespace

Json parse_json(std::string_view text, std::string_view file, const JsonLimits& limits) {
  check_json_text(text, file, limits);
  const char* reached = text.data();
  Builder builder(file, limits, text.data(), &reached);
  run_parser(text, file, &reached, builder);
  return builder.take();
}

std::optional<Json> parse_json_members(std::string_view text, std::string_view file, const JsonLimits& limits,
                                       std::string_view key,
                                       const std::function<void(std::string&& name, Json&& value)>& take) {
  check_json_text(text, file, limits);
  const char* reached = text.data();
  MemberReader reader(file, limits, text.data(), &reached, key, take);
  run_parser(text, file, &reached, reader);
  return reader.other();
}

Json read_json_object(const std::string& path, const JsonLimits& limits) {
  Json json = parse_json(read_small_file(path, limits.size), path, limits);
  if (!json.is_object()) throw_unexpected(path, "the top", json, "an object");
  return json;
}

std::string quote_json(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongestQuote) text = std::string(whole_characters(text, kLongestQuote)) + "…";
  return value.is_null() ? text : fmt::format("{} ({})", text, value.type_name());
}

void throw_unexpected(std::string_view file, std::string_view field, const Json& value,
                      std::string_view expected) {
  throw_user(ExitCode::kBadFile, "{}: {} is {}; expected {}", file, field, quote_json(value), expected);
}

template <typename T>
std::optional<T> optional_field(const Json& json, std::string_view key, std::string_view file,
                                const NumberRange& range) {
  const auto found = json.find(std::string(key));
  if (found == json.end() || found->is_null()) return std::nullopt;
  std::optional<T> value = as<T>(*found, range);
  if (!value) {
    std::string expected = expected_text<T>(range);
    if (found->is_number() && found->get<double>() > range.last)
      expected += fmt::format(" of at most {:.0f}", range.last);
    throw_unexpected(file, key, *found, expected);
  }
  return value;
}

template <typename T>
T field(const Json& json, std::string_view key, std::string_view file, const NumberRange& range) {
  const std::optional<T> value = optional_field<T>(json, key, file, range);
  if (!value) {
    throw_user(ExitCode::kBadFile, "{}: {} is {}; expected {}", file, key,
               json.contains(std::string(key)) ? "null" : "missing", expected_text<T>(range));
  }
  return *value;
}

#define SNUG_INSTANTIATE(T)                                                                    \
  template std::optional<T> optional_field<T>(const Json&, std::string_view, std::string_view, \
                                              const NumberRange&);                             \
  template T field<T>(const Json&, std::string_view, std::string_view, const NumberRange&)
SNUG_INSTANTIATE(int64_t);
SNUG_INSTANTIATE(double);
SNUG_INSTANTIATE(bool);
SNUG_INSTANTIATE(std::string);
#undef SNUG_INSTANTIATE

}  // namespace snug
