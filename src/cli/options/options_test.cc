#include "cli/options/options.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/testing.h"
#include "cli/options/foreign_options.h"
#include "cli/options/path_values.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParsedOptions parse(const std::vector<std::string>& arguments, Command command = kTrain) {
  return parse_options(command, arguments);
}

std::string message_of(const std::vector<std::string>& arguments, Command command = kTrain) {
  try {
    parse(arguments, command);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "nothing was thrown";
}

class OptionsFile : public testing::Test {
 protected:
  // Options of a file with this text, and of `arguments` beside it.
  ParsedOptions of(const std::string& yaml, std::vector<std::string> arguments = {}) {
    return parse(with(yaml, std::move(arguments)));
  }
  std::string message(const std::string& yaml, std::vector<std::string> arguments = {}) {
    std::string text = message_of(with(yaml, std::move(arguments)));
    for (size_t at; (at = text.find(path_)) != std::string::npos;) text.replace(at, path_.size(), "run.yaml");
    return text;
  }

 private:
  std::vector<std::string> with(const std::string& yaml, std::vector<std::string> arguments) {
    path_ = here_.add("run.yaml", yaml);
    arguments.insert(arguments.end(), {"--config", path_});
    return arguments;
  }

  TemporaryDirectory here_;
  std::string path_;
};

TEST_F(OptionsFile, ContradictionsOfAFileAreRefusedWithBothPlaces) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"bf16: true\nfp16: true\n", "bf16 true (run.yaml:1) and fp16 true (run.yaml:2) contradict"},
           {"seed: 1\nprecision: fp32\nbf16: yes\n", "precision fp32 (run.yaml:2) and bf16 yes (run.yaml:3)"},
           {"precision: bf16\nbf16: false\n", "precision bf16 (run.yaml:1) and bf16 false (run.yaml:2)"},
           {"max_length: 8\nsequence_len: 9\n", "max_length 8 (run.yaml:1) and sequence_len 9 (run.yaml:2)"},
           {"max_steps: 8\nmax-steps: 9\n", "max_steps 8 (run.yaml:1) and max_steps 9 (run.yaml:2)"},
           {"train_on_inputs: true\nassistant_only_loss: true\n",
            "train_on_inputs true (run.yaml:1) and assistant_only_loss true (run.yaml:2)"},
           {"completion_only_loss: true\nassistant_only_loss: false\n",
            "completion_only_loss true (run.yaml:1)"},
           {"gradient_checkpointing: true\nrecompute: optimal\n", "gradient_checkpointing true (run.yaml:1)"},
           {"gradient_checkpointing: false\nrecompute: block\n", "gradient_checkpointing false (run.yaml:1)"},
           {"progress: true\ndisable_tqdm: true\n",
            "progress true (run.yaml:1) and disable_tqdm true (run.yaml:2)"},
           {"packing: true\nsample_packing: false\n", "packing true (run.yaml:1) and sample_packing false"},
           {"save_strategy: steps\nsave_steps: 0\n", "save_strategy steps (run.yaml:1) without save_steps"},
           {"dataset_format: alpaca\ntext_field: body\n",
            "expected text_field with dataset_format json_text"},
           {"dataset_format: text\ntoken_dtype: uint16\n",
            "expected token_dtype with dataset_format shards"}})
    EXPECT_THAT(message(c.yaml), HasSubstr(c.message)) << c.yaml;
}

TEST(Options, ContradictionsOfTheCommandLineAreRefused) {
  EXPECT_THAT(message_of({"--bf16", "--fp16"}),
              AllOf(HasSubstr("bf16 true (command line) and fp16 true"), HasSubstr("contradict")));
  EXPECT_THAT(message_of({"--batch_size", "4", "--micro-batch-size=5"}),
              HasSubstr("batch_size 4 (command line) and micro_batch_size 5"));
}

TEST_F(OptionsFile, OneFileOfSettingsAtATime) {
  EXPECT_THAT(message("seed: 1\n", {"--config", "other.yaml"}),
              HasSubstr("config other.yaml and config run.yaml are both given; expected one file"));
}

