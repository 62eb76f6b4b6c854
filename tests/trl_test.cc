// A step on rows of data is TRL's step on them, packed and padded: the targets, the loss, the norm of the gradient.
// tests/fixtures/dataset/trl.json (tools/make_dataset_fixtures.py) holds a batch of its SFTTrainer for models of tests/fixtures. The id that
// ends a text is also the one it pads with; two rows are longer than the batch, and of one of these nothing that is learned is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/testing.h"
#include "data/sample_windows.h"
#include "fixture.h"

namespace snug {
namespace {

using Documents = std::vector<std::vector<int32_t>>;  // the targets of each, −100 where nothing is learned

// TRL's labels are not shifted. Documents begin at position 0, or with the row; padding is behind.
Documents documents_of(const Json& step) {
  Documents documents;
  for (size_t row = 0; row < step.at("labels").size(); ++row) {
    const auto labels = step.at("labels").at(row).get<std::vector<int32_t>>();
    for (size_t i = 0; i < labels.size(); ++i)
      if (i == 0 || (step.at("packing").get<bool>() && step.at("position_ids").at(row).at(i) == 0))
        documents.emplace_back();
      else
        documents.back().push_back(labels[i]);
  }
  return documents;
}

Documents documents_of(const Batch& batch) {
  Documents documents;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.positions[i] == 0) documents.emplace_back();
    documents.back().push_back(batch.targets[i]);
  }
  return documents;
}

// What is learned of each, in one order. Padding and documents without a target are nothing.
Documents learned(Documents documents) {
  for (std::vector<int32_t>& targets : documents)
    while (!targets.empty() && targets.back() == kIgnoredTarget) targets.pop_back();
  std::erase_if(documents, [](const std::vector<int32_t>& targets) { return targets.empty(); });
  std::sort(documents.begin(), documents.end());
  return documents;
}

TEST(Trl, AStepIsItsStep) {
  const std::string path = std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/dataset/trl.json";
  const Json file = parse_json(read_small_file(path, Bytes(1 << 20)), path);
  const Json& batches = file.at("batches");
  // TRL's length is in ids, of which the last one is read by none.
  const int64_t length = batches.at("length").get<int64_t>() - 1;
  ASSERT_EQ(batches.at("steps").size(), 4U);
  for (const Json& step : batches.at("steps")) {
    const auto name = step.at("model").get<std::string>();
    const bool packing = step.at("packing").get<bool>();
    SCOPED_TRACE(name + (packing ? " packed" : " padded"));
    const Fixture fixture(name);
    TemporaryDirectory directory;
    const std::string samples_path = directory / "samples";
    SampleWriter writer(samples_path, {1, 2}, fixture.model().vocabulary);
    for (const Json& row : batches.at("rows")) {
      std::vector<bool> supervised;
      for (const Json& label : row.at("labels")) supervised.push_back(label != kIgnoredTarget);
      writer.add(row.at("input_ids").get<std::vector<int32_t>>(), supervised, false);
    }
    writer.finish();
    std::string why;
    SampleWindows windows(SampleFile::open(samples_path, {1, 2}, fixture.model().vocabulary, why), {}, length,
                          packing ? Packing::kOn : Packing::kOff, directory.path(), "rows");
    Batch batch = make_batch(windows.count(), length);
    for (int64_t i = 0; i < windows.count(); ++i) windows.fill_row(batch, i, i);

    EXPECT_EQ(learned(documents_of(batch)), learned(documents_of(step)));
    // Of GPT-2 transformers counts the first label of a padded row, too, though it is no target.
    int64_t first_labels = 0;
    if (name == "gpt2_tied" && !packing)
      for (const Json& labels : step.at("labels")) first_labels += labels.at(0) != kIgnoredTarget ? 1 : 0;
    const auto divided_by = step.at("divided_by").get<int64_t>();
    EXPECT_EQ(batch.supervised_tokens, divided_by - first_labels);
    EXPECT_EQ(first_labels > 0, name == "gpt2_tied" && !packing);

    CompileOptions options;
    options.batch = batch.windows;
    options.length = length;
    TrainingRun run(fixture.model(), fixture.weights(), {.compile = options});
    const float loss = run.micro_step(batch, 1.0f / static_cast<float>(divided_by), 0);
    const auto expected_loss = step.at("loss").get<double>(),
               expected_norm = step.at("grad_norm").get<double>();
    EXPECT_LE(std::fabs(loss - expected_loss) / expected_loss, 2e-6) << loss;
    double squares = 0;
    for (const ParameterSpec& parameter : fixture.model().parameters)
      for (const float value : run.gradient(parameter.name)) squares += static_cast<double>(value) * value;
    EXPECT_LE(std::fabs(std::sqrt(squares) - expected_norm) / expected_norm, 1e-5) << std::sqrt(squares);
  }
}

}  // namespace
}  // namespace snug
