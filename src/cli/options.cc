// One table of every option of a run. One file, though over 800 lines: an entry is worded and ordered beside all the others.
#include "cli/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/nearest.h"
#include "cli/option_values.h"
#include "formats/run_config.h"

namespace snug {
namespace {

constexpr unsigned kModelCommands = kPlan | kTrain | kEval | kGenerate | kInspect;
constexpr unsigned kTraining = kPlan | kTrain | kInspect;

// The entries are made by kind, so that reading and writing an option's text stand side by side.

OptionInfo boolean(std::string name, bool RunOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& text) { o.run.*field = read_bool(text); };
  info.get = [field](const ProgramOptions& o) { return std::string(o.run.*field ? "true" : "false"); };
  return info;
}

OptionInfo integer(std::string name, int64_t RunOptions::*field, int64_t least, OptionInfo info) {
  info.name = std::move(name);
  if (info.value.empty()) info.value = "N";
  info.set = [field, least](ProgramOptions& o, const std::string& text) {
    o.run.*field =
        read_number<int64_t>(text, least, int64_t{1} << 50, fmt::format("a whole number ≥ {}", least));
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", o.run.*field); };
  return info;
}

// An integer option for which 0 means that it was not given.
OptionInfo or_unset(OptionInfo info) {
  info.get = [number = info.get](const ProgramOptions& o) {
    std::string text = number(o);
    return text == "0" ? std::string() : text;
  };
  return info;
}

OptionInfo real(std::string name, double RunOptions::*field, double least, double most, OptionInfo info) {
  info.name = std::move(name);
  if (info.value.empty()) info.value = "X";
  info.set = [field, least, most](ProgramOptions& o, const std::string& text) {
    o.run.*field = read_number<double>(text, least, most,
                                       most == FLT_MAX ? fmt::format("a number ≥ {} that fp32 can hold", least)
                                                        : fmt::format("a number from {} to {}", least, most));
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", o.run.*field); };
  return info;
}

OptionInfo text(std::string name, std::string RunOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& value) { o.run.*field = value; };
  info.get = [field](const ProgramOptions& o) { return o.run.*field; };
  return info;
}

OptionInfo texts(std::string name, std::vector<std::string> RunOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& value) {
    size_t begin = 0;
    while (begin <= value.size()) {
      const size_t comma = std::min(value.find(',', begin), value.size());
      if (comma == begin) refuse("found \"{}\"; expected file names separated by commas", value);
      (o.run.*field).push_back(value.substr(begin, comma - begin));
      begin = comma + 1;
    }
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.run.*field, ",")); };
  return info;
}

// One of a fixed set of words. `words` pairs the text with the value; several words may mean one value, the first is printed.
template <typename T>
OptionInfo choice(std::string name, T RunOptions::*field, std::vector<std::pair<std::string, T>> words,
                  OptionInfo info) {
  info.name = std::move(name);
  info.set = [field, words](ProgramOptions& o, const std::string& value) {
    for (const auto& [word, meaning] : words)
      if (word == value) {
        o.run.*field = meaning;
        return;
      }
    std::vector<std::string> names;
    for (const auto& [word, meaning] : words) names.push_back(word);
    refuse("found \"{}\"; expected one of {}", value, fmt::join(names, ", "));
  };
  info.get = [field, words](const ProgramOptions& o) {
    for (const auto& [word, meaning] : words)
      if (meaning == o.run.*field) return word;
    return std::string();
  };
  return info;
}

// A switch for one precision. Turned off it leaves another precision alone: configurations have "bf16: true, fp16: false".
std::function<void(RunOptions&, bool)> precision_switch(Precision precision) {
  return [precision](RunOptions& o, bool on) {
    if (on) o.precision = precision;
    if (!on && o.precision == precision) o.precision = Precision::kF32;
  };
}

// A second name that sets another option to a fixed value, the way Hugging Face users write it.
OptionInfo shorthand(std::string name, OptionInfo info, std::function<void(RunOptions&, bool)> apply) {
  info.name = std::move(name);
  info.saved = false;
  info.set = [apply](ProgramOptions& o, const std::string& value) { apply(o.run, read_bool(value)); };
  info.get = [](const ProgramOptions&) { return std::string(); };
  return info;
}

