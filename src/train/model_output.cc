#include "train/model_output.h"

#include <filesystem>

#include "base/errors.h"
#include "base/file.h"
#include "formats/byte_tokenizer.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

Json dtype_word(FileDType dtype) {
  return dtype == FileDType::kBF16 ? "bfloat16" : dtype == FileDType::kF16 ? "float16" : "float32";
}

}  // namespace

void require_output_directory(const RunOptions& options, const ParameterFiles& files, int64_t saves) {
  const fs::path directory = options.output_dir;
  if (fs::exists(directory / kFinishedRunFile) && !options.overwrite_output_dir)
    throw_user(ExitCode::kUsage, "output_dir {} holds a finished run ({}); choose another or add --overwrite_output_dir",
               options.output_dir, kFinishedRunFile);
  if (fs::exists(directory) && !fs::is_directory(directory))
    throw_user(ExitCode::kIo, "output_dir {} is a file; expected a directory", options.output_dir);
  make_directories(options.output_dir);
  Bytes model_bytes;
  for (const TensorSpec& spec : files.specs())
    model_bytes += Bytes(checked_mul(spec.shape.elements(), file_dtype_bytes(spec.dtype)));
  require_free_space(options.output_dir, saves * model_bytes, saves == 1 ? "the model" : "the model and its checkpoints");
  // Found out now and not after hours: may this user write here?
  const std::string probe = (directory / ".snug-write-probe").string();
  write_file(probe, "");
  fs::remove(probe);
}

void write_model(const Prepared& run, const ParameterFiles& files, Executor& executor, const std::string& directory,
                 const std::optional<LossScale>& loss_scale) {
  std::vector<std::pair<std::string, Json>> changes;
  if (run.options.save_dtype) {
    const Json word = dtype_word(file_dtype(*run.options.save_dtype));
    for (const char* key : {"torch_dtype", "dtype"})
      if (run.directory.config().contains(key)) changes.emplace_back(key, word);
  }
  run.directory.write_config(directory, changes);
  run.directory.copy_side_files(directory);
  const auto has = [&](const char* name) { return fs::exists(fs::path(directory) / name); };
  if (run.options.from_scratch && run.trains_on_bytes && !has("tokenizer.json") && !has("vocab.json"))
    write_byte_tokenizer(directory, run.model.max_positions);
  if (loss_scale) write_file((fs::path(directory) / kLossScaleFile).string(), loss_scale->state().dump(2) + "\n");
  save_weights(files, executor, directory);
}

std::string write_checkpoint(const Prepared& run, const ParameterFiles& files, Executor& executor, int64_t step,
                             const std::optional<LossScale>& loss_scale) {
  std::string path = (fs::path(run.options.output_dir) / fmt::format("checkpoint-{}", step)).string();
  // An older checkpoint of the same name (overwrite_output_dir) goes only when the new one is about to appear.
  AtomicDirectory directory(fs::exists(path) ? path + ".new" : path);
  write_model(run, files, executor, directory.path(), loss_scale);
  directory.commit();
  if (directory.target() != path) {
    fs::remove_all(path);
    fs::rename(directory.target(), path);
  }
  return path;
}

}  // namespace snug
