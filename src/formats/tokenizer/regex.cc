#include "formats/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/errors.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/regex_translation.h"
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
// Where versions of Unicode may differ: all but ideographs, Hangul syllables, private use, and what lies far from
// anything assigned.
constexpr std::array<CodePointRange, 8> kAsked = {{{0, 0x33FF},
                                                   {0x4D80, 0x4DFF},
                                                   {0x9F80, 0xABFF},
                                                   {0xD780, 0xD7FF},
                                                   {0xF8C0, 0x16FFF},
                                                   {0x18700, 0x1FFFF},
                                                   {0x2A680, 0x33FFF},
                                                   {0xE0000, 0xE0FFF}}};
constexpr CodePointRange kSurrogates = {0xD800, 0xDFFF};

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

using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;

// Code points of UTF-8 `text`, which is all of them in order, that PCRE2 counts among the class: pieces of it are matches.
CodePointSet matched_characters(const pcre2_code* code, pcre2_match_data* data, const std::string& text) {
  CodePointSet matched;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr) > 0;) {
    const size_t* ends = pcre2_get_ovector_pointer(data);
    matched.append(decode_utf8(text, ends[0]).value, decode_utf8_before(text, ends[1]).value);
    at = ends[1];
  }
  return matched;
}

// Those that UTF-8 can say. Written as quickly as may be: a program waits for it.
std::string every_character(char32_t first, char32_t last) {
  std::string text(size_t{4} * (last - first + 1), '\0');
  size_t at = 0;
  for (char32_t code = first; code <= last; ++code) {
    const auto trail = [&](int shift) { text[at++] = static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code >= kSurrogates.first && code <= kSurrogates.last) continue;
    if (code < 0x80) {
      text[at++] = static_cast<char>(code);
    } else if (code < 0x800) {
      text[at++] = static_cast<char>(0xC0 | code >> 6);
      trail(0);
    } else if (code < 0x10000) {
      text[at++] = static_cast<char>(0xE0 | code >> 12);
      trail(6);
      trail(0);
    } else {
      text[at++] = static_cast<char>(0xF0 | code >> 18);
      trail(12);
      trail(6);
      trail(0);
    }
  }
  text.resize(at);
  return text;
}

CodePointSet ask_engine(const std::string& items, const CodePointSet& near) {
  const std::string pattern = "[" + items + "]+";
  int error = 0;
  size_t offset = 0;
  const Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (!code) return {};
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const MatchData data(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  if (!data) throw std::bad_alloc();
  CodePointSet matched, asked;
  for (const auto& [first, last] : kAsked) {
    const std::string text = every_character(first, last);
    matched |= matched_characters(code.get(), data.get(), text);
    asked |= CodePointSet(first, last);
  }
  asked = asked - CodePointSet(kSurrogates.first, kSurrogates.last);
  return (matched & asked) | (near - asked);
}

// Each class is asked about once in a process: that takes a millisecond or two.
const CodePointSet& engine_class(const std::string& items, const CodePointSet& near) {
  static std::mutex guard;
  static std::map<std::string, CodePointSet> known;
  const std::lock_guard lock(guard);
  auto found = known.find(items);
  if (found == known.end()) found = known.emplace(items, ask_engine(items, near)).first;
  return found->second;
}

}  // namespace

