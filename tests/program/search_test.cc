// What the planner chooses besides recomputation: where the update stands and the micro-batch, and what it says of them.

#include <gmock/gmock.h>

#include <cmath>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Search : public testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
    text_ = here_ / "verses.txt";
    write_text(text_, sample_text(3000));
  }

  ProgramEnd run(std::vector<std::string> words, const std::vector<std::string>& more) const {
    words.insert(words.end(), {"--model", model_, "--from_scratch", "--train_file", text_});
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  Json plan(const std::vector<std::string>& more) const {
    const ProgramEnd end = run({"plan", "--json", "--costs", "roofline"}, more);
    EXPECT_EQ(end.exit_code, kDone) << end.err;
    return Json::parse(end.out);
  }
  std::string config(const std::string& out) const {
    return file_text(std::filesystem::path(here_ / out) / "config.yaml");
  }

  TemporaryDirectory here_;
  std::string text_, model_;
};

// Gradients are a third of the state here, so with the update after the backward they decide.
TEST_F(Search, TheUpdateMovesIntoTheBackwardWhereOnlyThatFits) {
  model_ =
      make_model(here_ / "model",
                 gpt2_json({.blocks = 12, .width = 192, .heads = 4, .positions = 64, .vocabulary = 257}));
  const std::vector<std::string> shape = {"--per_device_train_batch_size", "2", "--max_steps", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return more;
  };
  const Json roomy = plan(with({"--memory", "1GiB"}));
  EXPECT_EQ(roomy["chosen"]["update_placement"], "after");
  EXPECT_EQ(roomy["chosen"]["because"], "everything fits");
  const Json after = plan(with({"--memory", "1GiB", "--update_placement", "after"}));
  EXPECT_EQ(after["chosen"]["planned"], Json::array());
  const int64_t smallest = roomy["smallest_budget_bytes"].get<int64_t>();
  ASSERT_LT(smallest + (8 << 20), after["smallest_budget_bytes"].get<int64_t>());

  const int64_t tight_bytes = smallest + (3 << 20);  // reserves of two processes
  const std::string budget = std::to_string(tight_bytes);
  for (const char* limit : {"1", "0"}) {
    SCOPED_TRACE(limit);
    const std::string out = "tight" + std::string(limit), far = "roomy" + std::string(limit);
    const ProgramEnd tight =
        run({"train", "--output_dir", here_ / out, "--memory", budget, "--max_grad_norm", limit}, shape);
    ASSERT_EQ(tight.exit_code, kDone) << tight.err;
    EXPECT_THAT(
        tight.out,
        AllOf(HasSubstr("update_placement             in_backward (planned)"),
              HasSubstr(std::string("Chosen: update in_backward (") +
                        (*limit == '1' ? "two passes" : "one pass") +
                        "), micro-batch 2 × 1, because with the update after the"),
              HasSubstr(" the run needs at least ")));
    EXPECT_LE(tight.peak_resident_bytes, tight_bytes);
    EXPECT_THAT(config(out), HasSubstr("update_placement: in_backward"));
    EXPECT_EQ(json_file(here_ / out + "/plan.json")["chosen"]["backward_passes"], *limit == '1' ? 2 : 1);
    const ProgramEnd end =
        run({"train", "--output_dir", here_ / far, "--memory", "1GiB", "--max_grad_norm", limit}, shape);
    ASSERT_EQ(end.exit_code, kDone) << end.err;
    EXPECT_THAT(config(far), HasSubstr("update_placement: after"));
    EXPECT_TRUE(all_tensors(here_ / out) == all_tensors(here_ / far)) << "the model depends on the budget";
  }
}

