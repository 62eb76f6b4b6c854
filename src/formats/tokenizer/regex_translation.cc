#include "formats/tokenizer/regex_translation.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/unicode_classes.h"

namespace snug {
namespace {

constexpr size_t kLongestPattern = 16 * 1024;
constexpr size_t kDeepestClass = 20;  // of classes inside classes
constexpr std::string_view kAnyCharacter = "(?s:.)", kNoCharacter = "(?!)";

// One character, inside a class or outside.
std::string quoted(char32_t code) {
  if (code < 0x80 && std::isalnum(static_cast<int>(code)) != 0)
    return std::string(1, static_cast<char>(code));
  return fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(code));
}

// To stand inside a class. PCRE2 takes no ends of ranges that UTF-8 cannot say.
std::string items_of(const CodePointSet& set) {
  std::string items;
  for (const auto& [first, last] : (set - CodePointSet(0xD800, 0xDFFF)).ranges()) {
    items += quoted(first);
    if (last > first) items += (last > first + 1 ? "-" : "") + quoted(last);
  }
  return items;
}

std::string class_of(std::string_view items, bool negated) {
  if (items.empty()) return std::string(negated ? kAnyCharacter : kNoCharacter);
  return fmt::format("[{}{}]", negated ? "^" : "", items);
}

bool is_one_property(std::string_view items) {
  return items.starts_with("\\p{") && items.find('}') == items.size() - 1;
}

// What matches one character.
struct Part {
  enum class Shape { kClass, kNegatedClass, kOther };

  CodePointSet members = {};  // to Oniguruma
  CodePointSet engine = {};   // of text(): to PCRE2
  Shape shape = Shape::kClass;
  std::string items = {};  // of the class
  std::string other = {};  // kOther: an expression for one character

  static Part of_characters(const CodePointSet& set) {
    return {.members = set, .engine = set, .items = items_of(set)};
  }

  std::string text() const {
    if (shape == Shape::kOther) return other;
    if (is_one_property(items)) return (shape == Shape::kNegatedClass ? "\\P" : "\\p") + items.substr(2);
    return class_of(items, shape == Shape::kNegatedClass);
  }

  // As it may stand inside a class; empty where it cannot.
  std::string inside() const {
    if (shape == Shape::kClass) return items;
    return shape == Shape::kNegatedClass && is_one_property(items) ? text() : "";
  }

  Part negated() const {
    Part made{.members = ~members, .engine = ~engine};
    if (shape == Shape::kOther) {
      made.shape = Shape::kOther;
      made.other = fmt::format("(?:(?!{}){})", other, kAnyCharacter);
    } else {
      made.shape = shape == Shape::kClass ? Shape::kNegatedClass : Shape::kClass;
      made.items = items;
    }
    return made;
  }

