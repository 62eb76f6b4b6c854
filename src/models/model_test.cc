#include "models/model.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/stream.h"
#include "ir/operations.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/load_model.h"

namespace snug {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Gpt2Config tiny_gpt2() {
  Gpt2Config config;
  config.vocab_size = 257;
  config.positions = 64;
  config.hidden = 32;
  config.layers = 2;
  config.heads = 4;
  config.inner = 128;
  return config;
}

LlamaConfig tiny_llama() {
  LlamaConfig config;
  config.vocab_size = 300;
  config.positions = 128;
  config.hidden = 48;
  config.intermediate = 64;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 16;  // not hidden / heads
  return config;
}

LlamaConfig llama3_8b() {
  LlamaConfig config;
  config.vocab_size = 128256;
  config.positions = 8192;
  config.hidden = 4096;
  config.intermediate = 14336;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.rope.theta = 500000;
  return config;
}

std::vector<std::string> names(const Graph& graph, Storage storage) {
  std::vector<std::string> found;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.storage == storage) found.push_back(tensor.name);
  return found;
}

std::vector<std::string> ops(const Graph& graph, int32_t block) {
  std::vector<std::string> found;
  for (const Op& op : graph.ops)
    if (op.block == block) found.push_back(op.name + " " + op.kind);
  return found;
}

