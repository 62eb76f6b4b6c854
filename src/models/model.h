// models/model.h — a model as plain data (its parameters in file order, its configuration) and its forward
// graph
//
// Parameters are the file's tensors, in their own orientation: GPT-2's product weights are (in, out), Llama's
// (out, in). A tied head has no parameter of its own. One file a family (gpt2.cc, llama.cc) knows names,
// shapes, initialisers and the forward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "formats/gpt2_config.h"
#include "formats/llama_config.h"
#include "ir/graph.h"

namespace snug {

// How a parameter begins in a run from scratch.
struct Initializer {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double std = 0;  // of kNormal, whose mean is 0
  friend bool operator==(const Initializer&, const Initializer&) = default;
};

struct ParameterSpec {
  std::string name;  // the file's tensor name, as the family's library writes it
  Shape shape = {};
  bool decay = false;  // weight decay applies: matrices and embeddings; not biases and norms
  bool trainable = true;
  Initializer initializer = {};
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

struct Model {
  std::string family;  // "gpt2", "llama": config.json's model_type
  std::vector<ParameterSpec> parameters;
  int64_t vocabulary = 0;     // rows of the embedding
  int64_t max_positions = 0;  // longest sample
  int64_t hidden = 0;
  int64_t blocks = 0;
  bool tied = false;  // the head is the token embedding
  std::variant<Gpt2Config, LlamaConfig> config;
};

// Number of elements of all parameters. Throws UserError on overflow.
int64_t parameter_count(const Model& model);

// What the forward is for. kTrain has the dropouts of the configuration; kEvaluate has none; kGenerate ends
// in logits of one position.
enum class Purpose : uint8_t { kTrain, kEvaluate, kGenerate };

// Rows of logits that exist at a time in head_loss unless the user allows another number: a function of nothing, so
// that no budget changes any product.
inline constexpr int64_t kHeadChunkRows = 1024;

// The forward graph of `batch` samples of `length` positions, everything floating in f32, part kForward.
//   states   every parameter of the model, in its order, under its own name
//   inputs   those of these that are used: tokens, targets, positions, document_starts i32(B,T), inverse_tokens f32(1),
//            randomness u32(B,4) (only when a dropout is active), position i32(1) (kGenerate)
//   result   `loss` f32(1), or for kGenerate `logits` f32(B,V) of row `position`
// Operations are named after the module: "h.3.attn.c_attn", "layers.3.self_attn.q_proj". A dropout's `stream`
// is the FNV-1a hash of the name of its operation. Graph name: "micro_step", "evaluate", "generate_LENGTH".
// Throws UserError(kUsage) when batch or length is not positive or length exceeds max_positions.
// `head_chunk` is the attribute `chunk` of head_loss.
Graph build_forward(const Model& model, Purpose purpose, int64_t batch, int64_t length,
                    int64_t head_chunk = kHeadChunkRows);

// The parameter that a file's tensor `stored` holds: its own name, the name without the base model's prefix
// (files of GPT2Model or LlamaModel alone), or a tied head stored beside its embedding. None: the model has
// no such tensor.
std::optional<std::string> model_parameter(const Model& model, std::string_view stored);
// `stored` is a tied head's own copy of the embedding: it must equal it.
bool is_tied_copy(const Model& model, std::string_view stored);
// `stored` is a buffer that old files carry and nobody reads: attention masks, rotary frequencies.
bool is_ignorable_tensor(const Model& model, std::string_view stored);

}  // namespace snug
