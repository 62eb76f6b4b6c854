// tests/program/family_run.h — tests of one small model of each family, from scratch on the same text: as users plan it and train it
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model_files.h"
#include "program_run.h"

namespace snug {

// The parameter is the family: gpt2 or llama. The model directory is here_ / "model".
class FamilyRun : public testing::TestWithParam<std::string> {
 protected:
  struct Size {
    int64_t blocks = 2, width = 64, inner_widths = 2,
            positions = 64;  // inner_widths: of Llama's MLP, in widths
    int64_t batch = 8, length = 64, steps = 10;
    size_t text_bytes = 3000;
  };
  explicit FamilyRun(const Size& size) : size_(size) {
    write_text(here_ / "verses.txt", sample_text(size.text_bytes));
    make_model_of(size.width);
  }

  // The same model of another width, in place of the first.
  void make_model_of(int64_t width) const {
    make_model(here_ / "model",
               GetParam() == "gpt2"
                   ? gpt2_json({.blocks = size_.blocks, .width = width, .positions = size_.positions})
                   : llama_json({.blocks = size_.blocks,
                                 .width = width,
                                 .inner = size_.inner_widths * width,
                                 .positions = size_.positions}));
  }

  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {name,
                                      "--model",
                                      here_ / "model",
                                      "--from_scratch",
                                      "--train_file",
                                      here_ / "verses.txt",
                                      "--per_device_train_batch_size",
                                      std::to_string(size_.batch),
                                      "--max_length",
                                      std::to_string(size_.length),
                                      "--max_steps",
                                      std::to_string(size_.steps),
                                      "--learning_rate",
                                      "1e-3",
                                      "--costs",
                                      "roofline",
                                      "--logging_steps",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json plan(std::vector<std::string> more) const {
    more.push_back("--json");
    return Json::parse(output_of(command("plan", more)));
  }
  // Output of a run into here_ / out.
  std::string train(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--output_dir", here_ / out});
    return output_of(command("train", more));
  }
  // Of each update of that run.
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> losses;
    for (const Json& row : json_lines(here_ / out + "/metrics.jsonl"))
      if (row.contains("grad_norm")) losses.push_back(row["loss"]);
    return losses;
  }

  Size size_;
  TemporaryDirectory here_;
};

}  // namespace snug
