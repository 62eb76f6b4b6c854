// cli/commands.h — one function a command; each returns the program's exit code and throws what it cannot do
#pragma once

#include "cli/options/options.h"

namespace snug {

int plan_command(const ProgramOptions& options);
int train_command(const ProgramOptions& options);
int eval_command(const ProgramOptions& options);
int generate_command(const ProgramOptions& options);
int data_inspect_command(const ProgramOptions& options);
int inspect_command(const ProgramOptions& options);
int tokenizer_encode_command(const ProgramOptions& options);
int tokenizer_decode_command(const ProgramOptions& options);
int tokenizer_train_command(const ProgramOptions& options);
int version_command(const ProgramOptions& options);

}  // namespace snug
