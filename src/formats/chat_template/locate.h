// formats/chat_template/locate.h — where the assistant's own words stand in a rendered conversation
//
// Method:  1. {% generation %} blocks, where the template has them.
//          2. Templates loop over the messages: what was written while a message was the loop's item is its turn. The generation
//             prompt is what the same template writes behind the messages before a turn; it must be what the turn begins with.
//             One more render, whatever the number of turns.
//          3. Where a turn is not the output of one iteration, or holds what others say (results of tools): renders of the messages before
//             a turn (with the generation prompt) and up to it must be beginnings of the whole text. Two renders a turn; up to
//             kMaxPrefixTurns turns.
//          Otherwise the conversation is refused with the reason.
#pragma once

#include <vector>

#include "formats/chat_template/conversation.h"

namespace snug::jinja {

inline constexpr size_t kMaxPrefixTurns = 64;

// `whole` is what conversation.render(size, input's add_generation_prompt) gave. Throws UserError(kBadFile).
std::vector<TextSpan> locate_assistant(Conversation& conversation, const Template& source,
                                       const std::string& file, const Rendered& whole);

}  // namespace snug::jinja