std::vector<int32_t> read_token_list(const std::string& value) {
  std::vector<int32_t> tokens;
  size_t begin = 0;
  while (begin < value.size()) {
    const size_t end = value.find_first_of(", \t\n", begin);
    const std::string word = value.substr(begin, end == std::string::npos ? end : end - begin);
    if (!word.empty())
      tokens.push_back(read_number<int32_t>(word, 0, INT32_MAX, "token ids ≥ 0 separated by commas"));
    begin = end == std::string::npos ? value.size() : end + 1;
  }
  return tokens;
}

std::vector<OptionInfo> make_options() {
  constexpr double kLargest = FLT_MAX;  // what the f32 arithmetic of an update can hold
  const std::string model = "Model", data = "Data", batch = "Batch and length", optimizer = "Optimizer",
                    memory = "Memory and speed", output = "Output", generation = "Generation",
                    program = "Program";
  std::vector<OptionInfo> list;
  const auto add = [&](OptionInfo info) { list.push_back(std::move(info)); };

  add(text(
      "model", &RunOptions::model,
      {.aliases = {"model_name_or_path"},
       .group = model,
       .value = "DIR",
       .commands = kModelCommands | kDataInspect,
       .help = "Hugging Face model directory (GPT-2 or Llama family). plan needs its config.json only."}));
  add(boolean("from_scratch", &RunOptions::from_scratch,
              {.group = model,
               .commands = kTraining,
               .help = "Initialise weights from config.json alone, the way the family does."}));
  {
    OptionInfo info{
        .group = model,
        .value = "TYPE",
        .commands = kTraining,
        .help = "Type of every saved tensor: fp32, bf16 or fp16. Default: each keeps its file's type."};
    info.name = "save_dtype";
    info.set = [](ProgramOptions& o, const std::string& value) {
      if (value == "fp32" || value == "float32")
        o.run.save_dtype = DType::kF32;
      else if (value == "bf16" || value == "bfloat16")
        o.run.save_dtype = DType::kBF16;
      else if (value == "fp16" || value == "float16")
        o.run.save_dtype = DType::kF16;
      else
        refuse("found \"{}\"; expected one of fp32, bf16, fp16", value);
    };
    info.get = [](const ProgramOptions& o) -> std::string {
      if (!o.run.save_dtype) return "";
      return *o.run.save_dtype == DType::kF32 ? "fp32" : *o.run.save_dtype == DType::kBF16 ? "bf16" : "fp16";
    };
    add(info);
  }

  add(texts("train_file", &RunOptions::train_file,
            {.group = data,
             .value = "FILE",
             .commands = kTraining | kDataInspect,
             .positional = kDataInspect,
             .help = "Data (docs/data.md): text, rows of JSON (text, Alpaca, ShareGPT, messages, prompt and "
                     "completion, tokens), plain, .gz or "
                     ".zst, or token shards (nanoGPT raw, llm.c). A file, a folder or a pattern; several "
                     "separated by commas or by repeating "
                     "the option."}));
  add(texts("validation_file", &RunOptions::validation_file,
            {.group = data,
             .value = "FILE",
             .commands = kTraining | kEval,
             .help = "The same, for evaluation loss."}));
  add(real("validation_split", &RunOptions::validation_split, 0, 1e15,
           {.group = data,
            .commands = kTraining,
            .help = "What is held out of train_file for evaluation loss: below 1 a share, else that many "
                    "rows, drawn by the seed; of text and "
                    "shards the end. 0: nothing."}));
  {
    OptionInfo info{.group = data,
                    .value = "NAME",
                    .commands = kTraining | kEval | kDataInspect,
                    .help =
                        "What the files hold: text, shards, json_text, alpaca, sharegpt, messages, "
                        "prompt_completion or tokens. Default: what "
                        "their endings and their first row say."};
    info.name = "dataset_format";
    info.set = [](ProgramOptions& o, const std::string& value) {
      if (value.empty()) {
        o.run.dataset_format.reset();
        return;
      }
      o.run.dataset_format = parse_dataset_format(value);
      if (!o.run.dataset_format)
        refuse(
            "found \"{}\"; expected one of text, shards, json_text, alpaca, sharegpt, messages, "
            "prompt_completion, tokens",
            value);
    };
    info.get = [](const ProgramOptions& o) {
      return o.run.dataset_format ? std::string(dataset_format_name(*o.run.dataset_format)) : std::string();
    };
    add(info);
  }
  add(text(
      "text_field", &RunOptions::text_field,
      {.group = data,
       .value = "NAME",
       .commands = kTraining | kEval | kDataInspect,
       .help =
           "The field of a json_text row that is its text. Default: text, or content where there is none."}));
  add(text("chat_template", &RunOptions::chat_template,
           {.group = data,
            .value = "NAME",
            .commands = kTraining | kEval | kDataInspect | kGenerate,
            .help = "What conversations are written with (of generate: with --chat): alpaca, chatml, gemma, llama3, mistral, phi3, vicuna, zephyr, or "
                    "a Jinja file (docs/chat_templates.md). Default: the model's own (chat_template.jinja, tokenizer_config.json)."}));
  add(boolean("train_on_inputs", &RunOptions::train_on_inputs,
              {.group = data,
               .commands = kTraining | kEval | kDataInspect,
               .help = "Learn prompts and all turns of a conversation as well, not only completions and the "
                       "assistant's turns."}));
  add(boolean("special_as_text", &RunOptions::special_as_text,
              {.group = data,
               .commands = kTraining | kEval | kDataInspect,
               .help = "Special tokens that rows spell out stay text, instead of becoming these tokens."}));
  add(boolean("skip_bad_rows", &RunOptions::skip_bad_rows,
              {.group = data,
               .commands = kTraining | kEval | kDataInspect,
               .help = "Count rows that are broken instead of ending with the first."}));
  add(choice<Packing>("packing", &RunOptions::packing,
                      {{"auto", Packing::kAuto}, {"true", Packing::kOn}, {"false", Packing::kOff}},
                      {.group = data,
                       .value = "true|false|auto",
                       .commands = kTraining | kEval | kDataInspect,
                       .help = "Several samples in one window, which do not see each other. auto: where they "
                               "are short. false: one in each, "
                               "padded."}));
  add(text("data_cache", &RunOptions::data_cache,
           {.group = data,
            .value = "DIR",
            .commands = kTraining | kEval | kDataInspect,
            .help = "Where prepared data are kept for later runs. Default: snug/data in the user's cache "
                    "directory."}));
  {
    OptionInfo info =
        text("token_dtype", &RunOptions::token_dtype,
             {.group = data,
              .value = "TYPE",
              .commands = kTraining | kEval,
              .help = "uint16 or uint32 for raw shards. Default: uint16 up to 65,536 tokens of vocabulary."});
    info.set = [](ProgramOptions& o, const std::string& value) {
      if (value != "uint16" && value != "uint32" && !value.empty())
        refuse("found \"{}\"; expected uint16 or uint32", value);
      o.run.token_dtype = value;
    };
    add(info);
  }
  add(integer("max_length", &RunOptions::max_length, 0,
              {.aliases = {"max_seq_length", "sequence_len", "cutoff_len", "block_size"},
               .group = data,
               .commands = kTraining | kEval | kDataInspect,
               .help = "Tokens in a window. 0: the smaller of 1024 and the model's positions."}));
  add(boolean("shuffle", &RunOptions::shuffle,
              {.group = data, .commands = kTraining, .help = "Windows in an order given by the seed."}));

  {
    OptionInfo info = integer("per_device_train_batch_size", &RunOptions::per_device_train_batch_size, 1,
                              {.aliases = {"micro_batch_size", "batch_size"},
                               .group = batch,
                               .commands = kTraining,
                               .help = "Windows in one micro-step. auto: the part of global_batch_size that the planner "
                                       "chooses by budget and model."});
    info.set = [number = info.set](ProgramOptions& o, const std::string& value) {
      if (value == "auto")
        o.run.per_device_train_batch_size = RunOptions::kAuto;
      else
        number(o, value);
    };
    info.get = [number = info.get](const ProgramOptions& o) {
      return o.run.per_device_train_batch_size == RunOptions::kAuto ? "auto" : number(o);
    };
    add(info);
  }
  add(or_unset(integer("global_batch_size", &RunOptions::global_batch_size, 1,
                       {.group = batch,
                        .commands = kTraining,
                        .help = "Windows of one update: per_device_train_batch_size times gradient_accumulation_steps, which "
                                "follow from it where they are not given."})));
  add(integer("per_device_eval_batch_size", &RunOptions::per_device_eval_batch_size, 1,
              {.group = batch, .commands = kTraining | kEval, .help = "Windows in one evaluation batch."}));
  add(or_unset(integer("gradient_accumulation_steps", &RunOptions::gradient_accumulation_steps, 1,
                       {.group = batch,
                        .commands = kTraining,
                        .help = "Micro-steps in one update; gradients are the mean over all its supervised tokens. "
                                "Default: what global_batch_size needs, without one 1."})));
  add(real("num_train_epochs", &RunOptions::num_train_epochs, 0, 1e9,
           {.aliases = {"num_epochs"},
            .group = batch,
            .commands = kTraining,
            .help = "Passes over the data (may be a fraction)."}));
  add(integer("max_steps", &RunOptions::max_steps, -1,
              {.group = batch,
               .commands = kTraining,
               .help = "Updates; overrides num_train_epochs. 0 loads and saves. -1: not set."}));

  add(real("learning_rate", &RunOptions::learning_rate, 0, kLargest,
           {.group = optimizer, .commands = kTraining, .help = "Peak learning rate of AdamW."}));
  add(choice<LearningRateSchedule>(
      "lr_scheduler_type", &RunOptions::lr_scheduler_type,
      {{"linear", LearningRateSchedule::kLinear},
       {"cosine", LearningRateSchedule::kCosine},
       {"cosine_with_restarts", LearningRateSchedule::kCosineWithRestarts},
       {"polynomial", LearningRateSchedule::kPolynomial},
       {"constant", LearningRateSchedule::kConstant},
       {"constant_with_warmup", LearningRateSchedule::kConstantWithWarmup},
       {"inverse_sqrt", LearningRateSchedule::kInverseSqrt}},
      {.group = optimizer,
       .value = "NAME",
       .commands = kTraining,
       .help = "linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup or "
               "inverse_sqrt."}));
  add(real("warmup_steps", &RunOptions::warmup_steps, 0, 1e15,
           {.group = optimizer,
            .commands = kTraining,
            .help = "Updates with a rising rate; below 1 a share of all updates."}));
  {
    OptionInfo info{.group = optimizer,
                    .value = "X",
                    .commands = kTraining,
                    .help = "Older name for warmup_steps below 1: a share of all updates.",
                    .saved = false};
    info.name = "warmup_ratio";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.warmup_steps = read_number<double>(value, 0, 0.9999999, "a number from 0 to below 1");
    };
    info.get = [](const ProgramOptions&) { return std::string(); };
    add(info);
  }
  add(real("weight_decay", &RunOptions::weight_decay, 0, kLargest,
           {.group = optimizer,
            .commands = kTraining,
            .help = "Decoupled decay of matrices; none on biases and norms."}));
  add(real("adam_beta1", &RunOptions::adam_beta1, 0, 0.9999999,
           {.group = optimizer, .commands = kTraining, .help = "Decay of the first moment."}));
  add(real("adam_beta2", &RunOptions::adam_beta2, 0, 0.9999999999,
           {.group = optimizer, .commands = kTraining, .help = "Decay of the second moment."}));
  add(real("adam_epsilon", &RunOptions::adam_epsilon, 0, kLargest,
           {.group = optimizer, .commands = kTraining, .help = "Added to the root of the second moment."}));
  add(real("max_grad_norm", &RunOptions::max_grad_norm, 0, kLargest,
           {.group = optimizer,
            .commands = kTraining,
            .help = "Clip gradients to this global norm. 0: no clipping."}));
  add(choice<Moments>(
      "optim", &RunOptions::moments,
      {{"adamw_torch", Moments::kF32},
       {"adamw_torch_fused", Moments::kF32},
       {"adamw", Moments::kF32},
       {"adamw_bf16", Moments::kBF16},
       {"adamw_8bit", Moments::kEightBit},
       {"adamw_bnb_8bit", Moments::kEightBit},
       {"adamw_torch_8bit", Moments::kEightBit}},
      {.group = optimizer,
       .value = "NAME",
       .commands = kTraining,
       .help = "adamw_torch (also adamw_torch_fused, adamw: the same numbers): moments in fp32, 8 bytes a "
               "parameter; adamw_bf16: 4 "
               "bytes; adamw_8bit (also adamw_bnb_8bit, adamw_torch_8bit): 2 bytes (docs/lossy.md)."}));

  {
    OptionInfo info{.group = memory,
                    .value = "SIZE",
                    .commands = kModelCommands,
                    .help =
                        "Budget of the whole process: 900MiB, 2GB, or a number of bytes. Default: what is "
                        "left, minus a margin."};
    info.name = "memory";
    info.set = [](ProgramOptions& o, const std::string& value) {
      const Bytes budget = parse_bytes(value);
      if (budget.value <= 0) refuse("found \"{}\"; expected a size above 0", value);
      o.run.memory = budget;
    };
    info.get = [](const ProgramOptions& o) {
      return o.run.memory ? fmt::format("{}", o.run.memory->value) : std::string();
    };
    add(info);
  }
  add(choice<Precision>(
      "precision", &RunOptions::precision,
      {{"fp32", Precision::kF32},
       {"bf16", Precision::kBF16},
       {"fp16", Precision::kF16},
       {"float32", Precision::kF32},
       {"bfloat16", Precision::kBF16},
       {"float16", Precision::kF16}},
      {.group = memory,
       .value = "TYPE",
       .commands = kModelCommands,
       .help = "fp32, or bf16: weights and activations in 16 bits, with fp32 master weights and sums. "
               "fp16: likewise, with a dynamic loss scale."}));
  add(shorthand("bf16", {.group = memory, .commands = kModelCommands, .help = "Same as --precision bf16."},
                precision_switch(Precision::kBF16)));
  add(shorthand("fp16", {.group = memory, .commands = kModelCommands, .help = "Same as --precision fp16."},
                precision_switch(Precision::kF16)));
  {
    OptionInfo info{.group = memory,
                    .value = "POLICY",
                    .commands = kTraining,
                    .help =
                        "What is computed again instead of kept, with the same bits. none: nothing. block: all "
                        "but what leaves a block. uniform:K: all but what leaves every K-th block. "
                        "selective:LIST: what attention, norm, activation, mlp or projection make inside a "
                        "block. compress[:LIST]: the same values (all without a list) are held as fp8 numbers instead, "
                        "which changes gradients a little; compress_e5m2 with more range. memory: the largest, until the budget holds. heuristic: the cheapest a byte, "
                        "until it holds. optimal: what the planner finds fastest in it; nothing where everything fits."};
    info.name = "recompute";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.recompute = parse_recompute_policy(value);
    };
    info.get = [](const ProgramOptions& o) { return to_string(o.run.recompute); };
    add(info);
  }
  add(choice<DType>(
      "gradients", &RunOptions::gradients, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}},
      {.group = memory,
       .value = "TYPE",
       .commands = kTraining,
       .help =
           "Gradients of large matrices from the backward to the update. fp32, or bf16: 2 bytes a parameter "
           "instead of 4, each rounded once; not with accumulation, whose sums are fp32."}));
  {
    OptionInfo info{.group = memory, .value = "WORDS", .commands = kTraining, .help = allowances_help()};
    info.name = "allow";
    info.set = [](ProgramOptions& o, const std::string& value) { o.run.allow.merge(parse_allowed(value)); };
    info.get = [](const ProgramOptions& o) { return to_string(o.run.allow); };
    add(info);
  }
  add(shorthand(
      "gradient_checkpointing",
      {.group = memory, .commands = kTraining, .help = "Same as --recompute block."}, [](RunOptions& o, bool on) {
        o.recompute.kind = on ? RecomputePolicy::Kind::kBlock : RecomputePolicy::Kind::kNone;
      }));
  add(choice<std::optional<UpdatePlacement>>(
      "update_placement", &RunOptions::update_placement,
      {{"auto", std::nullopt}, {"after", UpdatePlacement::kAfter}, {"in_backward", UpdatePlacement::kInBackward}},
      {.group = memory,
       .value = "PLACE",
       .commands = kTraining,
       .help = "after: all gradients live until the update; in_backward: each block is updated inside the backward, "
               "so that one block's gradients live (with clipping the backward runs twice); auto: the faster of what "
               "fits. The same bits."}));
  add(or_unset(integer("head_chunk_rows", &RunOptions::head_chunk_rows, 1,
                       {.group = memory,
                        .commands = kTraining,
                        .help = "Rows of logits that exist at a time in the head; another number is another order of sums. "
                                "Default: 1024, or the planner's where --allow names reassociation."})));
  {
    OptionInfo info{.group = memory,
                    .value = "N",
                    .commands = kTraining,
                    .help =
                        "Rows that an MLP works on at a time, so that its hidden values never exist whole; "
                        "the backward makes them again. "
                        "0: all. Another number is another order of sums. Default: all, or the planner's "
                        "where --allow names "
                        "reassociation."};
    info.name = "mlp_chunk_rows";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.mlp_chunk_rows = read_number<int64_t>(value, 0, int64_t{1} << 50, "a whole number ≥ 0");
    };
    info.get = [](const ProgramOptions& o) {
      return o.run.mlp_chunk_rows ? fmt::format("{}", *o.run.mlp_chunk_rows) : std::string();
    };
    add(info);
  }
  add(choice<std::optional<MasterWeights>>(
      "master_weights", &RunOptions::master_weights,
      {{"auto", std::nullopt}, {"split", MasterWeights::kSplit}, {"full", MasterWeights::kFull}, {"none", MasterWeights::kNone}},
      {.group = memory,
       .value = "FORM",
       .commands = kTraining,
       .help = "fp32 masters of 16-bit weights. split: the 16 bits that a bf16 weight lacks (4 bytes together); "
               "full: a whole fp32 beside it (6): the same bits. auto: split with bf16, full with fp16. none: the bf16 "
               "weight alone (2), rounded stochastically: needs --allow no_master_weights."}));
  {
    OptionInfo info{.group = memory,
                    .value = "N",
                    .commands = kModelCommands | kDataInspect,
                    .help = "Threads. 0: what affinity and the cgroup's CPU quota allow."};
    info.name = "threads";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.threads = read_number<int>(value, 0, 4096, "a whole number from 0 to 4096");
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.run.threads); };
    add(info);
  }
  add(choice<CostSource>(
      "costs", &RunOptions::costs,
      {{"measured", CostSource::kMeasured}, {"roofline", CostSource::kRoofline}},
      {.group = memory,
       .value = "SOURCE",
       .commands = kTraining,
       .help = "measured times each operation once on this machine (3 s) and keeps it in ~/.cache/snug; roofline "
               "estimates from two rates."}));
  add(boolean("check_memory", &RunOptions::check_memory,
              {.group = memory,
               .commands = kTraining | kEval,
               .help = "Check after every operation that it wrote nothing outside its place (slow)."}));

  add(text("output_dir", &RunOptions::output_dir,
           {.group = output,
            .value = "DIR",
            .commands = kTraining,
            .help = "Where model, plan, metrics and checkpoints go."}));
  add(boolean("overwrite_output_dir", &RunOptions::overwrite_output_dir,
              {.group = output,
               .commands = kTraining,
               .help = "Allow an output directory that holds a finished run."}));
  add(integer("logging_steps", &RunOptions::logging_steps, 1,
              {.group = output, .commands = kTraining, .help = "Updates between lines of metrics."}));
  add(integer(
      "eval_steps", &RunOptions::eval_steps, 0,
      {.group = output, .commands = kTraining, .help = "Updates between evaluations. 0: only at the end."}));
  add(integer("save_steps", &RunOptions::save_steps, 0,
              {.group = output,
               .commands = kTraining,
               .help = "Updates between checkpoint-N directories. 0: only the final model."}));
  {
    OptionInfo info{.group = output,
                    .value = "N",
                    .commands = kTraining | kGenerate | kDataInspect,
                    .help = "Seed of initial weights, order of data, dropout and sampling."};
    info.name = "seed";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.seed = read_number<uint64_t>(value, 0, UINT64_MAX, "a whole number ≥ 0");
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.run.seed); };
    add(info);
  }
  add(boolean("progress", &RunOptions::progress,
              {.group = output,
               .commands = kTraining | kEval | kDataInspect,
               .help = "Progress bar on a terminal (--no_progress or --progress false: plain lines)."}));
  {
    OptionInfo info = shorthand(
        "no_progress",
        {.group = output, .commands = kTraining | kEval | kDataInspect, .help = "Same as --progress false."},
        [](RunOptions& o, bool on) { o.progress = !on; });
    info.aliases = {"disable_tqdm"};
    add(info);
  }

  add(text("prompt", &RunOptions::prompt,
           {.group = generation, .value = "TEXT", .commands = kGenerate, .help = "Text to continue."}));
  add(boolean("chat", &RunOptions::chat,
              {.group = generation,
               .commands = kGenerate,
               .help = "The prompt is a user's turn of a conversation, written as the model's chat template writes it; prints the answer, up to "
                       "the template's end-of-turn token."}));
  add(text("system", &RunOptions::system,
           {.group = generation, .value = "TEXT", .commands = kGenerate, .help = "With --chat: the system message before the prompt."}));
  {
    OptionInfo info{.group = generation,
                    .value = "IDS",
                    .commands = kGenerate,
                    .help =
                        "Token ids to continue, separated by commas; prints ids. For tokenizers that Snug "
                        "does not read."};
    info.name = "prompt_tokens";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.run.prompt_tokens = read_token_list(value);
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.run.prompt_tokens, ",")); };
    add(info);
  }
  add(integer(
      "max_new_tokens", &RunOptions::max_new_tokens, 1,
      {.group = generation, .commands = kGenerate, .help = "Tokens to add; ends earlier at end of text."}));
  add(real("temperature", &RunOptions::temperature, 0, kLargest,
           {.group = generation, .commands = kGenerate, .help = "0 always takes the likeliest token."}));
  add(integer("top_k", &RunOptions::top_k, 0,
              {.group = generation,
               .commands = kGenerate,
               .help = "Sample from the k likeliest tokens. 0: from all."}));
  add(real("top_p", &RunOptions::top_p, 1e-9, 1,
           {.group = generation,
            .commands = kGenerate,
            .help = "Sample from the likeliest tokens that hold this probability."}));

  for (OptionInfo& info : tokenizer_options()) add(std::move(info));

  {
    OptionInfo info{.group = program,
                    .commands = kPlan | kVersion | kDataInspect,
                    .help = "Print one JSON object.",
                    .saved = false};
    info.name = "json";
    info.set = [](ProgramOptions& o, const std::string& value) { o.json = read_bool(value); };
    info.get = [](const ProgramOptions& o) { return std::string(o.json ? "true" : "false"); };
    add(info);
  }
  {
    OptionInfo info{.group = program,
                    .commands = kPlan,
                    .help = "Show memory against speed from the smallest budget that works to keeping everything, with the "
                            "named policies, as a table and a plot.",
                    .saved = false};
    info.name = "sweep";
    info.set = [](ProgramOptions& o, const std::string& value) { o.sweep = read_bool(value); };
    info.get = [](const ProgramOptions& o) { return std::string(o.sweep ? "true" : "false"); };
    add(info);
  }
  {
    OptionInfo info{.group = program,
                    .value = "FILE",
                    .commands = kPlan,
                    .help = "Draw the sweep into FILE, a standalone SVG.",
                    .saved = false};
    info.name = "sweep_svg";
    info.set = [](ProgramOptions& o, const std::string& value) { o.sweep_svg = value; };
    info.get = [](const ProgramOptions& o) { return o.sweep_svg; };
    add(info);
  }
  {
    OptionInfo info{.group = program,
                    .value = "N",
                    .commands = kDataInspect,
                    .help = "Samples to show, drawn by the seed.",
                    .saved = false};
    info.name = "samples";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.samples = read_number<int64_t>(value, 0, 10000, "a whole number from 0 to 10000");
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.samples); };
    add(info);
  }
  {
    OptionInfo info{.group = program,
                    .value = "POINT",
                    .commands = kInspect,
                    .help =
                        "What to print: forward, a pass (cast, chunk_mlp, differentiate, scale_loss, "
                        "recompute, fuse, accumulate, "
                        "narrow_gradients, update_in_backward, in_place), final, "
                        "schedule, layout, kernels or plan.",
                    .saved = false};
    info.name = "at";
    info.set = [](ProgramOptions& o, const std::string& value) { o.at = value; };
    info.get = [](const ProgramOptions& o) { return o.at; };
    add(info);
  }
  {
    OptionInfo info{.group = program,
                    .value = "NAME",
                    .commands = kInspect,
                    .help = "Which phase: micro_step, update, evaluate, load, save. Default: all.",
                    .saved = false};
    info.name = "phase";
    info.set = [](ProgramOptions& o, const std::string& value) { o.phase = value; };
    info.get = [](const ProgramOptions& o) { return o.phase; };
    add(info);
  }
  return list;
}