TEST_F(OptionsFile, WhatAgreesIsNoContradiction) {
  EXPECT_EQ(of("bf16: true\nfp16: false\n").options.run.precision, Precision::kBF16);
  EXPECT_EQ(of("fp16: false\nbf16: true\nprecision: bf16\n").options.run.precision, Precision::kBF16);
  EXPECT_FALSE(of("train_on_inputs: false\nassistant_only_loss: true\nmask_prompt: yes\n")
                   .options.run.train_on_inputs);
  EXPECT_EQ(of("max_length: 8\ncutoff_len: 8\n").options.run.max_length, 8);
  EXPECT_EQ(of("gradient_checkpointing: true\nrecompute: block\n").options.run.recompute.kind,
            RecomputePolicy::Kind::kBlock);
  EXPECT_THAT(of("warmup_steps: 0\nwarmup_ratio: 0.0\n").notes, IsEmpty());
}

TEST_F(OptionsFile, WhereHuggingFaceSaysWhichGoesFirstThatOneDoesAndANoteSaysSo) {
  for (const char* yaml : {"warmup_steps: 3\nwarmup_ratio: 0.0\n", "warmup_ratio: 0.25\nwarmup_steps: 3\n"}) {
    const ParsedOptions parsed = of(yaml);
    EXPECT_EQ(parsed.options.run.warmup_steps, 3) << yaml;
    EXPECT_THAT(parsed.notes,
                ElementsAre(AllOf(HasSubstr("warmup_steps 3 ("), HasSubstr("goes before warmup_ratio 0."))));
  }
  EXPECT_EQ(of("warmup_steps: 0\nwarmup_ratio: 0.25\n").options.run.warmup_steps, 0.25);
  const ParsedOptions saving = of("save_strategy: \"no\"\nsave_steps: 50\n");
  EXPECT_EQ(saving.options.run.save_steps, 0);
  EXPECT_THAT(saving.notes, ElementsAre(HasSubstr("goes before save_steps 50")));
  EXPECT_EQ(of("save_steps: 50\nsave_strategy: steps\n").options.run.save_steps, 50);
  EXPECT_THAT(of("max_steps: 5\nnum_train_epochs: 2\n").notes, ElementsAre(HasSubstr("max_steps 5")));
  EXPECT_THAT(of("max_steps: -1\nnum_train_epochs: 2\n").notes, IsEmpty());
  EXPECT_THAT(of("lr_scheduler_type: constant\nwarmup_steps: 5\n").notes,
              ElementsAre(HasSubstr("has no warm-up")));
  const ParsedOptions twice = parse({"--max_steps", "3", "--max-steps=5"});
  EXPECT_EQ(twice.options.run.max_steps, 5);
  EXPECT_THAT(twice.notes,
              ElementsAre(HasSubstr("max_steps is given twice on the command line: 5 goes before 3")));
}

TEST_F(OptionsFile, TheCommandLineReplacesTheFileUnderAnyName) {
  EXPECT_EQ(of("warmup_steps: 3\n", {"--warmup_ratio", "0.5"}).options.run.warmup_steps, 0.5);
  EXPECT_EQ(of("warmup_ratio: 0.5\n", {"--warmup_steps", "0"}).options.run.warmup_steps, 0);
  EXPECT_EQ(of("bf16: true\n", {"--precision", "fp32"}).options.run.precision, Precision::kF32);
  EXPECT_EQ(of("precision: fp16\n", {"--bf16"}).options.run.precision, Precision::kBF16);
  EXPECT_EQ(of("bf16: true\n", {"--fp16", "false"}).options.run.precision, Precision::kBF16);
  EXPECT_EQ(of("sequence_len: 8\n", {"--block_size", "16"}).options.run.max_length, 16);
  EXPECT_TRUE(of("mask_prompt: true\n", {"--train_on_inputs"}).options.run.train_on_inputs);
  EXPECT_EQ(of("save_strategy: no\n", {"--save_steps", "4"}).options.run.save_steps, 4);
  EXPECT_THAT(of("train_file: [a, b]\n", {"--train_file", "c"}).options.run.train_file, ElementsAre("c"));
}

