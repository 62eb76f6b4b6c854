#include "formats/tokenizer/tokens_beside.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.h"
#include "base/json.h"

namespace snug {
namespace {

class TokenAdder {
 public:
  TokenAdder(TokenizerSpec& spec, const SpecialTokens& tokens) : spec_(spec) {
    for (const NumberedToken& token : tokens.numbered) ids_.emplace(token.token.content, kNone);
    for (const auto* list : {&tokens.named, &tokens.extra})
      for (const NamedToken& token : *list) ids_.emplace(token.token.content, kNone);
    for (size_t i = 0; i < spec.tokens.size(); ++i)
      if (const auto wanted = ids_.find(std::string(spec.tokens[i])); wanted != ids_.end())
        wanted->second = spec.ids[i];
    next_ = static_cast<int32_t>(spec.ids.size());
    for (size_t i = 0; i < spec.added_tokens.size(); ++i) {
      const AddedToken& token = spec.added_tokens[i];
      ids_[token.content] = token.id;
      places_.emplace(token.content, i);
      next_ = std::max(next_, token.id + 1);
    }
  }

  int32_t next_id() const { return next_; }
  bool is_added(const std::string& content) const { return places_.contains(content); }
  // The id that a token of this text has or would get.
  int32_t id_of(const std::string& content) const {
    const auto known = ids_.find(content);
    return known == ids_.end() || known->second == kNone ? next_ : known->second;
  }
  bool is_known(const std::string& content) const {
    const auto known = ids_.find(content);
    return known != ids_.end() && known->second != kNone;
  }

  // `from`: file and field. As in the library, an empty token is none, and one that was special stays that for who leaves out special tokens.
  void add(const TokenText& token, bool special, const std::string& from) {
    if (token.content.empty()) return;
    AddedToken added{.content = token.content,
                     .id = id_of(token.content),
                     .special = special,
                     .normalized = token.normalized.value_or(!special),
                     .lstrip = token.lstrip,
                     .rstrip = token.rstrip,
                     .single_word = token.single_word,
                     .from = from};
    if (const auto place = places_.find(token.content); place != places_.end()) {
      AddedToken& there = spec_.added_tokens[place->second];
      added.special = added.special || there.special;
      added.from = std::move(there.from);
      there = std::move(added);
      return;
    }
    if (added.id >= kMostIds)
      throw_user(ExitCode::kBadFile, "{}: {} would get the id {}; expected ids below {}", from,
                 quote_json(Json(token.content)), added.id, kMostIds);
    ids_[token.content] = added.id;
    next_ = std::max(next_, added.id + 1);
    places_.emplace(token.content, spec_.added_tokens.size());
    spec_.added_tokens.push_back(std::move(added));
  }

 private:
  static constexpr int32_t kNone = -1;

  TokenizerSpec& spec_;
  std::unordered_map<std::string, int32_t> ids_;    // of what is wanted or added
  std::unordered_map<std::string, size_t> places_;  // in spec_.added_tokens
  int32_t next_ = 0;
};

// Tells which tokens of `spec` are new. A name that is mistyped makes one, too.
void notice_new_tokens(TokenizerSpec& spec, int32_t first_new_id) {
  constexpr size_t kMostShown = 4;
  std::vector<std::string> shown;
  size_t count = 0;
  const AddedToken* first = nullptr;
  for (const AddedToken& token : spec.added_tokens) {
    if (token.from.empty() || token.id < first_new_id) continue;
    if (count == 0) first = &token;
    if (++count <= kMostShown)
      shown.push_back(fmt::format("{} with the id {}", quote_json(Json(token.content)), token.id));
  }
  if (count == 0) return;
  const std::string more = count > kMostShown ? fmt::format(" and {} more", count - kMostShown) : "";
  spec.notices.push_back(
      fmt::format("new beside {}, by {}: {}{}", spec.file, first->from, fmt::join(shown, ", "), more));
}

}  // namespace

void add_tokens_beside(TokenizerSpec& spec, const SpecialTokens& tokens) {
  if (tokens.numbered.empty() && tokens.named.empty() && tokens.extra.empty()) return;
  TokenAdder adder(spec, tokens);
  const int32_t first_new_id = adder.next_id();
  std::unordered_set<std::string_view> named;
  for (const NamedToken& token : tokens.named) named.insert(token.token.content);

  // With a decoder, tokens of tokenizer.json that it does not list stay as they are.
  if (!tokens.has_decoder)
    for (AddedToken& token : spec.added_tokens)
      token.special = token.special || named.contains(token.content);
  for (const NumberedToken& numbered : tokens.numbered) {
    const std::string& content = numbered.token.content;
    if (content.empty()) continue;
    if (const int32_t id = adder.id_of(content); numbered.id != id)
      throw_user(ExitCode::kBadFile, "{} gives {} the id {}; expected {}: {}", tokens.numbered_field,
                 quote_json(Json(content)), numbered.id, id,
                 adder.is_known(content)
                     ? fmt::format("it has that in {}", spec.file)
                     : fmt::format("new tokens get the ids behind those of {}", spec.file));
    if (!tokens.has_decoder && adder.is_added(content))
      continue;  // tokenizer.json is stronger than added_tokens.json
    adder.add(numbered.token, numbered.token.special || named.contains(content), tokens.numbered_field);
  }
  std::vector<const NamedToken*> news;
  for (const auto* list : {&tokens.named, &tokens.extra})
    for (const NamedToken& token : *list)
      if (!adder.is_added(token.token.content)) news.push_back(&token);
  // Several that spell the same: the flags of the last.
  for (const NamedToken* token : news)
    adder.add(token->token, token->token.special || named.contains(token->token.content),
              fmt::format("{}: {}", token->file, token->name));
  notice_new_tokens(spec, first_new_id);
}

}  // namespace snug
