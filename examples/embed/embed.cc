// Plans and trains a small GPT through the library: embed TEXT.txt WORK_DIRECTORY
//
// Shows the three calls that matter: prepare (plans, proves, touches nothing), require_plan_fits, train.

#include <snug/base/errors.h>
#include <snug/base/library_pool.h>  // once in a program: holds oneDNN to the planned reserve
#include <snug/train/trainer.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace {

// A Hugging Face configuration is all that a run from scratch needs.
constexpr const char* kConfig = R"({
  "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 64, "n_embd": 64,
  "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
  "bos_token_id": 256, "eos_token_id": 256
})";

class Printer : public snug::RunObserver {
 public:
  void step(const snug::StepMetrics& step, double, bool logged) override {
    if (logged) std::printf("update %lld: loss %.4f\n", static_cast<long long>(step.step), step.loss);
  }
  void note(std::string_view text) override { std::printf("%.*s\n", static_cast<int>(text.size()), text.data()); }
};

}  // namespace

int main(int count, char** values) {
  if (count != 3) {
    std::fprintf(stderr, "usage: embed TEXT.txt WORK_DIRECTORY\n");
    return 2;
  }
  try {
    const std::filesystem::path work = values[2];
    std::filesystem::create_directories(work / "model");
    std::ofstream(work / "model" / "config.json") << kConfig;

    snug::RunOptions options;
    options.model = (work / "model").string();
    options.from_scratch = true;
    options.train_file = {values[1]};
    options.output_dir = (work / "output").string();
    options.overwrite_output_dir = true;
    options.memory = snug::parse_bytes("256MiB");
    options.per_device_train_batch_size = 4;
    options.max_steps = 20;
    options.learning_rate = 1e-3;

    snug::Prepared run = snug::prepare(options, snug::RunKind::kTrain);
    std::printf("%s", snug::plan_table(run.summary).c_str());
    snug::require_plan_fits(run);

    Printer printer;
    const snug::TrainResult result = snug::train(run, {}, &printer);
    std::printf("loss %.4f after %lld updates; memory planned %s, measured %s\n", result.last_loss.value(),
                static_cast<long long>(result.updates),
                snug::format_bytes(result.planned_process_peak).c_str(),
                snug::format_bytes(result.measured_process_peak).c_str());
    return 0;
  } catch (const snug::UserError& error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
