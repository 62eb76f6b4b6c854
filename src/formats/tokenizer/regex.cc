#include "formats/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "formats/tokenizer/unicode.h"

namespace snug {
namespace {

// Steps of one attempt at a match. The expressions of real tokenizers take about one for each character of
// what they match or look at.
constexpr uint32_t kMostSteps = 20'000'000;
constexpr uint32_t kMostHeapKiB = 256 * 1024;
constexpr size_t kJitStackStart = size_t{32} * 1024, kJitStackMost = size_t{16} * 1024 * 1024;
// A search without success is made in stretches of this many bytes. What they take beyond kSecondsPerByte
// is added up and may not pass kMostSlowSeconds.
constexpr size_t kStretch = 1024;
constexpr double kSecondsPerByte = 2e-6, kMostSlowSeconds = 5;
constexpr size_t kLongestPattern = 16 * 1024;

// Oniguruma's names of properties in PCRE2; other names pass as they are when they are general categories, and
// become sc:NAME otherwise.
constexpr std::array<std::pair<std::string_view, std::string_view>, 38> kProperties = {{
    {"any", "Any"},
    {"alpha", "Alphabetic"},
    {"alphabetic", "Alphabetic"},
    {"space", "White_Space"},
    {"whitespace", "White_Space"},
    {"upper", "Uppercase"},
    {"uppercase", "Uppercase"},
    {"lower", "Lowercase"},
    {"lowercase", "Lowercase"},
    {"digit", "Nd"},
    {"cntrl", "Cc"},
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
}};
constexpr std::string_view kCategories =
    " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp "
    "Zs ";

constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : text_(pattern), where_(where) {}

  TranslatedRegex run() {
    if (text_.size() > kLongestPattern)
      throw_user(ExitCode::kBadFile, "{}: a regular expression of {} bytes; expected at most {}", where_,
                 text_.size(), kLongestPattern);
    while (at_ < text_.size()) item();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw_user(ExitCode::kBadFile,
               "{}: the regular expression {} has {} at byte {}, which Snug does not read", where_,
               text_.size() > 200 ? std::string(text_.substr(0, 200)) + "…" : std::string(text_), what,
               at_ + 1);
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string& out() { return result_.pattern; }

  void item() {
    const char c = peek();
    if (c == '(') {
      open_group();
    } else if (c == ')') {
      if (groups_.empty()) refuse("a ) without its (");
      out() += c;
      ++at_;
      atom_ = groups_.back();
      groups_.pop_back();
    } else if (c == '[') {
      atom_ = out().size();
      char_class();
    } else if (c == '\\') {
      atom_ = out().size();
      escape(false);
    } else if (c == '*' || c == '+' || c == '?') {
      out() += c;
      ++at_;
      if (peek() == '+' || peek() == '?') out() += text_[at_++];
    } else if (c == '{') {
      interval();
    } else {
      if (c == '^') result_.looks_back = true;
      atom_ = out().size();
      // One whole character, so that a quantifier after it has it all.
      do out() += text_[at_++];
      while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80);
    }
  }

  void open_group() {
    groups_.push_back(out().size());
    ++at_;
    out() += '(';
    if (peek() != '?') return;
    out() += '?';
    ++at_;
    const char kind = peek();
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>') {
      out() += kind;
      ++at_;
    } else if (kind == '<' && (peek(1) == '=' || peek(1) == '!')) {
      result_.looks_back = true;
      out() += text_.substr(at_, 2);
      at_ += 2;
    } else if (kind == '#') {
      refuse("a comment");
    } else {
      // Options: Oniguruma's m is "the dot takes newlines too".
      while (at_ < text_.size() && peek() != ':' && peek() != ')') {
        const char option = peek();
        if (option == 'm')
          out() += 's';
        else if (option == 'i' || option == '-')
          out() += option;
        else
          refuse(fmt::format("(?{}", option));
        ++at_;
      }
      if (peek() == '\0') refuse("an open group");
      out() += peek();
      ++at_;
      if (out().back() == ')') groups_.pop_back();
    }
  }