TEST_F(OptionsFile, EverythingThatCannotBeUsedIsToldAtOnce) {
  const std::string text =
      message("learning_rat: 1\nsave_total_limit: 2\nseed: x\nmax_grad_norm:\noptim: [a]\n",
              {"--nonsense_here", "3", "--report_to", "wandb"});
  for (const char* part : {"7 options cannot be used", "command line: unknown option nonsense_here",
                           "command line: report_to wandb: trackers are not there yet",
                           "run.yaml:1: unknown option learning_rat; did you mean learning_rate?",
                           "run.yaml:2: save_total_limit 2: not there yet: every checkpoint-N is kept",
                           "run.yaml:3: seed: found \"x\"", "run.yaml:4: max_grad_norm has no value",
                           "run.yaml:5: optim has a list; expected one value"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(message("learning_rat: 1\n"),
            "run.yaml:1: unknown option learning_rat; did you mean learning_rate?");
}

TEST_F(OptionsFile, WhatMeansNothingHereIsIgnoredWithTheReason) {
  const ParsedOptions parsed =
      of("do_train: true\ndataloader_num_workers: 4\ndataloader_pin_memory: false\nreport_to: "
         "[none]\nsave_total_limit:\n"
         "label_smoothing_factor: 0.0\ngradient_checkpointing_kwargs: {use_reentrant: "
         "false}\nload_best_model_at_end: No\nhub_token: secret\n",
         {"--ddp_timeout", "1800", "--no_remove_unused_columns", "--tf32", "--max_steps", "7"});
  EXPECT_EQ(parsed.options.run.max_steps, 7);
  std::string all;
  for (const std::string& note : parsed.notes) all += note + "\n";
  for (const char* part :
       {"ignored because snug train trains: do_train (", "dataloader_num_workers (", "run.yaml:3)",
        "ignored because no tracker is asked for: report_to",
        "ignored because no value was given: save_total_limit", "ddp_timeout (command line)",
        "remove_unused_columns (command line)", "tf32 (command line)"})
    EXPECT_THAT(all, HasSubstr(part));
  EXPECT_THAT(all, Not(HasSubstr("secret")));
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 11) << all;
}

TEST_F(OptionsFile, ASwitchWithoutAValueIsNotGiven) {
  const ParsedOptions parsed = of("bf16: true\nfp16:\ngradient_checkpointing: ~\n");
  EXPECT_EQ(parsed.options.run.precision, Precision::kBF16);
  EXPECT_EQ(parsed.options.run.recompute.kind, RecomputePolicy::Kind::kOptimal);
  EXPECT_THAT(parsed.notes, ElementsAre(AllOf(HasSubstr("ignored because no value was given: fp16 ("),
                                              HasSubstr("gradient_checkpointing ("))));
}

TEST_F(OptionsFile, WhatPeopleRelyOnIsRefused) {
  for (const char* yaml :
       {"save_total_limit: 2", "load_best_model_at_end: true", "resume_from_checkpoint: true",
        "resume_from_checkpoint: out", "report_to: wandb", "report_to: [tensorboard]", "report_to: all",
        "push_to_hub: true", "wandb_project: p", "neftune_noise_alpha: 5", "label_smoothing_factor: 0.1",
        "lora_r: 8", "adapter: qlora", "deepspeed: ds.json", "group_by_length: true",
        "dataloader_drop_last: true", "early_stopping_patience: 3", "data_seed: 7",

        "save_only_model: false"})
    EXPECT_THAT(message(yaml), AllOf(HasSubstr("run.yaml:1: "), HasSubstr("not there yet"))) << yaml;
}

TEST(Options, OtherTrainersNamesAreNoneOfSnugsAndStandOnce) {
  std::set<std::string_view> names;
  EXPECT_GT(foreign_options().size(), 300u);
  for (const ForeignOption& option : foreign_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.because.empty()) << option.name;
    EXPECT_EQ(option.instead.empty(), option.harmless == "*") << option.name;
    for (const OptionInfo& info : all_options())
      if ((info.commands & kTrain) != 0) {
        EXPECT_NE(info.name, option.name);
        EXPECT_EQ(std::count(info.aliases.begin(), info.aliases.end(), option.name), 0) << option.name;
      }
  }
}