std::string canonical(std::string_view written) {
  std::string name(written);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The option that `written` names among those of `command`; throws with the nearest name.
const OptionInfo& find_option(Command command, std::string_view written, std::string_view where) {
  const std::string name = canonical(written);
  std::vector<std::string> names;
  for (const OptionInfo& info : all_options()) {
    const bool matches = info.name == name || std::count(info.aliases.begin(), info.aliases.end(), name) > 0;
    if (matches && (info.commands & command) != 0) return info;
    if (matches)
      refuse("{}: option {} does not belong to this command (snug COMMAND --help lists what does)", where,
             name);
    if ((info.commands & command) == 0) continue;
    names.push_back(info.name);
    names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  }
  for (const char* general : {"config", "help"}) names.emplace_back(general);
  const std::string guess = nearest(name, names);
  refuse("{}: unknown option {}{}", where, written,
         guess.empty() ? "; --help lists all" : fmt::format("; did you mean {}?", guess));
}

// The option whose values `command` takes without its name; null where there is none.
const OptionInfo* positional_option(Command command) {
  for (const OptionInfo& info : all_options())
    if ((info.positional & command) != 0) return &info;
  return nullptr;
}

void apply(const OptionInfo& info, ProgramOptions& options, const std::string& value,
           std::string_view where) {
  try {
    info.set(options, value);
  } catch (const UserError& error) {
    throw UserError(error.code(), fmt::format("{}: {}: {}", where, info.name, error.what()));
  }
}

bool is_bool_word(const std::string& word) {
  static const std::set<std::string> kWords = {"true", "false", "yes", "no", "on", "off", "1", "0"};
  return kWords.contains(lowercase(word));
}

// One option as written: its entry and its value.
struct Given {
  const OptionInfo* info;
  std::string value;
};

}  // namespace