  void interval() {
    size_t end = at_ + 1;
    while (end < text_.size() && ((text_[end] >= '0' && text_[end] <= '9') || text_[end] == ',')) ++end;
    if (end >= text_.size() || text_[end] != '}' || end == at_ + 1) {  // a literal brace
      atom_ = out().size();
      out() += "\\{";
      ++at_;
      return;
    }
    std::string_view written = text_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    if (written == "{,}") refuse("{,}");
    if (written.starts_with("{,"))
      out() += fmt::format("{{0{}", written.substr(1));
    else
      out() += written;
    if (peek() == '?') {
      out() += '?';
      ++at_;
    } else if (peek() == '+') {  // here a repetition of the repetition, not a possessive mark
      ++at_;
      out().insert(atom_, "(?:");
      out() += ")+";
    }
  }

  // \p{…} or \P{…}, with at_ at the p.
  void property() {
    bool negative = peek() == 'P';
    ++at_;
    std::string name;
    if (peek() == '{') {
      const size_t close = text_.find('}', at_);
      if (close == std::string_view::npos) refuse("\\p{ without }");
      name = text_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
    } else {
      refuse("\\p without {");
    }
    if (name.starts_with('^')) {
      negative = !negative;
      name.erase(0, 1);
    }
    std::string key;
    for (const char c : name)
      if (c != '_' && c != ' ' && c != '-')
        key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string meaning;
    for (const auto& [from, to] : kProperties)
      if (key == from) meaning = to;
    if (meaning.empty() && (name.size() == 1 || name.size() == 2)) {
      std::string category = name;
      category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
      if (category.size() == 2)
        category[1] = static_cast<char>(std::tolower(static_cast<unsigned char>(category[1])));
      if (kCategories.find(" " + category + " ") == std::string_view::npos) refuse("\\p{" + name + "}");
      meaning = category;
    }
    if (meaning.empty()) {
      for (const char c : name)
        if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_') refuse("\\p{" + name + "}");
      for (const char* unclear : {"punct", "word", "graph", "print", "blank", "alnum", "xdigit", "ascii"})
        if (key == unclear) refuse("\\p{" + name + "}");
      meaning = "sc:" + name;
    }
    out() += fmt::format("\\{}{{{}}}", negative ? 'P' : 'p', meaning);
  }

  void escape(bool in_class) {
    ++at_;
    if (at_ >= text_.size()) refuse("a \\ at the end");
    const char c = peek();
    const auto put = [&](std::string_view pcre) {
      out() += pcre;
      ++at_;
    };
    switch (c) {
      case 'p':
      case 'P':
        property();
        return;
      case 's':
        put("\\p{White_Space}");
        return;
      case 'S':
        put("\\P{White_Space}");
        return;
      case 'd':
        put("\\p{Nd}");
        return;
      case 'D':
        put("\\P{Nd}");
        return;
      case 'w':
        put(in_class ? std::string(kWordClass) : fmt::format("[{}]", kWordClass));
        return;
      case 'W':
        if (in_class) refuse("\\W in a class");
        put(fmt::format("[^{}]", kWordClass));
        return;
      case 'h':
        put(in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
        return;
      case 'b':
        if (in_class) {
          put("\\x08");
          return;
        }
        result_.looks_back = true;
        put(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWordClass));
        return;
      case 'A':
      case 'z':
      case 'Z':
        if (in_class) refuse(fmt::format("\\{} in a class", c));
        result_.looks_back = true;
        put(fmt::format("\\{}", c));
        return;
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'e':
      case 'a':
        put(fmt::format("\\{}", c));
        return;
      case 'v':
        put("\\x0B");
        return;
      case 'x':
      case 'u':
        hexadecimal();
        return;
      default:
        break;
    }
    if (static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c)) != 0)
      refuse(fmt::format("\\{}", static_cast<unsigned char>(c) >= 0x80 ? '?' : c));
    put(fmt::format("\\{}", c));
  }

  // \xHH, \x{H…} or \uHHHH, with at_ at the letter.
  void hexadecimal() {
    const bool unicode = peek() == 'u';
    ++at_;
    const bool braces = !unicode && peek() == '{';
    if (braces) ++at_;
    std::string digits;
    const size_t most = braces ? 8 : unicode ? 4 : 2;
    while (digits.size() < most && std::isxdigit(static_cast<unsigned char>(peek())) != 0)
      digits += text_[at_++];
    if (digits.empty() || (unicode && digits.size() != 4)) refuse("a hexadecimal number without digits");
    if (braces) {
      if (peek() != '}') refuse("\\x{ without }");
      ++at_;
    } else if (!unicode && std::stoul(digits, nullptr, 16) >= 0x80) {
      refuse("a single byte \\x80 or above");
    }
    out() += fmt::format("\\x{{{}}}", digits);
  }

  void char_class() {
    out() += '[';
    ++at_;
    if (peek() == '^') {
      out() += '^';
      ++at_;
    }
    if (peek() == ']') {
      out() += "\\]";
      ++at_;
    }
    for (;;) {
      if (at_ >= text_.size()) refuse("a class without ]");
      const char c = peek();
      if (c == ']') {
        out() += c;
        ++at_;
        return;
      }
      if (c == '\\') {
        escape(true);
      } else if (c == '[') {
        refuse("a class inside a class");
      } else if (c == '&' && peek(1) == '&') {
        refuse("an intersection of classes");
      } else {
        out() += c;
        ++at_;
      }
    }
  }

  std::string_view text_, where_;
  size_t at_ = 0;
  size_t atom_ = 0;             // where the last atom begins in the output
  std::vector<size_t> groups_;  // where open groups begin in the output
  TranslatedRegex result_;
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};

}  // namespace