// The fields of TrainingArguments (transformers 5) and SFTConfig (TRL 1): each is an option, or is known to mean nothing here.
TEST(Options, KnowsTheNamesOfTrainingArgumentsAndSftConfig) {
  for (const char* name : {"output_dir",
                           "per_device_train_batch_size",
                           "num_train_epochs",
                           "max_steps",
                           "learning_rate",
                           "lr_scheduler_type",
                           "lr_scheduler_kwargs",
                           "warmup_steps",
                           "optim",
                           "optim_args",
                           "weight_decay",
                           "adam_beta1",
                           "adam_beta2",
                           "adam_epsilon",
                           "optim_target_modules",
                           "gradient_accumulation_steps",
                           "average_tokens_across_devices",
                           "max_grad_norm",
                           "label_smoothing_factor",
                           "bf16",
                           "fp16",
                           "bf16_full_eval",
                           "fp16_full_eval",
                           "tf32",
                           "activation_checkpointing",
                           "activation_checkpointing_kwargs",
                           "gradient_checkpointing",
                           "gradient_checkpointing_kwargs",
                           "torch_compile",
                           "torch_compile_backend",
                           "torch_compile_mode",
                           "use_liger_kernel",
                           "liger_kernel_config",
                           "use_cache",
                           "neftune_noise_alpha",
                           "torch_empty_cache_steps",
                           "auto_find_batch_size",
                           "logging_strategy",
                           "logging_steps",
                           "logging_first_step",
                           "log_on_each_node",
                           "logging_nan_inf_filter",
                           "include_num_input_tokens_seen",
                           "log_level",
                           "log_level_replica",
                           "disable_tqdm",
                           "report_to",
                           "run_name",
                           "project",
                           "trackio_space_id",
                           "trackio_bucket_id",
                           "trackio_static_space_id",
                           "eval_strategy",
                           "eval_steps",
                           "eval_delay",
                           "per_device_eval_batch_size",
                           "prediction_loss_only",
                           "eval_on_start",
                           "eval_do_concat_batches",
                           "eval_use_gather_object",
                           "eval_accumulation_steps",
                           "include_for_metrics",
                           "batch_eval_metrics",
                           "save_only_model",
                           "save_strategy",
                           "save_steps",
                           "save_on_each_node",
                           "save_total_limit",
                           "enable_jit_checkpoint",
                           "push_to_hub",
                           "hub_token",
                           "hub_private_repo",
                           "hub_model_id",
                           "hub_strategy",
                           "hub_always_push",
                           "hub_revision",
                           "load_best_model_at_end",
                           "metric_for_best_model",
                           "greater_is_better",
                           "ignore_data_skip",
                           "restore_callback_states_from_checkpoint",
                           "full_determinism",
                           "seed",
                           "data_seed",
                           "use_cpu",
                           "accelerator_config",
                           "parallelism_config",
                           "dataloader_drop_last",
                           "dataloader_num_workers",
                           "dataloader_pin_memory",
                           "dataloader_persistent_workers",
                           "dataloader_prefetch_factor",
                           "dataloader_multiprocessing_context",
                           "dataloader_in_order",
                           "remove_unused_columns",
                           "label_names",
                           "train_sampling_strategy",
                           "length_column_name",
                           "ddp_find_unused_parameters",
                           "ddp_bucket_cap_mb",
                           "ddp_broadcast_buffers",
                           "ddp_static_graph",
                           "ddp_backend",
                           "ddp_timeout",
                           "fsdp",
                           "fsdp_config",
                           "deepspeed",
                           "debug",
                           "skip_memory_metrics",
                           "do_train",
                           "do_eval",
                           "do_predict",
                           "resume_from_checkpoint",
                           "local_rank",
                           "model_init_kwargs",
                           "trust_remote_code",
                           "router_aux_loss_coef",
                           "chat_template_path",
                           "dataset_text_field",
                           "dataset_kwargs",
                           "dataset_num_proc",
                           "eos_token",
                           "max_length",
                           "truncation_mode",
                           "shuffle_dataset",
                           "packing",
                           "packing_strategy",
                           "padding_free",
                           "pad_to_multiple_of",
                           "eval_packing",
                           "completion_only_loss",
                           "assistant_only_loss",
                           "loss_type",
                           "activation_offloading",
                           "pad_token"}) {
    const bool is_own = std::any_of(all_options().begin(), all_options().end(), [&](const OptionInfo& info) {
      return (info.commands & kTrain) != 0 &&
             (info.name == name || std::count(info.aliases.begin(), info.aliases.end(), name) > 0);
    });
    EXPECT_TRUE(is_own || find_foreign_option(name) != nullptr) << name;
  }
}