std::span<const OptionInfo> all_options() {
  static const std::vector<OptionInfo> kOptions = make_options();
  return kOptions;
}

ParsedOptions parse_options(Command command, std::span<const std::string> arguments) {
  ParsedOptions parsed;
  std::vector<Given> given;
  std::string config;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      parsed.help = true;
      return parsed;
    }
    if (const OptionInfo* info = positional_option(command); info != nullptr && !argument.starts_with("-")) {
      given.push_back({info, argument});
      continue;
    }
    if (!argument.starts_with("--"))
      refuse("found \"{}\" where an option was expected; options are written --name value or --name=value",
             argument);
    const size_t equals = argument.find('=');
    const std::string written = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const bool is_config = canonical(written) == "config";
    const OptionInfo* info = is_config ? nullptr : &find_option(command, written, "command line");
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (info != nullptr && info->value.empty()) {
      // A switch: an explicit true or false may follow.
      value = i + 1 < arguments.size() && is_bool_word(arguments[i + 1]) ? arguments[++i] : "true";
    } else {
      const bool negative = i + 1 < arguments.size() && arguments[i + 1].size() > 1 &&
                            arguments[i + 1][0] == '-' &&
                            std::isdigit(static_cast<unsigned char>(arguments[i + 1][1]));
      if (i + 1 >= arguments.size() || (arguments[i + 1].starts_with("--") && !negative))
        refuse("command line: {} needs a value", written);
      value = arguments[++i];
    }
    if (is_config)
      config = value;
    else
      given.push_back({info, value});
  }

  // What the command line says replaces what the file says, for repeatable options as a whole.
  std::set<std::string> on_command_line;
  for (const Given& g : given) on_command_line.insert(g.info->name);
  if (!config.empty())
    for (const RunSetting& setting : read_run_config(config)) {
      const std::string where = fmt::format("{}:{}", config, setting.line);
      const OptionInfo& info = find_option(command, setting.key, where);
      if (!on_command_line.contains(info.name)) apply(info, parsed.options, setting.value, where);
    }
  for (const Given& g : given) apply(*g.info, parsed.options, g.value, "command line");
  return parsed;
}