// E10: whatever the budget makes of the micro-batch, an update sees the same windows, and steps are counted the same.
TEST_F(Search, TheGlobalBatchIsTheSameAtEveryBudget) {
  model_ =
      make_model(here_ / "model",
                 llama_json({.blocks = 4, .width = 128, .inner = 344, .positions = 128, .vocabulary = 257}));
  const std::vector<std::string> shape = {"--global_batch_size",
                                          "8",
                                          "--per_device_train_batch_size",
                                          "auto",
                                          "--max_steps",
                                          "3",
                                          "--logging_steps",
                                          "1",
                                          "--learning_rate",
                                          "1e-3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return more;
  };
  const Json roomy = plan(with({"--memory", "1GiB"}));
  EXPECT_EQ(roomy["chosen"]["micro_batch"], 8);
  EXPECT_EQ(roomy["chosen"]["accumulation"], 1);
  const int64_t most = roomy["peak_bytes"].get<int64_t>();
  const Json one =
      plan({"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "8", "--memory", "1GiB"});
  const int64_t least = one["peak_bytes"].get<int64_t>() + (7 << 20);
  ASSERT_LT(least + (8 << 20), most);

  std::set<int64_t> sizes;
  std::vector<Json> first;
  for (int step = 0; step < 3; ++step) {
    const std::string budget = std::to_string(least + (most + (4 << 20) - least) * step / 2),
                      out = "out" + std::to_string(step);
    SCOPED_TRACE(budget);
    const ProgramEnd end = run({"train", "--output_dir", here_ / out, "--memory", budget}, shape);
    ASSERT_EQ(end.exit_code, kDone) << end.err;
    const Json chosen = json_file(here_ / out + "/plan.json")["chosen"];
    const int64_t size = chosen["micro_batch"].get<int64_t>();
    sizes.insert(size);
    EXPECT_EQ(size * chosen["accumulation"].get<int64_t>(), 8);
    EXPECT_THAT(end.out, HasSubstr("= 8 an update"));
    EXPECT_THAT(config(out), AllOf(HasSubstr("global_batch_size: 8"),
                                   HasSubstr("per_device_train_batch_size: " + std::to_string(size)),
                                   HasSubstr("gradient_accumulation_steps: " + std::to_string(8 / size))));
    // By costs that were measured as by those that were not; where it is tight, the reserves of two processes decide.
    if (step > 0) {
      EXPECT_EQ(plan(with({"--memory", budget}))["chosen"]["micro_batch"], size);
    }
    const std::vector<Json> rows = json_lines(here_ / out + "/metrics.jsonl");
    if (first.empty()) first = rows;
    ASSERT_EQ(rows.size(), first.size());
    for (size_t i = 0; i < rows.size(); ++i)
      for (const char* key : {"step", "total_steps", "epoch", "tokens_seen", "supervised_tokens"})
        EXPECT_EQ(rows[i].value(key, Json()), first[i].value(key, Json())) << key;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(rows[i]["loss"].get<double>(), first[i]["loss"].get<double>(), 1e-4)
          << "the same sums in another order";
  }
  EXPECT_GT(sizes.size(), 1u) << "the budget never mattered";

  // The numbers that were written are a configuration.
  const ProgramEnd again =
      expect_done({"plan", "--config", here_ / "out0" + "/config.yaml", "--costs", "roofline"});
}

TEST_F(Search, NumbersThatDoNotAgreeAreRefused) {
  model_ = make_model(here_ / "model", gpt2_json());
  const ProgramEnd end = run({"plan"}, {"--global_batch_size", "10", "--per_device_train_batch_size", "4"});
  EXPECT_EQ(end.exit_code, kUsage);
  EXPECT_THAT(end.err, AllOf(HasSubstr("per_device_train_batch_size 4 does not divide global_batch_size 10"),
                             HasSubstr("2 and 5")));
}

// A18: the same micro-batch twice an update needs more than once, and the plan says of what.
TEST_F(Search, AccumulationChangesThePeakAndThePlanSaysSo) {
  model_ = make_model(here_ / "model",
                      gpt2_json({.blocks = 6, .width = 256, .heads = 4, .positions = 64, .vocabulary = 257}));
  const std::vector<std::string> once = {"--memory", "1GiB", "--per_device_train_batch_size", "4"};
  std::vector<std::string> twice = once;
  twice.insert(twice.end(), {"--gradient_accumulation_steps", "2"});
  const Json one = plan(once), two = plan(twice);
  EXPECT_EQ(one["carried_gradient_bytes"], 0);
  EXPECT_EQ(two["carried_gradient_bytes"].get<int64_t>(), 4 * two["parameters"].get<int64_t>());
  EXPECT_GT(two["arena_bytes"].get<int64_t>(), one["arena_bytes"].get<int64_t>());
  EXPECT_GT(two["smallest_budget_bytes"].get<int64_t>(), one["smallest_budget_bytes"].get<int64_t>());
  const ProgramEnd end = run({"plan", "--costs", "roofline"}, twice);
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("micro-batch 4 × 2"), HasSubstr("2 micro-steps an update: all gradients (")));
}