TEST_F(OptionsFile, BooleansAreTheSameWordsEverywhere) {
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "on", "1", "y", "T"}) {
    const RunOptions run = of(fmt::format("packing: {}\nbf16: {}\ntrain_on_inputs: {}\ndisable_tqdm: {}\n",
                                          word, word, word, word))
                               .options.run;
    EXPECT_EQ(run.packing, Packing::kOn) << word;
    EXPECT_EQ(run.precision, Precision::kBF16) << word;
    EXPECT_TRUE(run.train_on_inputs && !run.progress) << word;
  }
  for (const char* word : {"false", "False", "FALSE", "no", "NO", "off", "0", "n", "F"}) {
    const RunOptions run = of(fmt::format("sample_packing: {}\nshuffle: {}\n", word, word)).options.run;
    EXPECT_EQ(run.packing, Packing::kOff) << word;
    EXPECT_FALSE(run.shuffle) << word;
  }
  EXPECT_EQ(of("packing: Auto\n").options.run.packing, Packing::kAuto);
  EXPECT_EQ(parse({"--packing", "--max_steps", "3"}).options.run.packing, Packing::kOn);
  EXPECT_EQ(parse({"--packing", "False"}).options.run.packing, Packing::kOff);
  EXPECT_THAT(message_of({"--packing", "perhaps"}),
              HasSubstr("found \"perhaps\"; expected one of auto, true, false"));
}

TEST_F(OptionsFile, HomeIsExpandedWhereTheShellDoesNot) {
  ASSERT_EQ(::setenv("HOME", "/home/of/me", 1), 0);
  const RunOptions run =
      of("model: ~/m\noutput_dir: \"~\"\ntrain_file: a.txt, ~/b.txt\nvalidation_file:\n  - ~/v.txt\n",
         {"--data_cache=~/cache"})
          .options.run;
  EXPECT_EQ(run.model, "/home/of/me/m");
  EXPECT_EQ(run.output_dir, "/home/of/me");
  EXPECT_EQ(run.data_cache, "/home/of/me/cache");
  EXPECT_THAT(run.train_file, ElementsAre("a.txt", "/home/of/me/b.txt"));
  EXPECT_THAT(run.validation_file, ElementsAre("/home/of/me/v.txt"));
  EXPECT_THAT(message("output_dir: ~\n"), HasSubstr("output_dir has no value"));
  EXPECT_EQ(read_path("~root/x"), "/root/x");
  EXPECT_EQ(read_path("~nobody-of-this-name/x"), "~nobody-of-this-name/x");
  EXPECT_EQ(read_path("a~b"), "a~b");
}

TEST(Paths, ACommaOfAFileThatExistsDoesNotDivideIt) {
  const TemporaryDirectory here;
  const std::string both = here.add("a,b.txt", "x"), plain = here.add("c.txt", "x"),
                    brackets = here.add("d[1].txt", "x"), blank = here.add(" e", "x");
  EXPECT_THAT(read_paths(both), ElementsAre(both));
  EXPECT_THAT(read_paths(plain + "," + both + " , " + brackets), ElementsAre(plain, both, brackets));
  EXPECT_THAT(read_paths(" none.txt ,other.txt"), ElementsAre("none.txt", "other.txt"));
  EXPECT_EQ(read_path("  " + plain + "\t"), plain);
  EXPECT_EQ(read_path(blank), blank);
  for (const char* empty : {"", "a,,b", "a, ,b", ","})
    expect_user_error(ExitCode::kUsage, "expected file names separated by commas",
                      [&] { read_paths(empty); });
}

TEST_F(OptionsFile, ListsAreForOptionsThatTakeSeveral) {
  EXPECT_THAT(of("train_file: [a.txt, b.txt]\nallow:\n  - bf16_gradients\n").options.run.train_file,
              ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(message("model: [a]\n"), HasSubstr("run.yaml:1: model has a list; expected one value"));
  EXPECT_THAT(message("train_file: {a: b}\n"),
              HasSubstr("train_file has a nested map or list; expected one value or a list"));
}

// Every option's effective value is read back as the same, so that a saved config.yaml contradicts nothing.
TEST_F(OptionsFile, TheEffectiveConfigurationIsReadBack) {
  const ProgramOptions options = parse({"--bf16", "--warmup_ratio", "0.1", "--gradient_checkpointing",
                                        "--train_file", "a,b", "--packing", "no", "--batch_size=3"})
                                     .options;
  std::string yaml;
  for (const auto& [name, value] : effective_configuration(kTrain, options))
    if (!value.empty()) yaml += fmt::format("{}: \"{}\"\n", name, value);
  const ParsedOptions again = of(yaml);
  EXPECT_EQ(effective_configuration(kTrain, again.options), effective_configuration(kTrain, options));
  EXPECT_THAT(again.notes, IsEmpty());
}

}  // namespace
}  // namespace snug