TranslatedRegex translate_regex(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

std::string escape_regex(std::string_view literal) {
  std::string escaped;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct Regex::State {
  std::string source, where;
  bool looks_back = false;
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack;
  bool compiled = false;  // by the JIT
  double slow_seconds = 0;

  int match(std::string_view text, size_t from, uint32_t options, size_t last) {
    pcre2_set_offset_limit(context.get(), last);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int code_or_count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled)
      code_or_count =
          pcre2_jit_match(code.get(), subject, text.size(), from, options, data.get(), context.get());
    if (code_or_count ==
        PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state on a heap that is bounded too
      code_or_count = pcre2_match(code.get(), subject, text.size(), from,
                                  options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    return code_or_count;
  }

  [[noreturn]] void too_slow() const {
    throw_user(ExitCode::kBadFile, "{}: the regular expression {} takes too many steps on this text", where,
               source.size() > 200 ? source.substr(0, 200) + "…" : source);
  }
};

Regex::Regex(std::string_view pattern, std::string_view where) : state_(std::make_unique<State>()) {
  const TranslatedRegex translated = translate_regex(pattern, where);
  state_->source = pattern;
  state_->where = where;
  state_->looks_back = translated.looks_back;
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> compile(
      pcre2_compile_context_create(nullptr));
  if (!compile) throw std::bad_alloc();
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(compile.get(), 100);
  int error = 0;
  size_t offset = 0;
  state_->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.pattern.data()), translated.pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, compile.get()));
  if (!state_->code)
    throw_user(ExitCode::kBadFile, "{}: the regular expression {} is not valid: {}", where,
               pattern.size() > 200 ? std::string(pattern.substr(0, 200)) + "…" : std::string(pattern),
               pcre2_message(error));
  state_->compiled = pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  state_->data.reset(pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
  if (!state_->data || !state_->context || !state_->stack) throw std::bad_alloc();
  pcre2_set_match_limit(state_->context.get(), kMostSteps);
  pcre2_set_heap_limit(state_->context.get(), kMostHeapKiB);
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::looks_back() const { return state_->looks_back; }

Regex::Found Regex::find(std::string_view text, size_t from, bool final) {
  const uint32_t options = final ? 0 : PCRE2_PARTIAL_HARD;
  using Clock = std::chrono::steady_clock;
  for (bool first = true;; first = false) {
    // The search stops at a character's beginning.
    size_t last = std::min(text.size(), from + kStretch);
    while (last < text.size() && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) ++last;
    const Clock::time_point begin = first ? Clock::time_point() : Clock::now();
    const int code = state_->match(text, from, options, last);
    if (!first) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      state_->slow_seconds += std::max(0.0, seconds - kSecondsPerByte * static_cast<double>(last - from));
      if (state_->slow_seconds > kMostSlowSeconds) state_->too_slow();
    }
    if (code == PCRE2_ERROR_NOMATCH) {
      if (last >= text.size()) return {Result::kNone};
      from = last;
      continue;
    }
    const size_t* ends = pcre2_get_ovector_pointer(state_->data.get());
    if (code == PCRE2_ERROR_PARTIAL) return {Result::kPartial, ends[0], ends[1]};
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_DEPTHLIMIT)
      state_->too_slow();
    if (code == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    require(code >= 0, "pcre2: {}", pcre2_message(code));
    return {Result::kFound, ends[0], ends[1]};
  }
}

}  // namespace snug