// A19, A21: what each option would change, term by term, before anyone picks it, all else equal.
TEST_F(Search, EveryOptionIsShownWithWhatItWouldChange) {
  model_ =
      make_model(here_ / "model",
                 gpt2_json({.blocks = 4, .width = 128, .heads = 4, .positions = 128, .vocabulary = 257}));
  const std::vector<std::string> shape = {"--memory",           "1GiB", "--per_device_train_batch_size", "8",
                                          "--update_placement", "after"};
  const Json now = plan(shape);
  std::map<std::string, Json> rows;
  for (const Json& row : now["alternatives"]) rows[row["option"]] = row;
  const int64_t weights = 4 * now["parameters"].get<int64_t>();
  ASSERT_TRUE(rows.contains("--precision bf16"));
  EXPECT_EQ(rows["--precision bf16"]["terms"]["weights"], -weights / 2);
  EXPECT_EQ(rows["--precision bf16"]["terms"]["master_weights"], weights / 2);
  EXPECT_FALSE(rows["--precision bf16"]["terms"].contains("optimizer_state"));
  const std::string halves = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2";
  ASSERT_TRUE(rows.contains(halves));
  EXPECT_LT(rows[halves]["terms"]["activations"].get<int64_t>(), 0);
  ASSERT_TRUE(rows.contains("--update_placement in_backward"));
  EXPECT_LT(rows["--update_placement in_backward"]["terms"]["gradients"].get<int64_t>(), 0);
  // The peak that a row states is the peak of the run with that option.
  for (const auto& [option, row] : rows) {
    std::vector<std::string> words = shape;
    std::istringstream parts(option);
    for (std::string word; parts >> word;) words.push_back(word);
    EXPECT_NEAR(plan(words)["peak_bytes"].get<double>(), row["peak_bytes"].get<double>(), 2.5 * (1 << 20))
        << option;
  }
  const ProgramEnd end = run({"plan", "--costs", "roofline"}, shape);
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("What one more option would change"), HasSubstr("\n  --precision bf16 ")));
}

// A19: an option that does nothing here is seen to do nothing; one that does is seen to the byte.
TEST_F(Search, FormsOfTheOptimizerAreShownWithTheirEffect) {
  const auto row_of = [&](const std::string& option) {
    const Json answer = plan({"--memory", "1GiB", "--per_device_train_batch_size", "2"});
    for (const Json& row : answer["alternatives"])
      if (row["option"] == option) return row;
    ADD_FAILURE() << option;
    return Json();
  };
  // Every tensor is smaller than 4,096 elements, so all moments stay fp32.
  model_ = make_model(here_ / "small",
                      gpt2_json({.blocks = 2, .width = 12, .heads = 2, .positions = 64, .vocabulary = 257}));
  EXPECT_EQ(row_of("--allow 8bit_optimizer")["terms"], Json::object());
  const ProgramEnd end =
      run({"plan", "--costs", "roofline"}, {"--memory", "1GiB", "--per_device_train_batch_size", "2"});
  EXPECT_THAT(end.out, HasSubstr("no term changes"));
  model_ = make_model(here_ / "large",
                      gpt2_json({.blocks = 2, .width = 128, .heads = 2, .positions = 64, .vocabulary = 257}));
  const Json row = row_of("--allow bf16_optimizer");
  const double parameters =
      plan({"--memory", "1GiB", "--per_device_train_batch_size", "2"})["parameters"].get<double>();
  EXPECT_NEAR(row["terms"]["optimizer_state"].get<double>(), -4 * parameters, 0.2 * parameters)
      << "norms and biases stay";
}

// What is allowed is taken where the exact run does not fit, and said; a refusal names the words that would help.
TEST_F(Search, FormsThatAreAllowedAreTakenWhereTheyAreNeeded) {
  model_ =
      make_model(here_ / "model",
                 gpt2_json({.blocks = 12, .width = 192, .heads = 4, .positions = 64, .vocabulary = 257}));
  // Without clipping, and one word allowed, planning itself takes less than the run.
  const std::vector<std::string> shape = {
      "--per_device_train_batch_size", "2", "--max_steps", "2", "--max_grad_norm", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return more;
  };
  const int64_t exact = plan(with({"--memory", "1GiB"}))["smallest_budget_bytes"].get<int64_t>();
  const std::string budget = std::to_string(exact - (12 << 20));
  const ProgramEnd refused = run({"plan", "--costs", "roofline", "--memory", budget}, shape);
  EXPECT_EQ(refused.exit_code, kDoesNotFit);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("These would make it fit"), HasSubstr("  --allow bf16_optimizer "),
                                 HasSubstr("  --allow 8bit_optimizer "), HasSubstr(" s/update")));
  const ProgramEnd trained = run({"train", "--costs", "roofline", "--output_dir", here_ / "out", "--memory",
                                  budget, "--allow", "8bit_optimizer"},
                                 shape);
  ASSERT_EQ(trained.exit_code, kDone) << trained.err;
  EXPECT_LE(trained.peak_resident_bytes, exact - (12 << 20));
  const Json chosen = json_file(here_ / "out/plan.json")["chosen"];
  EXPECT_FALSE(chosen["forms"].empty());
  EXPECT_THAT(config("out"), AllOf(HasSubstr("optim: adamw_"), Not(HasSubstr("optim: adamw_torch"))));
  EXPECT_THAT(trained.out, AllOf(HasSubstr("(planned)"), HasSubstr("_optimizer")));
}

}  // namespace
}  // namespace snug
