#include "train/text_tokenizer.h"

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/byte_tokenizer.h"
#include "formats/chat_template/chat_template.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "formats/tokenizer_config.h"

namespace snug {

std::unique_ptr<const Tokenizer> text_tokenizer(const RunOptions& options, const Model& model,
                                                const std::function<void(std::string_view)>& note) {
  const std::string& directory = options.model;
  if (options.from_scratch && !has_tokenizer(directory)) return nullptr;
  if (file_exists(join_path(directory, "tokenizer.json")) && !difference_from_byte_tokenizer(directory)) return nullptr;
  std::unique_ptr<const Tokenizer> tokenizer = Tokenizer::load(directory);
  // The first that has no row; where the tokenizer's own ones have none either, the two do not belong together.
  for (const AddedToken& token : tokenizer->spec().added_tokens)
    if (!token.from.empty() && token.id == model.vocabulary)
      throw_user(ExitCode::kBadFile,
                 "{} names {}, a new token that gets the id {}; expected ids below the model's vocab_size "
                 "({}): take it out of that file, or give the model a row for it (in transformers: "
                 "model.resize_token_embeddings(len(tokenizer)), then save both)",
                 token.from, quote_json(Json(token.content)), token.id, model.vocabulary);
  if (const int32_t largest = tokenizer->largest_id(); largest >= model.vocabulary)
    throw_user(ExitCode::kBadFile,
               "{}: {} has id {}; expected ids below the model's vocab_size ({}): tokenizer and model do not "
               "belong together",
               tokenizer->spec().file,
               quote_json(Json(std::string(tokenizer->id_to_token(largest).value_or("")))), largest,
               model.vocabulary);
  if (note)
    for (const std::string& notice : tokenizer->spec().notices) note(notice);
  return tokenizer;
}

std::optional<int32_t> end_of_text_id(const ModelDirectory& directory, const Tokenizer& tokenizer) {
  const TokenizerConfig config = read_tokenizer_config(directory.path());
  if (const std::string* token = config.special_token("eos_token")) {
    const std::optional<int32_t> id = tokenizer.token_to_id(*token);
    if (!id)
      throw_user(ExitCode::kBadFile, "{}: eos_token is {}; expected a token of {}", config.file, quote_json(Json(*token)),
                 tokenizer.spec().file);
    return id;
  }
  const std::vector<int32_t> ids = directory.end_of_text_ids();
  if (ids.empty() || !tokenizer.id_to_token(ids.front())) return std::nullopt;
  return ids.front();
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt) {
  std::vector<int32_t> ids = tokenizer.spec().before;
  const std::vector<int32_t> text = tokenizer.encode(prompt, false);
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

Json template_variables(const RunOptions& options) {
  if (options.chat_template_kwargs.empty()) return {};
  Json variables;
  try {
    variables = parse_json(options.chat_template_kwargs, "chat_template_kwargs");
  } catch (const UserError& error) {
    throw_user(ExitCode::kUsage, "{}", error.what());
  }
  if (const auto wrong = wrong_variables(variables))
    throw_user(ExitCode::kUsage, "chat_template_kwargs {}", *wrong);
  return variables;
}

ChatPrompt chat_prompt(const RunOptions& options, const Tokenizer* tokenizer) {
  const ChatTemplate chat = choose_chat_template(options.model, options.chat_template);
  Json messages = Json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  const Json variables = template_variables(options);
  const std::string text =
      chat.render({.messages = messages, .add_generation_prompt = true, .variables = variables}).text;
  const auto encode = [&](const std::string& part) {
    return tokenizer != nullptr ? tokenizer->encode(part, false) : encode_bytes(part);
  };
  ChatPrompt prompt{.ids = encode(text), .end_of_turn = chat.end_of_turn(variables), .end_id = std::nullopt};
  if (prompt.ids.empty()) throw_user(ExitCode::kBadFile, "{}: writes nothing for a user's turn", chat.name());
  if (tokenizer != nullptr) {
    // Of several tokens ("<|end|>\n<|endoftext|>") the first one ends the answer, when it stands for nothing else.
    const std::vector<int32_t> end = encode(prompt.end_of_turn);
    if (!end.empty() && (end.size() == 1 || tokenizer->is_special(end[0]))) prompt.end_id = end[0];
  }
  return prompt;
}

}  // namespace snug
