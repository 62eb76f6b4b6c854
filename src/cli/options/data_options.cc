// Options: the data of a run.

#include "cli/options/option_kinds.h"

namespace snug {

std::vector<OptionInfo> data_options() {
  return option_group(
      "Data",
      {files(
           "train_file", &RunOptions::train_file,
           {.commands = kTraining | kDataInspect,
            .positional = kDataInspect,
            .help = "Data (docs/data.md): text, rows of JSON (text, Alpaca, ShareGPT, messages, prompt and "
                    "completion, segments, tokens), plain, .gz or .zst, or token shards (nanoGPT raw, "
                    "llm.c). A file, a folder, a pattern or DIR/dataset_info.json#NAME; several separated by "
                    "commas, as a list in YAML, or by repeating the option."}),
       files("validation_file", &RunOptions::validation_file,
             {.commands = kTraining | kEval, .help = "The same, for evaluation loss."}),
       real("validation_split", &RunOptions::validation_split, 0, 1e15,
            {.aliases = {"val_set_size", "val_size"},
             .commands = kTraining,
             .help = "What is held out of train_file for evaluation loss: below 1 a share, else that many "
                     "rows, drawn by the seed; of text and shards the end. 0: nothing."}),
       OptionInfo{.name = "dataset_format",
                  .value = "NAME",
                  .commands = kTraining | kEval | kDataInspect,
                  .help = fmt::format(
                      "What the files hold: {}. Default: what their endings and their first row say.",
                      dataset_format_names()),
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        if (value.empty()) {
                          o.run.dataset_format.reset();
                          return;
                        }
                        o.run.dataset_format = parse_dataset_format(value);
                        if (!o.run.dataset_format)
                          refuse("found \"{}\"; expected one of {}", value, dataset_format_names());
                      },
                  .get =
                      [](const ProgramOptions& o) {
                        return o.run.dataset_format ? std::string(dataset_format_name(*o.run.dataset_format))
                                                    : std::string();
                      }},
       text("text_field", &RunOptions::text_field,
            {.aliases = {"dataset_text_field"},
             .value = "NAME",
             .commands = kTraining | kEval | kDataInspect,
             .help = "The field of a json_text row that is its text. Default: text, or content where there "
                     "is none."}),
       path("chat_template", &RunOptions::chat_template,
            {.aliases = {"template", "chat_template_path"},
             .value = "NAME",
             .commands = kTraining | kEval | kDataInspect | kGenerate,
             .help = "What conversations are written with (of generate: with --chat): alpaca, chatml, gemma, "
                     "llama3, mistral, phi3, vicuna, zephyr, or a Jinja file (docs/chat_templates.md). "
                     "Default: the model's own (chat_template.jinja, tokenizer_config.json)."}),
       text("chat_template_kwargs", &RunOptions::chat_template_kwargs,
            {.value = "JSON",
             .commands = kTraining | kEval | kDataInspect | kGenerate,
             .help =
                 "Variables of the chat template, as an object: '{\"enable_thinking\": false}'. A row's own "
                 "chat_template_kwargs go before them."}),
       boolean("train_on_inputs", &RunOptions::train_on_inputs,
               {.aliases = {"train_on_prompt"},
                .commands = kTraining | kEval | kDataInspect,
                .help = "Learn prompts and all turns of a conversation as well, not only completions and the "
                        "assistant's turns."}),
       shorthand("completion_only_loss", "train_on_inputs",
                 {.aliases = {"assistant_only_loss", "mask_prompt"},
                  .commands = kTraining | kEval | kDataInspect,
                  .help = "The opposite of --train_on_inputs: true is what is done anyway."},
                 [](RunOptions& o, bool on) { o.train_on_inputs = !on; }),
       boolean("special_as_text", &RunOptions::special_as_text,
               {.commands = kTraining | kEval | kDataInspect,
                .help = "Special tokens that rows spell out stay text, instead of becoming these tokens."}),
       boolean("skip_bad_rows", &RunOptions::skip_bad_rows,
               {.commands = kTraining | kEval | kDataInspect,
                .help = "Count rows that are broken instead of ending with the first."}),
       choice("packing", &RunOptions::packing,
              {{"auto", Packing::kAuto}, {"true", Packing::kOn}, {"false", Packing::kOff}},
              {.aliases = {"sample_packing"},
               .value = "true|false|auto",
               .bare = "true",
               .commands = kTraining | kEval | kDataInspect,
               .help = "Several samples in one window, which do not see each other. auto: where "
                       "they are short. false: one in each, padded."}),
       path("data_cache", &RunOptions::data_cache,
            {.aliases = {"dataset_prepared_path"},
             .value = "DIR",
             .commands = kTraining | kEval | kDataInspect,
             .help = "Where prepared data are kept for later runs. Default: snug/data in the user's cache "
                     "directory; where that cannot be written, prepared_data in output_dir."}),
       choice(
           "token_dtype", &RunOptions::token_dtype, {{"", ""}, {"uint16", "uint16"}, {"uint32", "uint32"}},
           {.value = "TYPE",
            .commands = kTraining | kEval | kDataInspect,
            .help = "uint16 or uint32 for raw shards. Default: uint16 up to 65,536 tokens of vocabulary."}),
       integer("max_length", &RunOptions::max_length, 0,
               {.aliases = {"max_seq_length", "sequence_len", "cutoff_len", "block_size"},
                .commands = kTraining | kEval | kDataInspect,
                .help = "Tokens in a window. 0: the smaller of 1024 and the model's positions."}),
       boolean("shuffle", &RunOptions::shuffle,
               {.commands = kTraining, .help = "Windows in an order given by the seed."})});
}

}  // namespace snug
