#include "formats/tokenizer/unicode_classes.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/errors.h"
#include "formats/tokenizer/unicode_tables.h"

namespace snug {
namespace {

using unicode_tables::ClassRow;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// As Oniguruma compares names of properties.
std::string key_of(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (c != '_' && c != ' ' && c != '-') key += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return key;
}

// General categories by PCRE2's names, "L" and "Lu" alike. What no row has is unassigned, or a half of a pair that UTF-8 cannot say.
const std::map<std::string_view, CodePointSet>& categories() {
  static const std::map<std::string_view, CodePointSet> kSets = [] {
    std::map<std::string_view, CodePointSet> sets;
    CodePointSet known;
    sets["Cs"] = known = CodePointSet(0xD800, 0xDFFF);
    for (const ClassRow& row : unicode_tables::kCategories)
      known |= sets[row.names] = CodePointSet::from_runs(row.runs);
    sets["Cn"] = ~known;
    std::map<std::string_view, CodePointSet> groups;
    for (const auto& [name, set] : sets) groups[name.substr(0, 1)] |= set;
    sets.merge(groups);
    return sets;
  }();
  return kSets;
}

CodePointSet of_categories(std::string_view names) {
  CodePointSet set;
  for (const std::string_view name : words_of(names)) set |= categories().at(name);
  return set;
}

CodePointSet set_of(const ClassRow& row) {
  return of_categories(row.categories) ^ CodePointSet::from_runs(row.runs);
}

const CodePointSet& property(std::string_view name) {
  static const std::map<std::string_view, CodePointSet> kSets = [] {
    std::map<std::string_view, CodePointSet> sets;
    for (const ClassRow& row : unicode_tables::kProperties) sets.emplace(row.names, set_of(row));
    return sets;
  }();
  return kSets.at(name);
}

// Names beside those of categories, properties and scripts: what else they stand for.
struct OtherName {
  std::string_view key, categories;
};
constexpr std::array<OtherName, 32> kOtherNames = {{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"lc", "Lu Ll Lt"},
    {"casedletter", "Lu Ll Lt"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"digit", "Nd"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punct", "P"},
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
    {"cntrl", "Cc"},
    {"format", "Cf"},
}};

OnigurumaClass category_class(std::string_view names) {
  OnigurumaClass made{of_categories(names), ""};
  for (const std::string_view name : words_of(names)) made.pcre2 += "\\p{" + std::string(name) + "}";
  return made;
}

using ClassMap = std::map<std::string, OnigurumaClass, std::less<>>;

// What Oniguruma makes of several classes.
void add_made_classes(ClassMap& classes) {
  const CodePointSet& alphabetic = property("Alphabetic");
  const CodePointSet& white_space = property("White_Space");
  const CodePointSet digits = of_categories("Nd");
  const CodePointSet graphic = ~(white_space | of_categories("Cc Cn Cs"));
  const std::string printed = "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}";
  classes["any"] = {CodePointSet(0, kCodePointsEnd - 1), "\\x{0}-\\x{10FFFF}"};
  classes["assigned"] = {~of_categories("Cn"), "\\P{Cn}"};
  classes["alpha"] = classes["alphabetic"];
  classes["lower"] = classes["lowercase"];
  classes["upper"] = classes["uppercase"];
  classes["space"] = classes["whitespace"];
  classes["alnum"] = {alphabetic | digits, "\\p{Alphabetic}\\p{Nd}"};
  // Circled letters are the only ones that are alphabetic and none of the categories.
  classes["word"] = {alphabetic | of_categories("M Nd Pc"),
                     "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                     "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"};
  classes["graph"] = {graphic, printed};
  classes["print"] = {graphic | of_categories("Zs"), printed + "\\p{Zs}"};
  classes["blank"] = {of_categories("Zs") | CodePointSet('\t', '\t'), "\\p{Zs}\\x{9}"};
  classes["xdigit"] = {CodePointSet('0', '9') | CodePointSet('A', 'F') | CodePointSet('a', 'f'), "0-9A-Fa-f"};
  classes["ascii"] = {CodePointSet(0, 0x7F), "\\x{0}-\\x{7F}"};
}

const ClassMap& classes_by_key() {
  static const ClassMap kClasses = [] {
    ClassMap classes;
    for (const auto& [name, set] : categories())
      classes[key_of(name)] = {set, "\\p{" + std::string(name) + "}"};
    for (const OtherName& other : kOtherNames)
      classes[std::string(other.key)] = category_class(other.categories);
    for (const ClassRow& row : unicode_tables::kProperties)
      classes[key_of(row.names)] = {property(row.names), "\\p{" + std::string(row.names) + "}"};
    for (const ClassRow& row : unicode_tables::kScripts) {
      const std::vector<std::string_view> names = words_of(row.names);
      const OnigurumaClass made{set_of(row), "\\p{sc:" + std::string(names.front()) + "}"};
      for (const std::string_view name : names) classes[key_of(name)] = made;
    }
    add_made_classes(classes);
    return classes;
  }();
  return kClasses;
}

struct Letters {
  std::unordered_map<char32_t, std::vector<char32_t>> same;
  std::unordered_map<char32_t, std::u32string> several;  // folded
  CodePointSet with_several;

  char32_t first_of(char32_t code) const {
    const auto found = same.find(code);
    return found == same.end() ? code : found->second.front();
  }
};

const Letters& letters() {
  static const Letters kLetters = [] {
    Letters letters;
    std::map<char32_t, std::vector<char32_t>> groups;
    for (const unicode_tables::MappingRow& row : unicode_tables::kSameLetters)
      for (uint32_t i = 0; i < row.count; ++i) {
        const char32_t first = row.first + i * row.step;
        std::vector<char32_t>& group = groups[first];
        if (group.empty()) group.push_back(first);
        group.push_back(first + static_cast<char32_t>(row.difference));
      }
    for (auto& [first, group] : groups) {
      std::sort(group.begin(), group.end());
      for (const char32_t code : group) letters.same[code] = group;
    }
    for (const unicode_tables::SeveralRow& row : unicode_tables::kSeveralLetters) {
      std::u32string& folded = letters.several[row.code];
      for (const char32_t letter : row.letters) folded += letters.first_of(letter);
      letters.with_several |= CodePointSet(row.code, row.code);
    }
    return letters;
  }();
  return kLetters;
}

}  // namespace

const OnigurumaClass* oniguruma_class(std::string_view name) {
  const auto found = classes_by_key().find(key_of(name));
  return found == classes_by_key().end() ? nullptr : &found->second;
}

const OnigurumaClass* posix_class(std::string_view name) {
  static const OnigurumaClass kPunctuation = category_class("P S");
  if (name == "punct") return &kPunctuation;
  for (const char* known : {"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
                            "space", "upper", "word", "xdigit"})
    if (name == known) return oniguruma_class(name);
  return nullptr;
}

const OnigurumaClass& bare_word_class() {
  static const OnigurumaClass kWord = [] {
    OnigurumaClass word = *oniguruma_class("word");
    for (const auto& [first, last] :
         {CodePointRange{0xB2, 0xB3}, CodePointRange{0xB9, 0xB9}, CodePointRange{0xBC, 0xBE}})
      word.members |= CodePointSet(first, last);
    word.pcre2 += "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
    return word;
  }();
  return kWord;
}

std::vector<char32_t> same_letters(char32_t code) {
  const auto found = letters().same.find(code);
  return found == letters().same.end() ? std::vector<char32_t>{code} : found->second;
}

CodePointSet with_same_letters(const CodePointSet& set) {
  CodePointSet made = set;
  for (const auto& [code, group] : letters().same) {
    if (code != group.front() ||
        std::none_of(group.begin(), group.end(), [&](char32_t letter) { return set.contains(letter); }))
      continue;
    for (const char32_t letter : group)
      if (!set.contains(letter)) made |= CodePointSet(letter, letter);
  }
  return made;
}

std::u32string folded_letters(char32_t code) {
  const auto found = letters().several.find(code);
  return found == letters().several.end() ? std::u32string(1, letters().first_of(code)) : found->second;
}

SeveralLetters find_several_letters(std::u32string_view folded) {
  SeveralLetters longest;
  for (const auto& [code, several] : letters().several) {
    if (several.size() < longest.length || !folded.starts_with(several)) continue;
    if (several.size() > longest.length) longest = {several.size(), {}};
    longest.codes |= CodePointSet(code, code);
  }
  return longest;
}

const CodePointSet& several_letters() { return letters().with_several; }

const CodePointSet& rust_class(std::string_view name) {
  static const std::map<std::string_view, CodePointSet> kSets = [] {
    std::map<std::string_view, CodePointSet> sets;
    for (const ClassRow& row : unicode_tables::kRustClasses) sets.emplace(row.names, set_of(row));
    return sets;
  }();
  const auto found = kSets.find(name);
  require(found != kSets.end(), "a class of Rust's named {}", name);
  return found->second;
}

char32_t rust_lowercase(char32_t code) {
  static const std::vector<std::pair<char32_t, char32_t>> kPairs = [] {
    std::vector<std::pair<char32_t, char32_t>> pairs;
    for (const unicode_tables::MappingRow& row : unicode_tables::kLowercase)
      for (uint32_t i = 0; i < row.count; ++i) {
        const char32_t from = row.first + i * row.step;
        pairs.emplace_back(from, from + static_cast<char32_t>(row.difference));
      }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }();
  const auto found = std::lower_bound(kPairs.begin(), kPairs.end(), std::pair(code, char32_t{0}));
  return found != kPairs.end() && found->first == code ? found->second : code;
}

}  // namespace snug
