// formats/token_shard.h — files of tokens as one kind of stream
//
//   nanoGPT     no header; little-endian uint16 or uint32 ids to the end of the file
//   Megatron    the same beside an index (NAME.idx for NAME.bin), which says the type; its documents are not looked at
//   llm.c       256 little-endian int32: magic 20240520, version 1, count, then uint16 ids (GPT-2); or magic 20240801, version 7,
//               then uint32 ids (Llama 3). The file size must match the count
//   text        its bytes are ids 0–255, then one end of text (256) (formats/byte_tokenizer.h). A UTF-8 byte order mark at
//               the beginning is no part of the text and is passed over; every other byte is kept, carriage returns included
//
// llm.c's header is recognised by its magic whatever the file is called. Reading is bounded: a request is
// served through a fixed buffer; no file is held whole or memory-mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace snug {

// Width of the ids of a shard without a header.
enum class TokenDType : uint8_t { kUint16, kUint32 };

// "uint16" or "uint32", as the option --token_dtype spells them; none for another word.
std::optional<TokenDType> parse_token_dtype(std::string_view name);
std::string_view token_dtype_name(TokenDType dtype);
// The width that a vocabulary of this many ids is stored in: uint16 up to 65,536.
TokenDType default_token_dtype(int64_t vocabulary);

class TokenStream {
 public:
  virtual ~TokenStream() = default;

  virtual const std::string& path() const = 0;
  // Tokens in the stream; at least 1.
  virtual int64_t size() const = 0;
  // Fills `out` with tokens [first, first + out.size()), which lie within the stream (else InternalError). An
  // id outside the vocabulary is UserError(kBadFile) with the file, the token's position and the id. Safe
  // from several threads at once.
  virtual void read(int64_t first, std::span<int32_t> out) const = 0;
};

// Opens a shard. `dtype` is used where neither the file nor an index of Megatron's beside it (NAME.idx) says another. Throws UserError(kBadFile) for an empty
// file, a size that is no multiple of the width, an unknown version, a size that contradicts the header, or first tokens outside the
// vocabulary.
std::unique_ptr<TokenStream> open_token_shard(const std::string& path, TokenDType dtype, int64_t vocabulary);

// Opens a text. Throws UserError(kBadFile) for an empty one and for a vocabulary of less than 257 ids.
std::unique_ptr<TokenStream> open_text(const std::string& path, int64_t vocabulary);

}  // namespace snug