std::vector<std::pair<std::string, std::string>> effective_configuration(Command command,
                                                                         const ProgramOptions& options) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const OptionInfo& info : all_options()) {
    if (!info.saved || (info.commands & command) == 0) continue;
    entries.emplace_back(info.name, info.get(options));
  }
  return entries;
}

std::string options_help(Command command) {
  const ProgramOptions defaults;
  std::string text;
  std::vector<std::string> groups;
  for (const OptionInfo& info : all_options())
    if ((info.commands & command) != 0 && std::count(groups.begin(), groups.end(), info.group) == 0)
      groups.push_back(info.group);
  for (const std::string& group : groups) {
    text += fmt::format("\n{}\n", group);
    for (const OptionInfo& info : all_options()) {
      if (info.group != group || (info.commands & command) == 0) continue;
      const std::string left =
          info.value.empty() ? "--" + info.name : fmt::format("--{} {}", info.name, info.value);
      const std::string value = info.get(defaults);
      text +=
          fmt::format("  {:<36} {}{}\n", left, info.help, value.empty() ? "" : fmt::format(" [{}]", value));
      if (!info.aliases.empty())
        text += fmt::format("  {:<36} also --{}\n", "", fmt::join(info.aliases, ", --"));
    }
  }
  text +=
      "\nGeneral\n  --config FILE.yaml                   Options from a file, by the same names; the command "
      "line wins.\n"
      "  --help                               This text.\n";
  return text;
}

}  // namespace snug
