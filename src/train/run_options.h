// train/run_options.h — everything a run is told, as plain data with defaults
//
// Each field has the Hugging Face name and meaning where one exists (docs/options.md). The program fills it from the command line
// and a YAML file (cli/options/options.h); a client of the library fills it directly. `prepare` (train/prepare.h) checks values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "compile/options.h"
#include "data/sample_windows.h"
#include "formats/dataset/data_files.h"
#include "train/allow.h"

namespace snug {

enum class LearningRateSchedule : uint8_t {
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kPolynomial,
  kConstant,
  kConstantWithWarmup,
  kInverseSqrt,
};

// What the planner takes an operation's seconds from.
enum class CostSource : uint8_t {
  kMeasured,  // timed on this machine, once (train/costs.h)
  kRoofline,  // two rates of the machine, measured at each start
};

struct RunOptions {
  // Model
  std::string model;          // Hugging Face model directory
  bool from_scratch = false;  // initialise from config.json alone; no weights are read
  // f32, bf16 or f16 for every saved tensor; none: each tensor's own type in its file.
  std::optional<DType> save_dtype;

  // Data
  std::vector<std::string> train_file, validation_file;  // files, folders, patterns
  std::optional<DatasetFormat> dataset_format;           // none: by a file's ending and its first row
  std::string text_field;                                // of json_text rows; empty: text or content
  double validation_split = 0;       // held out of train_file: below 1 a share, else that many rows
  std::string chat_template;         // a built-in template or a file; empty: the model's own
  std::string chat_template_kwargs;  // its variables in every conversation, an object of JSON; empty: none
  bool train_on_inputs = false;      // learn prompts and the turns of users as well
  bool special_as_text = false;      // special tokens that a text spells out stay text
  bool skip_bad_rows = false;
  Packing packing = Packing::kAuto;
  std::string data_cache;  // where prepared data lie; empty: in the user's cache
  // "uint16" or "uint32" of raw shards; empty: uint16 up to a vocabulary of 65,536, else uint32.
  std::string token_dtype;
  int64_t max_length = 0;  // 0: min(1024, the model's positions)
  bool shuffle = true;

  // Batch and length of the run
  static constexpr int64_t kAuto =
      0;  // of per_device_train_batch_size: a divisor of global_batch_size that the planner chooses
  int64_t per_device_train_batch_size = 8, per_device_eval_batch_size = 8;
  int64_t gradient_accumulation_steps = 0;  // 0: what global_batch_size needs; without one 1
  int64_t global_batch_size = 0;            // windows of one update; 0: batch times accumulation
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // updates; −1: num_train_epochs decides; 0: load and save only

  // Optimizer (AdamW)
  double learning_rate = 5e-5, weight_decay = 0, adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1;         // 0: no clipping
  Moments moments = Moments::kF32;  // --optim
  DType gradients = DType::kF32;    // kBF16: those of large matrices, from the backward to the update
  LearningRateSchedule lr_scheduler_type = LearningRateSchedule::kLinear;
  double warmup_steps = 0;  // updates; below 1 a share of all updates

  // Memory and speed
  std::optional<Bytes> memory;  // budget of the whole process; none: what is left, minus a margin
  Precision precision = Precision::kF32;
  RecomputePolicy recompute{.kind = RecomputePolicy::Kind::kOptimal};
  Allowed allow;                                    // beyond exact choices
  std::optional<UpdatePlacement> update_placement;  // none: the planner chooses
  int64_t head_chunk_rows =
      0;  // of logits at a time; 0: kHeadChunkRows, or the planner's where it may reassociate
  // That an MLP works on at a time; 0: all. None: all, or the planner's where it may reassociate.
  std::optional<int64_t> mlp_chunk_rows;
  // None: split with bf16, full with fp16. kNone: with bf16 and allow no_master_weights only.
  std::optional<MasterWeights> master_weights;
  int threads = 0;  // 0: what affinity and the cgroup's CPU quota allow
  CostSource costs = CostSource::kMeasured;
  bool check_memory = false;

  // Output
  std::string output_dir;
  bool overwrite_output_dir = false;
  int64_t logging_steps = 10, eval_steps = 0, save_steps = 0;  // updates; 0: only at the end
  uint64_t seed = 42;
  bool progress = true;

  // Generation
  std::string prompt;
  bool chat = false;                   // the prompt is a user's turn
  std::string system;                  // the system message before it
  std::vector<int32_t> prompt_tokens;  // instead of `prompt`: for models whose tokenizer Snug does not read
  int64_t max_new_tokens = 200, top_k = 50;
  double temperature = 1, top_p = 1;
};

}  // namespace snug