TEST(Model, ParameterCountsOfKnownModels) {
  EXPECT_EQ(parameter_count(gpt2_model(Gpt2Config{})), 124'439'808);
  Gpt2Config medium;
  medium.hidden = 1024, medium.layers = 24, medium.heads = 16, medium.inner = 4096;
  EXPECT_EQ(parameter_count(gpt2_model(medium)), 354'823'168);

  LlamaConfig smol;
  smol.vocab_size = 49152, smol.hidden = 576, smol.intermediate = 1536, smol.layers = 30;
  smol.heads = 9, smol.kv_heads = 3, smol.head_dim = 64, smol.tie_word_embeddings = true;
  EXPECT_EQ(parameter_count(llama_model(smol)), 134'515'008);
  EXPECT_EQ(parameter_count(llama_model(llama3_8b())), 8'030'261'248);
  EXPECT_EQ(parameter_count(llama_model(LlamaConfig{})), 6'738'415'616);  // Llama 2 7B
}

TEST(Model, Gpt2ParametersAreTheFilesTensors) {
  const Model model = gpt2_model(tiny_gpt2());
  std::vector<std::string> list;
  for (const ParameterSpec& spec : model.parameters)
    if (!spec.name.starts_with("transformer.h.1."))
      list.push_back(fmt::format("{} {}{}", spec.name, to_string(spec.shape), spec.decay ? " decay" : ""));
  EXPECT_THAT(
      list,
      ElementsAre("transformer.wte.weight [257,32] decay", "transformer.wpe.weight [64,32] decay",
                  "transformer.h.0.ln_1.weight [32]", "transformer.h.0.ln_1.bias [32]",
                  "transformer.h.0.attn.c_attn.weight [32,96] decay", "transformer.h.0.attn.c_attn.bias [96]",
                  "transformer.h.0.attn.c_proj.weight [32,32] decay", "transformer.h.0.attn.c_proj.bias [32]",
                  "transformer.h.0.ln_2.weight [32]", "transformer.h.0.ln_2.bias [32]",
                  "transformer.h.0.mlp.c_fc.weight [32,128] decay", "transformer.h.0.mlp.c_fc.bias [128]",
                  "transformer.h.0.mlp.c_proj.weight [128,32] decay", "transformer.h.0.mlp.c_proj.bias [32]",
                  "transformer.ln_f.weight [32]", "transformer.ln_f.bias [32]"));
  EXPECT_EQ(model.parameters.size(), 28u);
  EXPECT_TRUE(model.tied);
}

TEST(Model, LlamaParametersAreTheFilesTensors) {
  const Model model = llama_model(tiny_llama());
  std::vector<std::string> list;
  for (const ParameterSpec& spec : model.parameters)
    if (!spec.name.starts_with("model.layers.1."))
      list.push_back(fmt::format("{} {}{}", spec.name, to_string(spec.shape), spec.decay ? " decay" : ""));
  EXPECT_THAT(list, ElementsAre("model.embed_tokens.weight [300,48] decay",
                                "model.layers.0.self_attn.q_proj.weight [96,48] decay",
                                "model.layers.0.self_attn.k_proj.weight [32,48] decay",
                                "model.layers.0.self_attn.v_proj.weight [32,48] decay",
                                "model.layers.0.self_attn.o_proj.weight [48,96] decay",
                                "model.layers.0.mlp.gate_proj.weight [64,48] decay",
                                "model.layers.0.mlp.up_proj.weight [64,48] decay",
                                "model.layers.0.mlp.down_proj.weight [48,64] decay",
                                "model.layers.0.input_layernorm.weight [48]",
                                "model.layers.0.post_attention_layernorm.weight [48]",
                                "model.norm.weight [48]", "lm_head.weight [300,48] decay"));
}

TEST(Model, InitialisersFollowTheFamilies) {
  Gpt2Config config = tiny_gpt2();
  config.initializer_range = 0.04;
  std::map<std::string, Initializer> gpt2;
  for (const ParameterSpec& spec : gpt2_model(config).parameters) gpt2[spec.name] = spec.initializer;
  using Kind = Initializer::Kind;
  EXPECT_EQ(gpt2.at("transformer.wte.weight"), (Initializer{Kind::kNormal, 0.04}));
  EXPECT_EQ(gpt2.at("transformer.h.1.attn.c_attn.weight"), (Initializer{Kind::kNormal, 0.04}));
  EXPECT_EQ(gpt2.at("transformer.h.1.attn.c_proj.weight"),
            (Initializer{Kind::kNormal, 0.02}));  // / sqrt(2 · 2)
  EXPECT_EQ(gpt2.at("transformer.h.1.mlp.c_proj.weight"), (Initializer{Kind::kNormal, 0.02}));
  EXPECT_EQ(gpt2.at("transformer.h.1.mlp.c_fc.bias"), (Initializer{Kind::kZeros, 0}));
  EXPECT_EQ(gpt2.at("transformer.ln_f.weight"), (Initializer{Kind::kOnes, 0}));
  EXPECT_EQ(gpt2.at("transformer.ln_f.bias"), (Initializer{Kind::kZeros, 0}));
  for (const ParameterSpec& spec : llama_model(tiny_llama()).parameters)
    EXPECT_EQ(spec.initializer,
              spec.decay ? (Initializer{Kind::kNormal, 0.02}) : (Initializer{Kind::kOnes, 0}));
}

TEST(Model, Gpt2TrainsWithDropout) {
  const Graph graph = build_forward(gpt2_model(tiny_gpt2()), Purpose::kTrain, 2, 16);
  verify(graph, "build_forward");
  EXPECT_EQ(graph.name, "micro_step");
  EXPECT_THAT(names(graph, Storage::kInput), ElementsAre("tokens", "positions", "randomness",
                                                         "document_starts", "targets", "inverse_tokens"));
  EXPECT_THAT(ops(graph, 1),
              ElementsAre("h.1.ln_1 layer_norm", "h.1.attn.c_attn linear", "h.1.attn attention_qkv",
                          "h.1.attn.c_proj linear", "h.1.attn.resid_dropout dropout", "h.1.attn.residual add",
                          "h.1.ln_2 layer_norm", "h.1.mlp.c_fc linear", "h.1.mlp.act gelu",
                          "h.1.mlp.c_proj linear", "h.1.mlp.dropout dropout", "h.1.mlp.residual add"));
  EXPECT_THAT(ops(graph, -1), ElementsAre("wte embedding", "wpe embedding", "embeddings add", "drop dropout",
                                          "ln_f layer_norm", "lm_head head_loss"));
  ASSERT_EQ(graph.results.size(), 1u);
  EXPECT_EQ(graph.tensor(graph.results[0]).name, "loss");
  const Tensor& weight = graph.tensor(graph.find("transformer.h.0.attn.c_attn.weight"));
  EXPECT_EQ(weight.parameter, weight.name);
  EXPECT_TRUE(weight.trainable && weight.decay);
  EXPECT_FALSE(graph.tensor(graph.find("transformer.h.0.ln_1.weight")).decay);
  const std::string text = print(graph);
  EXPECT_EQ(parse_graph(text), graph);
  EXPECT_THAT(
      text, HasSubstr("%h.1.attn : f32[2,16,32] activations, %h.1.attn.lse : f32[2,4,16] activations = "
                      "attention_qkv(%h.1.attn.c_attn, %document_starts, %randomness) {dropout=0.1, heads=4, "
                      "kv_heads=4, scale=0.35355339059327373, stream="));
  EXPECT_THAT(
      text, HasSubstr("= head_loss(%ln_f, %transformer.wte.weight, %targets, %inverse_tokens) {chunk=1024}"));
}

TEST(Model, EvaluationHasNoDropout) {
  const Graph graph = build_forward(gpt2_model(tiny_gpt2()), Purpose::kEvaluate, 2, 16);
  verify(graph, "build_forward");
  for (const Op& op : graph.ops) {
    EXPECT_NE(op.kind, "dropout");
    if (op.kind == "attention_qkv") {
      EXPECT_EQ(op.attributes.real("dropout"), 0.0);
    }
  }
  EXPECT_THAT(names(graph, Storage::kInput),
              ElementsAre("tokens", "positions", "document_starts", "targets", "inverse_tokens"));

  Gpt2Config still = tiny_gpt2();
  still.embd_pdrop = still.resid_pdrop = still.attn_pdrop = 0;
  EXPECT_EQ(build_forward(gpt2_model(still), Purpose::kTrain, 2, 16).ops, graph.ops);
}

TEST(Model, GenerationEndsInLogits) {
  const Graph graph = build_forward(llama_model(tiny_llama()), Purpose::kGenerate, 1, 16);
  verify(graph, "build_forward");
  EXPECT_EQ(graph.name, "generate_16");
  EXPECT_THAT(names(graph, Storage::kInput),
              ElementsAre("tokens", "positions", "document_starts", "position"));
  const Tensor& logits = graph.tensor(graph.results.at(0));
  EXPECT_EQ(logits.name, "logits");
  EXPECT_EQ(logits.shape, (Shape{1, 300}));
  EXPECT_EQ(graph.ops.back().inputs[1], graph.find("lm_head.weight"));
}

TEST(Model, LlamaForward) {
  LlamaConfig config = tiny_llama();
  config.tie_word_embeddings = true;
  const Graph graph = build_forward(llama_model(config), Purpose::kTrain, 2, 8);
  verify(graph, "build_forward");
  EXPECT_THAT(
      ops(graph, 0),
      ElementsAre("layers.0.input_layernorm rms_norm", "layers.0.self_attn.q_proj linear",
                  "layers.0.self_attn.q_rotary rotary", "layers.0.self_attn.k_proj linear",
                  "layers.0.self_attn.k_rotary rotary", "layers.0.self_attn.v_proj linear",
                  "layers.0.self_attn attention", "layers.0.self_attn.o_proj linear",
                  "layers.0.self_attn.residual add", "layers.0.post_attention_layernorm rms_norm",
                  "layers.0.mlp.gate_proj linear", "layers.0.mlp.up_proj linear", "layers.0.mlp.act swiglu",
                  "layers.0.mlp.down_proj linear", "layers.0.mlp.residual add"));
  EXPECT_THAT(print(graph), HasSubstr("attention(%layers.0.self_attn.q_rotary, %layers.0.self_attn.k_rotary, "
                                      "%layers.0.self_attn.v_proj, %document_starts) {dropout=0.0, heads=6, "
                                      "kv_heads=2, scale=0.25}"));
  EXPECT_FALSE(graph.find("randomness").valid());
  EXPECT_EQ(graph.ops.back().inputs[1], graph.find("model.embed_tokens.weight"));
}

TEST(Model, LlamaRotaryScalingsReachTheTable) {
  const auto table = [](RopeType type) {
    LlamaConfig config = tiny_llama();
    config.rope = {.type = type, .theta = 5e5, .factor = 8, .original_max_position_embeddings = 64};
    const Graph graph = build_forward(llama_model(config), Purpose::kTrain, 1, 8);
    verify(graph, "build_forward");
    for (const Op& op : graph.ops)
      if (op.kind == "rotary_table") return to_string(op.attributes);
    return std::string("no table");
  };
  EXPECT_EQ(table(RopeType::kDefault), "{head_dim=16, theta=500000.0, type=default}");
  EXPECT_EQ(table(RopeType::kLinear), "{factor=8.0, head_dim=16, theta=500000.0, type=linear}");
  EXPECT_EQ(table(RopeType::kLlama3),
            "{factor=8.0, head_dim=16, high_freq_factor=4.0, low_freq_factor=1.0, "
            "original_max_position_embeddings=64, theta=500000.0, type=llama3}");
  EXPECT_EQ(table(RopeType::kYarn),
            "{attention_factor=1.0, beta_fast=32.0, beta_slow=1.0, factor=8.0, head_dim=16, "
            "original_max_position_embeddings=64, theta=500000.0, truncate=1, type=yarn}");
}

TEST(Model, StreamsAreFnv1aAndDiffer) {
  EXPECT_EQ(static_cast<uint64_t>(stream_of("")), 0xcbf29ce484222325u);
  EXPECT_EQ(static_cast<uint64_t>(stream_of("a")), 0xaf63dc4c8601ec8cu);  // published test vectors
  EXPECT_EQ(static_cast<uint64_t>(stream_of("foobar")), 0x85944171f73967e8u);
  std::set<int64_t> streams;
  size_t dropouts = 0;
  for (const Op& op : build_forward(gpt2_model(tiny_gpt2()), Purpose::kTrain, 2, 16).ops)
    if (op.attributes.has("stream")) {
      ++dropouts;
      streams.insert(op.attributes.integer("stream"));
    }
  EXPECT_EQ(dropouts, 7u);  // embedding, and in each block attention and two residuals
  EXPECT_EQ(streams.size(), dropouts);
}

TEST(Model, RefusesSamplesLongerThanThePositions) {
  const Model model = gpt2_model(tiny_gpt2());
  try {
    build_forward(model, Purpose::kTrain, 1, 65);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "max_length: found 65, expected 1 to 64, the positions of the model");
  }
  EXPECT_THROW(build_forward(model, Purpose::kTrain, 0, 64), UserError);
}

TEST(Model, NamesOfFilesMapToParameters) {
  const Model gpt2 = gpt2_model(tiny_gpt2());
  EXPECT_EQ(model_parameter(gpt2, "transformer.h.0.ln_1.bias"), "transformer.h.0.ln_1.bias");
  EXPECT_EQ(model_parameter(gpt2, "h.0.ln_1.bias"), "transformer.h.0.ln_1.bias");
  EXPECT_EQ(model_parameter(gpt2, "lm_head.weight"), "transformer.wte.weight");
  EXPECT_TRUE(is_tied_copy(gpt2, "lm_head.weight"));
  EXPECT_EQ(model_parameter(gpt2, "h.2.ln_1.bias"), std::nullopt);
  EXPECT_TRUE(is_ignorable_tensor(gpt2, "h.0.attn.bias"));
  EXPECT_TRUE(is_ignorable_tensor(gpt2, "transformer.h.11.attn.masked_bias"));
  EXPECT_FALSE(is_ignorable_tensor(gpt2, "h.0.attn.c_attn.bias"));
  EXPECT_FALSE(is_ignorable_tensor(gpt2, "h.x.attn.bias"));
  EXPECT_FALSE(is_ignorable_tensor(gpt2, "h.0"));

  const Model llama = llama_model(tiny_llama());
  EXPECT_EQ(model_parameter(llama, "lm_head.weight"), "lm_head.weight");
  EXPECT_FALSE(is_tied_copy(llama, "lm_head.weight"));
  EXPECT_EQ(model_parameter(llama, "layers.1.mlp.up_proj.weight"), "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(model_parameter(llama, "model.layers.1.self_attn.q_proj.bias"), std::nullopt);
  EXPECT_TRUE(is_ignorable_tensor(llama, "model.layers.1.self_attn.rotary_emb.inv_freq"));
}

TEST(Model, UntiedGpt2HasItsOwnHead) {
  Gpt2Config config = tiny_gpt2();
  config.tie_word_embeddings = false;
  const Model model = gpt2_model(config);
  EXPECT_EQ(model.parameters.back().name, "lm_head.weight");
  const Graph graph = build_forward(model, Purpose::kEvaluate, 1, 4);
  EXPECT_EQ(graph.ops.back().inputs[1], graph.find("lm_head.weight"));
}

TEST(Model, LoadsFromConfigJsonAlone) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "snug_models_test";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json")
      << R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 257, "n_positions": 64})";
  const Model gpt2 = load_model(ModelDirectory::open(directory.string()));
  EXPECT_EQ(gpt2.family, "gpt2");
  EXPECT_EQ(gpt2.blocks, 3);
  EXPECT_EQ(gpt2.vocabulary, 257);
  EXPECT_EQ(gpt2.max_positions, 64);
  std::ofstream(directory / "config.json")
      << R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100})";
  const Model llama = load_model(ModelDirectory::open(directory.string()));
  EXPECT_EQ(llama.family, "llama");
  EXPECT_EQ(llama.hidden, 64);
  std::ofstream(directory / "config.json") << R"({"model_type": "gemma2"})";
  EXPECT_THROW(load_model(ModelDirectory::open(directory.string())), UserError);
  std::filesystem::remove_all(directory);
}

// 100 blocks with 70B's width: what planning a model far larger than the machine begins with.
TEST(Model, BuildsLargeModels) {
  LlamaConfig config = llama3_8b();
  config.hidden = 8192, config.intermediate = 28672, config.layers = 100, config.heads = 64;
  const Model model = llama_model(config);
  const Graph graph = build_forward(model, Purpose::kTrain, 4, 8192);
  EXPECT_EQ(graph.ops.size(), 100u * 15 + 4);
  verify(graph, "build_forward");
}

}  // namespace
}  // namespace snug
