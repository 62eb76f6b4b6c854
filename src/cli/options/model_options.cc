// Options: which model, and how it is written.

#include "cli/options/option_kinds.h"

namespace snug {

std::vector<OptionInfo> model_options() {
  return option_group(
      "Model",
      {path("model", &RunOptions::model,
            {.aliases = {"model_name_or_path", "base_model"},
             .value = "DIR",
             .commands = kModelCommands | kDataInspect,
             .help =
                 "Hugging Face model directory (GPT-2 or Llama family). plan needs its config.json only."}),
       boolean("from_scratch", &RunOptions::from_scratch,
               {.commands = kTraining,
                .help = "Initialise weights from config.json alone, the way the family does."}),
       choice("save_dtype", &RunOptions::save_dtype,
              {{"", std::nullopt},
               {"fp32", DType::kF32},
               {"bf16", DType::kBF16},
               {"fp16", DType::kF16},
               {"float32", DType::kF32},
               {"bfloat16", DType::kBF16},
               {"float16", DType::kF16}},
              {.value = "TYPE",
               .commands = kTraining,
               .help =
                   "Type of every saved tensor: fp32, bf16 or fp16. Default: each keeps its file's type."})});
}

}  // namespace snug