std::string escape_regex(std::string_view literal) {
  std::string escaped;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct Regex::State {
  // An expression as PCRE2 has it.
  struct Program {
    Code code;
    MatchData data;
    bool compiled = false;  // by the JIT
  };

  std::string source, where;
  bool looks_back = false;
  Program usual, exact;  // exact: none where the usual one is right on every text
  bool exact_has_jit = false;
  // Texts with one of these need the exact one.
  CodePointTable unusual;
  // By its first byte: how long a character is; 0: it may be one of them.
  std::array<uint8_t, 256> lengths{};
  bool always_exact = false;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack;
  double slow_seconds = 0;

  Program program(const std::string& pattern) const {
    const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> compile(
        pcre2_compile_context_create(nullptr));
    if (!compile) throw std::bad_alloc();
    pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(compile.get(), 100);
    int error = 0;
    size_t offset = 0;
    Program made;
    made.code.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C, &error,
        &offset, compile.get()));
    if (!made.code)
      throw_user(ExitCode::kBadFile, "{}: the regular expression {} is not valid: {}", where,
                 source.size() > 200 ? source.substr(0, 200) + "…" : source, pcre2_message(error));
    made.data.reset(pcre2_match_data_create_from_pattern(made.code.get(), nullptr));
    if (!made.data) throw std::bad_alloc();
    return made;
  }

  static void use_jit(Program& program) {
    program.compiled =
        pcre2_jit_compile(program.code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  }

  // The exact one is compiled when the first text needs it.
  Program& program_for(bool is_unusual) {
    if (!is_unusual) return usual;
    if (!std::exchange(exact_has_jit, true)) use_jit(exact);
    return exact;
  }

  int match(const Program& program, std::string_view text, size_t from, uint32_t options, size_t last) {
    pcre2_set_offset_limit(context.get(), last);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int code_or_count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (program.compiled)
      code_or_count = pcre2_jit_match(program.code.get(), subject, text.size(), from, options,
                                      program.data.get(), context.get());
    if (code_or_count ==
        PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state on a heap that is bounded too
      code_or_count =
          pcre2_match(program.code.get(), subject, text.size(), from,
                      options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, program.data.get(), context.get());
    return code_or_count;
  }

  [[noreturn]] void too_slow() const {
    throw_user(ExitCode::kBadFile, "{}: the regular expression {} takes too many steps on this text", where,
               source.size() > 200 ? source.substr(0, 200) + "…" : source);
  }
};

Regex::Regex(std::string_view pattern, std::string_view where) : state_(std::make_unique<State>()) {
  const TranslatedRegex translated = translate_regex(pattern, where, &engine_class);
  state_->source = pattern;
  state_->where = where;
  state_->looks_back = translated.looks_back;
  state_->usual = state_->program(translated.pattern);
  State::use_jit(state_->usual);
  if (!translated.differs.empty()) {
    state_->exact = state_->program(translated.exact);
    state_->unusual = CodePointTable(translated.differs);
    for (size_t lead = 0; lead < 256; ++lead)
      state_->lengths[lead] = lead < 0xE0 ? (lead < 0x80 ? 1 : 2) : lead < 0xF0 ? 3 : 4;
    for (const auto& [first, last] : translated.differs.ranges())
      for (char32_t code = first; code <= last;
           code = (code | 0x3F) + 1) {  // up to there the first byte is the same
        std::string bytes;
        append_utf8(bytes, code);
        state_->lengths[static_cast<unsigned char>(bytes.front())] = 0;
      }
    state_->always_exact = !(translated.differs & CodePointSet(0, 0x7F)).empty();
  }
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
  if (!state_->context || !state_->stack) throw std::bad_alloc();
  pcre2_set_match_limit(state_->context.get(), kMostSteps);
  pcre2_set_heap_limit(state_->context.get(), kMostHeapKiB);
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::looks_back() const { return state_->looks_back; }

Regex::Subject Regex::subject(std::string_view text) const {
  if (!state_->exact.code || state_->always_exact) return {text, state_->always_exact};
  constexpr uint64_t kHighBits = 0x8080808080808080;
  const std::array<uint8_t, 256>& lengths = state_->lengths;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      uint64_t eight = 0;
      if (text.size() - at >= sizeof eight) std::memcpy(&eight, text.data() + at, sizeof eight);
      at += eight != 0 && (eight & kHighBits) == 0 ? sizeof eight : 1;
      continue;
    }
    if (const size_t length = lengths[static_cast<unsigned char>(text[at])]; length > 0) {
      at += length;
      continue;
    }
    const CodePoint character = decode_utf8(text, at);
    if (state_->unusual.contains(character.value)) return {text, true};
    at += character.length;
  }
  return {text, false};
}

Regex::Found Regex::find(const Subject& subject, size_t from, bool final) {
  const std::string_view text = subject.text;
  const State::Program& program = state_->program_for(subject.unusual);
  const uint32_t options = final ? 0 : PCRE2_PARTIAL_HARD;
  using Clock = std::chrono::steady_clock;
  for (bool first = true;; first = false) {
    // The search stops at a character's beginning.
    size_t last = std::min(text.size(), from + kStretch);
    while (last < text.size() && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) ++last;
    const Clock::time_point begin = first ? Clock::time_point() : Clock::now();
    const int code = state_->match(program, text, from, options, last);
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
    const size_t* ends = pcre2_get_ovector_pointer(program.data.get());
    if (code == PCRE2_ERROR_PARTIAL) return {Result::kPartial, ends[0], ends[1]};
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_DEPTHLIMIT)
      state_->too_slow();
    if (code == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    require(code >= 0, "pcre2: {}", pcre2_message(code));
    return {Result::kFound, ends[0], ends[1]};
  }
}

}  // namespace snug
