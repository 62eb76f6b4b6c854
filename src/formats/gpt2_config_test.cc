#include "formats/gpt2_config.h"

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

Gpt2Config parse(const std::string& text) {
  return parse_gpt2_config(parse_json(text, "config.json"), "config.json");
}

// The file of the hub's "gpt2".
const std::string kHub = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
  "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
  "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257})";

TEST(Gpt2Config, ReadsTheHubsFile) {
  const Gpt2Config config = parse(kHub);
  EXPECT_EQ(config, Gpt2Config());
  EXPECT_EQ(config.inner, 3072);
  EXPECT_EQ(config.head_dim(), 64);
}

TEST(Gpt2Config, AbsentKeysTakeTheFamilysDefaults) {
  EXPECT_EQ(parse(R"({"model_type":"gpt2"})"), Gpt2Config());
  EXPECT_EQ(parse(R"({"n_embd":1024,"n_head":16,"n_inner":null})").inner, 4096);
}

TEST(Gpt2Config, ReadsEveryKey) {
  const Gpt2Config config =
      parse(R"({"vocab_size":61,"n_positions":32,"n_embd":16,"n_layer":2,"n_head":2,"n_inner":40,
    "activation_function":"gelu","layer_norm_epsilon":1e-6,"resid_pdrop":0,"embd_pdrop":0.25,"attn_pdrop":0.5,
    "initializer_range":0.01,"tie_word_embeddings":false,"_name_or_path":"x","transformers_version":"5.24.0","dtype":"float32"})");
  EXPECT_EQ(config, (Gpt2Config{.vocab_size = 61,
                                .positions = 32,
                                .hidden = 16,
                                .layers = 2,
                                .heads = 2,
                                .inner = 40,
                                .activation = Activation::kGeluExact,
                                .layer_norm_epsilon = 1e-6,
                                .resid_pdrop = 0,
                                .embd_pdrop = 0.25,
                                .attn_pdrop = 0.5,
                                .initializer_range = 0.01,
                                .tie_word_embeddings = false}));
  EXPECT_EQ(parse(R"({"activation_function":"gelu_pytorch_tanh"})").activation, Activation::kGeluTanh);
}

TEST(Gpt2Config, RefusesByNameWhatItCannotHonour) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {R"({"n_layer":"abc"})", "config.json: n_layer is \"abc\" (string); expected a positive integer"},
           {R"({"n_layer":0})", "n_layer is 0 (number); expected a positive integer"},
           {R"({"vocab_size":-5})", "vocab_size is -5 (number); expected a positive integer"},
           {R"({"n_embd":768.5})", "n_embd is 768.5 (number); expected a positive integer"},
           {R"({"n_embd":99999999999})",
            "n_embd is 99999999999 (number); expected a positive integer of at most 2147483647"},
           {R"({"n_embd":770})", "n_embd is 770; expected a multiple of n_head (12)"},
           {R"({"resid_pdrop":1.0})", "resid_pdrop is 1.0 (number); expected a number in [0, 1)"},
           {R"({"attn_pdrop":-0.1})", "attn_pdrop is -0.1 (number); expected a number in [0, 1)"},
           {R"({"layer_norm_epsilon":0})", "layer_norm_epsilon is 0 (number); expected a positive number"},
           {R"({"activation_function":"relu"})", "activation_function is \"relu\"; expected \"gelu_new\""},
           {R"({"scale_attn_weights":false})",
            "scale_attn_weights is false (boolean); Snug supports only true"},
           {R"({"scale_attn_by_inverse_layer_idx":true})",
            "scale_attn_by_inverse_layer_idx is true (boolean); Snug supports only false"},
           {R"({"reorder_and_upcast_attn":true})",
            "reorder_and_upcast_attn is true (boolean); Snug supports only false"},
           {R"({"add_cross_attention":true})",
            "add_cross_attention is true (boolean); Snug supports only false"},
           {R"({"tie_word_embeddings":"yes"})",
            "tie_word_embeddings is \"yes\" (string); expected true or false"},
           {R"({"pruned_heads":{"1":[0]}})", "pruned_heads is"},
           {R"({"rotary_dim":64})",
            "rotary_dim is 64 (number); Snug does not know this key, and it could change the model"},
           {R"([])", "the top is [] (array); expected an object"}}) {
    SCOPED_TRACE(c.text);
    expect_user_error(ExitCode::kBadFile, c.message, [&] { parse(c.text); });
  }
}

TEST(Gpt2Config, DefaultsWrittenOutAreAccepted) {
  EXPECT_EQ(
      parse(
          R"({"scale_attn_weights":true,"scale_attn_by_inverse_layer_idx":false,"reorder_and_upcast_attn":false,
                      "add_cross_attention":false,"pruned_heads":{},"chunk_size_feed_forward":0,"quantization_config":null,
                      "unknown_but_null":null})"),
      Gpt2Config());
}

// transformers reads n_positions alone: a model of n_ctx 512 has 1024 positions there, too.
TEST(Gpt2Config, KeysOfRealFilesThatChangeNothingAreAccepted) {
  EXPECT_EQ(parse(R"({"n_ctx":512,"n_special":0,"predict_special_tokens":true,"max_sequence_length":2048,
                      "model_max_length":1024,"keys_to_ignore_at_inference":["past_key_values"],"pad_token":"<pad>"})"),
            Gpt2Config());
}

}  // namespace
}  // namespace snug
