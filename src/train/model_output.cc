#include "train/model_output.h"

#include <algorithm>

#include "base/errors.h"
#include "base/file.h"
#include "formats/byte_tokenizer.h"

namespace snug {
namespace {

std::string_view dtype_word(FileDType dtype) {
  return dtype == FileDType::kBF16 ? "bfloat16" : dtype == FileDType::kF16 ? "float16" : "float32";
}

std::optional<std::string> write_files(const Prepared& run, const ParameterFiles& files, Executor& executor,
                                       const std::string& directory,
                                       const std::optional<LossScale>& loss_scale) {
  run.directory.write_config(directory, dtype_changes(run.directory.config(), files.specs()));
  run.directory.copy_side_files(directory);
  const auto has = [&](const char* name) { return file_exists(join_path(directory, name)); };
  if (run.options.from_scratch && run.trains_on_bytes && !has("tokenizer.json") && !has("vocab.json"))
    write_byte_tokenizer(directory, run.model.max_positions);
  if (loss_scale) write_file(join_path(directory, kLossScaleFile), loss_scale->state().dump(2) + "\n");
  return save_weights(files, executor, directory);
}

}  // namespace

void require_space_for_models(const std::string& directory, const ParameterFiles& files, int64_t saves) {
  Bytes model_bytes;
  for (const TensorSpec& spec : files.specs())
    model_bytes += Bytes(checked_mul(spec.shape.elements(), file_dtype_bytes(spec.dtype)));
  require_free_space(directory, saves * model_bytes,
                     saves == 1 ? "the model" : "the model and its checkpoints");
}

std::vector<std::pair<std::string, Json>> dtype_changes(const Json& config,
                                                        const std::vector<TensorSpec>& tensors) {
  std::vector<std::string_view> words;  // of the types that are there
  for (const TensorSpec& tensor : tensors)
    if (const auto word = dtype_word(tensor.dtype);
        std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(word);
  std::vector<std::pair<std::string, Json>> changes;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = config.find(key);
    if (words.empty() || found == config.end() || found->is_null()) continue;
    const bool is_true = found->is_string() && std::find(words.begin(), words.end(),
                                                         found->get_ref<const std::string&>()) != words.end();
    if (!is_true) changes.emplace_back(key, words.size() == 1 ? words.front() : "float32");
  }
  return changes;
}

std::optional<std::string> write_checkpoint(const Prepared& run, const ParameterFiles& files,
                                            Executor& executor, int64_t step,
                                            const std::optional<LossScale>& loss_scale,
                                            OutputDirectory& output) {
  AtomicDirectory directory(output.path_of(fmt::format("checkpoint-{}", step)));
  auto not_finite = write_files(run, files, executor, directory.path(), loss_scale);
  if (!not_finite) directory.commit();
  return not_finite;
}

std::optional<std::string> write_model(const Prepared& run, const ParameterFiles& files, Executor& executor,
                                       const std::optional<LossScale>& loss_scale, bool even_not_finite,
                                       OutputDirectory& output) {
  // Never committed: its files move out of it, and it goes.
  const AtomicDirectory staged(output.path_of(kNewModel));
  auto not_finite = write_files(run, files, executor, staged.path(), loss_scale);
  if (!not_finite || even_not_finite) output.replace_model(staged.path());
  return not_finite;
}

}  // namespace snug