  // text() mended so that PCRE2 matches `members`.
  std::string exact() const {
    const std::string missing = items_of(members - engine), surplus = items_of(engine - members);
    if (missing.empty() && surplus.empty()) return text();
    if (shape == Shape::kClass && surplus.empty()) return class_of(items + missing, false);
    if (shape == Shape::kNegatedClass && missing.empty()) return class_of(items + surplus, true);
    std::string made = missing.empty() ? text() : fmt::format("(?:{}|[{}])", text(), missing);
    if (!surplus.empty()) made = fmt::format("(?:(?![{}]){})", surplus, made);
    return made;
  }
};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where, EngineClass engine)
      : text_(pattern), where_(where), engine_(engine) {}

  TranslatedRegex run() {
    if (text_.size() > kLongestPattern)
      throw_user(ExitCode::kBadFile, "{}: a regular expression of {} bytes; expected at most {}", where_,
                 text_.size(), kLongestPattern);
    if (!is_valid_utf8(text_)) refuse("bytes that are not UTF-8");
    groups_.push_back({});
    while (at_ < text_.size()) item();
    end_letters();
    close_options();
    return std::move(result_);
  }

 private:
  // Lengths of the two expressions.
  struct Place {
    size_t pattern = 0, exact = 0;
  };
  struct Group {
    Place begin = {};
    bool ignores_case = false;  // outside of it
    size_t options = 0;         // groups inside that an (?i) without : opened
  };

  [[noreturn]] void refuse(std::string_view what) const {
    throw_user(ExitCode::kBadFile,
               "{}: the regular expression {} has {} at byte {}, which Snug does not read", where_,
               text_.size() > 200 ? std::string(text_.substr(0, 200)) + "…" : std::string(text_), what,
               at_ + 1);
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Place here() const { return {result_.pattern.size(), result_.exact.size()}; }
  void put(std::string_view both) {
    result_.pattern += both;
    result_.exact += both;
  }
  void put(const Part& part) {
    result_.pattern += part.text();
    result_.exact += part.exact();
    result_.differs |= part.members ^ part.engine;
  }
  void insert(const Place& place, std::string_view both) {
    result_.pattern.insert(place.pattern, both);
    result_.exact.insert(place.exact, both);
  }

  void item() {
    const char c = peek();
    const bool quantifies = c == '*' || c == '+' || c == '?' || c == '{';
    // The last letter alone is repeated.
    if (quantifies && letters_.size() > 1) {
      const char32_t last = letters_.back();
      letters_.pop_back();
      end_letters();
      letters_.push_back(last);
    }
    if (c == '\\' && is_escaped_letter()) {
      letter(escaped_letter(false));
      return;
    }
    if (std::string_view("()[\\*+?{|.^$").find(c) == std::string_view::npos) {
      const CodePoint character = decode_utf8(text_, at_);
      at_ += character.length;
      letter(character.value);
      return;
    }
    end_letters();
    if (c == '(') {
      open_group();
    } else if (c == ')') {
      if (groups_.size() == 1) refuse("a ) without its (");
      close_options();
      put(")");
      ++at_;
      atom_ = groups_.back().begin;
      ignores_case_ = groups_.back().ignores_case;
      groups_.pop_back();
    } else if (c == '[') {
      atom_ = here();
      const bool negated = peek(1) == '^';
      const Part part = char_class(0);
      const std::string several = ignores_case_ && !negated ? several_of(part.members) : "";
      if (!several.empty()) put("(?:");
      put(part);
      put(several);
    } else if (c == '\\') {
      atom_ = here();
      escape();
    } else if (c == '{') {
      interval();
    } else if (quantifies) {
      put(text_.substr(at_++, 1));
      if (peek() == '+' || peek() == '?') put(text_.substr(at_++, 1));
    } else {
      if (c == '^') result_.looks_back = true;
      atom_ = here();
      put(text_.substr(at_++, 1));
    }
  }

  void letter(char32_t code) {
    if (ignores_case_) {
      letters_.push_back(code);
      return;
    }
    atom_ = here();
    put(quoted(code));
  }

  // Letters of which upper and lower case are the same: written out, since PCRE2 knows others, and no ß for ss.
  void end_letters() {
    if (letters_.empty()) return;
    std::u32string folded;
    for (const char32_t code : letters_) folded += folded_letters(code);
    const bool several = folded.size() > 1;
    letters_.clear();
    atom_ = here();
    std::string made;
    for (size_t i = 0; i < folded.size();) {
      const SeveralLetters one = find_several_letters(std::u32string_view(folded).substr(i));
      const size_t length = std::max<size_t>(1, one.length);
      std::string each;
      for (size_t k = i; k < i + length; ++k) each += one_letter(folded[k]);
      made += one.length == 0 ? each : fmt::format("(?:{}|{})", each, class_of(items_of(one.codes), false));
      i += length;
    }
    // A repetition may follow what was one letter.
    const bool groups =
        several && at_ < text_.size() && std::string_view("*+?{").find(peek()) != std::string_view::npos;
    put(groups ? "(?:" + made + ")" : made);
  }
  static std::string one_letter(char32_t code) {
    CodePointSet set;
    for (const char32_t same : same_letters(code)) set |= CodePointSet(same, same);
    return set == CodePointSet(code, code) ? quoted(code) : class_of(items_of(set), false);
  }

  void open_group() {
    groups_.push_back({here(), ignores_case_, 0});
    ++at_;
    if (peek() != '?') {
      put("(");
      return;
    }
    ++at_;
    const char kind = peek();
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>') {
      put(fmt::format("(?{}", kind));
      ++at_;
    } else if (kind == '<' && (peek(1) == '=' || peek(1) == '!')) {
      result_.looks_back = true;
      put(fmt::format("(?{}", text_.substr(at_, 2)));
      at_ += 2;
    } else if (kind == '#') {
      refuse("a comment");
    } else {
      options();
    }
  }

  // (?im-im) or (?im-im:, with at_ at the first letter. Without a : they hold up to the group's end, alternatives included: a(?i)b|c is
  // a(?i:b|c).
  void options() {
    std::string lines;  // Oniguruma's m is "the dot takes newlines too"
    bool on = true;
    for (; at_ < text_.size() && peek() != ':' && peek() != ')'; ++at_) {
      const char option = peek();
      if (option == '-')
        on = false;
      else if (option == 'i')
        ignores_case_ = on;
      else if (option == 'm')
        lines = on ? "s" : "-s";
      else
        refuse(fmt::format("(?{}", option));
    }
    if (peek() == '\0') refuse("an open group");
    put(fmt::format("(?{}:", lines));
    if (text_[at_++] == ':') return;
    groups_.pop_back();
    ++groups_.back().options;
  }
  void close_options() { put(std::string(std::exchange(groups_.back().options, 0), ')')); }

  void interval() {
    size_t end = at_ + 1;
    while (end < text_.size() && ((text_[end] >= '0' && text_[end] <= '9') || text_[end] == ',')) ++end;
    if (end >= text_.size() || text_[end] != '}' || end == at_ + 1) {  // a literal brace
      atom_ = here();
      put("\\{");
      ++at_;
      return;
    }
    const std::string_view written = text_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    if (written == "{,}") refuse("{,}");
    put(written.starts_with("{,") ? fmt::format("{{0{}", written.substr(1)) : std::string(written));
    if (peek() == '?') {
      put("?");
      ++at_;
    } else if (peek() == '+') {  // here a repetition of the repetition, not a possessive mark
      ++at_;
      insert(atom_, "(?:");
      put(")+");
    }
  }

  Part part_of(const OnigurumaClass* known, bool negated) {
    const CodePointSet& engine = engine_(known->pcre2, known->members);
    // What PCRE2 does not know at all has no place in an expression of its.
    const Part made{.members = known->members, .engine = engine, .items = engine.empty() ? "" : known->pcre2};
    return negated ? made.negated() : made;
  }

  // \p{…} or \P{…}, with at_ at the p.
  Part property() {
    bool negated = peek() == 'P';
    ++at_;
    if (peek() != '{') refuse("\\p without {");
    const size_t close = text_.find('}', at_);
    if (close == std::string_view::npos) refuse("\\p{ without }");
    std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool is_word = name.size() == 4 && std::equal(name.begin(), name.end(), "word", [](char a, char b) {
                           return std::tolower(static_cast<unsigned char>(a)) == b;
                         });
    const OnigurumaClass* known = is_word && !in_class_ ? &bare_word_class() : oniguruma_class(name);
    if (known == nullptr) refuse(fmt::format("\\p{{{}}}", name));
    at_ = close + 1;
    return part_of(known, negated);
  }

  // What a \ begins that is a class of characters, with at_ at the letter; false where it is none.
  bool class_escape(Part& part) {
    const char c = peek();
    const bool negated = c == 'S' || c == 'D' || c == 'W' || c == 'H';
    switch (c) {
      case 'p':
      case 'P':
        part = property();
        return true;
      case 's':
      case 'S':
        part = part_of(oniguruma_class("White_Space"), negated);
        break;
      case 'd':
      case 'D':
        part = part_of(oniguruma_class("Nd"), negated);
        break;
      case 'w':
      case 'W':
        part = part_of(in_class_ ? oniguruma_class("word") : &bare_word_class(), negated);
        break;
      case 'h':
      case 'H':
        part = part_of(oniguruma_class("XDigit"), negated);
        break;
      default:
        return false;
    }
    ++at_;
    return true;
  }

  // Of no letter: a class or a place.
  void escape() {
    ++at_;
    if (at_ >= text_.size()) refuse("a \\ at the end");
    if (Part part; class_escape(part)) {
      put(part);
      return;
    }
    const char c = peek();
    if (c == 'b' || c == 'B') {
      result_.looks_back = true;
      const Part word = part_of(&bare_word_class(), false);
      const auto place = [&](const std::string& is_word) {
        return c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", is_word)
                        : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", is_word);
      };
      result_.pattern += place(word.text());
      result_.exact += place(word.exact());
      result_.differs |= word.members ^ word.engine;
    } else if (c == 'A' || c == 'z' || c == 'Z') {
      result_.looks_back = true;
      put(fmt::format("\\{}", c));
    } else if (c == 'N') {
      put("[^\\x{A}]");
    } else if (c == 'O') {
      put(kAnyCharacter);
    } else {
      refuse(fmt::format("\\{}", static_cast<unsigned char>(c) >= 0x80 ? '?' : c));
    }
    ++at_;
  }

  // Whether the \ at at_ stands for one character.
  bool is_escaped_letter() const {
    const char c = peek(1);
    return at_ + 1 < text_.size() && static_cast<unsigned char>(c) < 0x80 &&
           (std::isalnum(static_cast<unsigned char>(c)) == 0 ||
            std::string_view("tnrfeavxu").find(c) != std::string_view::npos);
  }

  char32_t escaped_letter(bool in_class) {
    ++at_;
    const char c = peek();
    if (c == 'x' || c == 'u') return hexadecimal();
    ++at_;
    static constexpr std::string_view kNames = "tnrfeavb", kCodes = "\x09\x0A\x0D\x0C\x1B\x07\x0B\x08";
    const size_t known = kNames.find(c);
    if (known == std::string_view::npos || (c == 'b' && !in_class)) return static_cast<unsigned char>(c);
    return static_cast<unsigned char>(kCodes[known]);
  }

  // \xHH, \x{H…} or \uHHHH, with at_ at the letter.
  char32_t hexadecimal() {
    const bool unicode = peek() == 'u';
    ++at_;
    const bool braces = !unicode && peek() == '{';
    if (braces) ++at_;
    std::string digits;
    const size_t most = braces ? 8 : unicode ? 4 : 2;
    while (digits.size() < most && std::isxdigit(static_cast<unsigned char>(peek())) != 0)
      digits += text_[at_++];
    if (digits.empty() || (unicode && digits.size() != 4)) refuse("a hexadecimal number without digits");
    const unsigned long code = std::stoul(digits, nullptr, 16);
    if (braces) {
      if (peek() != '}') refuse("\\x{ without }");
      ++at_;
    } else if (!unicode && code >= 0x80) {
      refuse("a single byte \\x80 or above");
    }
    if (code >= kCodePointsEnd || (code >= 0xD800 && code <= 0xDFFF)) refuse("a number that is no character");
    return static_cast<char32_t>(code);
  }

  // [:name:], with at_ at the [; false where it is something else.
  bool posix(Part& part) {
    const size_t end = text_.find(":]", at_ + 2);
    if (peek(1) != ':' || end == std::string_view::npos) return false;
    std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (name.empty() || std::any_of(name.begin(), name.end(), [](char c) { return c < 'a' || c > 'z'; }))
      return false;
    const OnigurumaClass* known = posix_class(name);
    if (known == nullptr) refuse(fmt::format("[:{}:]", name));
    at_ = end + 2;
    part = part_of(known, negated);
    return true;
  }

  // […], with at_ at the [.
  Part char_class(size_t depth) {
    if (depth > kDeepestClass) refuse("classes inside classes, and so on");
    in_class_ = true;
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<Part> sides;  // of &&
    std::vector<Part> parts;
    CodePointSet single;  // characters and ranges
    const auto end_side = [&] {
      sides.push_back(united(parts, single));
      parts.clear();
      single = {};
    };
    for (bool first = true;; first = false) {
      if (at_ >= text_.size()) refuse("a class without ]");
      Part part;
      if (peek() == ']' && !first) break;
      if (peek() == '[') {
        if (!posix(part)) part = char_class(depth + 1);
      } else if (peek() == '&' && peek(1) == '&') {
        at_ += 2;
        end_side();
        continue;
      } else if (peek() == '\\' && !is_escaped_letter() && peek(1) != 'b') {
        ++at_;
        if (at_ >= text_.size()) refuse("a class without ]");
        if (!class_escape(part)) {
          const unsigned char c = static_cast<unsigned char>(peek());
          refuse(fmt::format("\\{} in a class", c >= 0x80 ? '?' : static_cast<char>(c)));
        }
      } else {
        single |= range();
        continue;
      }
      parts.push_back(std::move(part));
      if (peek() == '-' && peek(1) != ']') refuse("a range that begins with a class");
    }
    ++at_;
    end_side();
    in_class_ = depth > 0;
    Part made = intersected(std::move(sides));
    if (ignores_case_) add_same_letters(made);
    return negated ? made.negated() : made;
  }

  char32_t class_letter() {
    if (peek() == '\\') return escaped_letter(true);
    const CodePoint character = decode_utf8(text_, at_);
    at_ += character.length;
    return character.value;
  }

  // A character or a range of them.
  CodePointSet range() {
    const char32_t first = class_letter();
    if (peek() != '-' || peek(1) == ']' || at_ + 1 >= text_.size()) return CodePointSet(first, first);
    ++at_;
    if (peek() == '[' || (peek() == '\\' && !is_escaped_letter() && peek(1) != 'b'))
      refuse("a range that ends with a class");
    const char32_t last = class_letter();
    if (last < first) refuse("a range that ends before it begins");
    // A - behind a range stands for itself.
    return CodePointSet(first, last) | minus_behind();
  }
  CodePointSet minus_behind() {
    if (peek() != '-') return {};
    ++at_;
    return CodePointSet('-', '-');
  }

  static Part united(const std::vector<Part>& parts, const CodePointSet& single) {
    Part made = Part::of_characters(single);
    std::vector<std::string> others;
    std::string items;
    for (const Part& part : parts) {
      made.members |= part.members;
      made.engine |= part.engine;
      const std::string inside = part.inside();
      items += inside;
      if (inside.empty() && part.text() != kNoCharacter) others.push_back(part.text());
    }
    made.items = items + made.items;
    if (parts.size() == 1 && single.empty()) return parts.front();
    if (others.empty()) return made;
    made.other = "(?:" + class_of(made.items, false);
    for (const std::string& other : others) made.other += "|" + other;
    made.other += ")";
    made.shape = Part::Shape::kOther;
    return made;
  }

  static Part intersected(std::vector<Part> sides) {
    if (sides.size() == 1) return std::move(sides.front());
    Part made{.members = sides.back().members, .engine = sides.back().engine, .shape = Part::Shape::kOther};
    made.other = "(?:";
    for (size_t i = 0; i + 1 < sides.size(); ++i) {
      made.members = made.members & sides[i].members;
      made.engine = made.engine & sides[i].engine;
      made.other += "(?=" + sides[i].text() + ")";
    }
    made.other += sides.back().text() + ")";
    return made;
  }

  // What (?i:…) makes of a class.
  static void add_same_letters(Part& part) {
    const CodePointSet more = with_same_letters(part.members) - part.members;
    if (more.empty()) return;
    if (part.shape == Part::Shape::kClass) {
      part.items += items_of(more);
    } else {
      part.other = fmt::format("(?:{}|[{}])", part.text(), items_of(more));
      part.shape = Part::Shape::kOther;
    }
    part.members |= more;
    part.engine |= more;
  }

  // "|ss)" for a class that has ß and no s: what stands behind it then.
  static std::string several_of(const CodePointSet& members) {
    std::string made;
    for (const auto& [first, last] : (members & several_letters()).ranges())
      for (char32_t code = first; code <= last; ++code) {
        const std::u32string folded = folded_letters(code);
        if (members.contains(folded.front())) continue;
        made += '|';
        for (const char32_t letter : folded) made += one_letter(letter);
      }
    return made.empty() ? made : made + ")";
  }

  std::string_view text_, where_;
  EngineClass engine_;
  size_t at_ = 0;
  bool ignores_case_ = false, in_class_ = false;
  std::vector<char32_t> letters_;  // under (?i), not put yet
  Place atom_;                     // where the last atom begins
  std::vector<Group> groups_;      // open ones; the first is the whole
  TranslatedRegex result_;
};

}  // namespace

TranslatedRegex translate_regex(std::string_view pattern, std::string_view where, EngineClass engine) {
  return Translator(pattern, where, engine).run();
}

}  // namespace snug
