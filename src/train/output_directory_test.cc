#include "train/output_directory.h"

#include <map>
#include <set>

#include "base/testing.h"
#include "train/model_output.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(directory))
    if (file.is_regular_file())
      files[file.path().lexically_relative(directory).string()] = read_small_file(file.path().string(), kMiB);
  return files;
}

class OutputDirectoryTest : public testing::Test {
 protected:
  OutputDirectoryTest() {
    for (const char* name :
         {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
          "model.safetensors.index.json", "tokenizer.json", "chat_template.jinja", "loss_scale.json",
          "plan.json", "config.yaml", "metrics.jsonl", "memory.json", "checkpoint-5/model.safetensors",
          "LICENSE", "mine/notes"})
      here_.add(std::string("out/") + name, std::string("earlier ") + name);
    options_.output_dir = here_ / "out";
    options_.overwrite_output_dir = true;
    options_.model = here_ / "model";
  }

  // What a run does, from its beginning to memory.json.
  void carry_out(OutputDirectory& output) {
    output.begin();
    for (const char* name : {"plan.json", "config.yaml", "metrics.jsonl"})
      write_file(output.path_of(name), "new");
    AtomicDirectory checkpoint(output.path_of("checkpoint-5"));
    write_file(join_path(checkpoint.path(), "model.safetensors"), "new");
    checkpoint.commit();
    const AtomicDirectory staged(output.path_of(kNewModel));
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
      write_file(join_path(staged.path(), name), "new");
    output.replace_model(staged.path());
    write_file(output.path_of(kFinishedRunFile), "new");
  }

  TemporaryDirectory here_;
  RunOptions options_;
};

TEST_F(OutputDirectoryTest, HoldsTheNewRunAloneAndWhatIsTheUsers) {
  OutputDirectory output(options_);
  carry_out(output);
  output.finish();
  std::map<std::string, std::string> expected;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "plan.json", "config.yaml",
                           "metrics.jsonl", "memory.json", "checkpoint-5/model.safetensors"})
    expected[name] = "new";
  expected["LICENSE"] = "earlier LICENSE";
  expected["mine/notes"] = "earlier mine/notes";
  EXPECT_EQ(files_in(here_ / "out"), expected);
  EXPECT_EQ(list_directory(here_ / "out").size(), 10u) << "no directory is left";
}

// Each system call fails once: afterwards the earlier run is there to the byte, whatever was done until then.
TEST_F(OutputDirectoryTest, WhateverFailsTheEarlierRunIsPutBack) {
  const auto before = files_in(here_ / "out");
  int failures = 0;
  for (const FileOperation operation : {FileOperation::kRename, FileOperation::kMakeDirectory,
                                        FileOperation::kWrite, FileOperation::kSync, FileOperation::kOpen}) {
    for (int64_t nth = 1;; ++nth) {
      SCOPED_TRACE(fmt::format("{} {}", file_operation_name(operation), nth));
      OutputDirectory output(options_);
      bool fired = false;
      try {
        const ScopedFileFault fault({.operation = operation, .nth = nth, .fault = {.error_number = EIO}});
        carry_out(output);
        fired = fault.fired();
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::kIo);
        fired = true;
      }
      if (fired) ++failures;
      output.put_back();
      for (const std::string& name : list_directory(here_ / "out"))
        if (name.starts_with("failed-run-")) remove_all(here_ / ("out/" + name));
      ASSERT_EQ(files_in(here_ / "out"), before);
      if (!fired) break;
    }
  }
  EXPECT_GT(failures, 40);
}

TEST_F(OutputDirectoryTest, NoMomentShowsAConfigurationBesideFilesOfTwoModels) {
  int looks = 0;
  bool is_looking = false;  // what this test reads passes the hook as well
  const FileHook earlier = set_file_hook([&](FileOperation operation, const std::string&) -> FileFault {
    const std::string config = here_ / "out/config.json";
    if (is_looking || operation != FileOperation::kRename || !file_exists(config)) return {};
    is_looking = true;
    const auto files = files_in(here_ / "out");
    std::set<std::string> kinds;
    for (const auto& [name, text] : files)
      if (is_model_file(name) || is_weights_file(name)) kinds.insert(text.substr(0, text.find(' ')));
    EXPECT_EQ(kinds.size(), 1u) << testing::PrintToString(files);
    ++looks;
    is_looking = false;
    return {};
  });
  OutputDirectory output(options_);
  output.begin();
  const AtomicDirectory staged(output.path_of(kNewModel));
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    write_file(join_path(staged.path(), name), "new");
  output.replace_model(staged.path());
  set_file_hook(earlier);
  EXPECT_GE(looks, 4);
}

TEST_F(OutputDirectoryTest, WithoutPermissionWhatIsThereIsRefused) {
  options_.overwrite_output_dir = false;
  const auto refused = [&](std::string_view what) {
    expect_user_error(ExitCode::kUsage, what, [&] { const OutputDirectory output(options_); });
  };
  refused("a finished run (memory.json)");
  remove_all(here_ / "out/memory.json");
  refused("checkpoints of an earlier run (checkpoint-5)");
  remove_all(here_ / "out/checkpoint-5");
  refused("a model (model-00001-of-00002.safetensors)");
  for (const std::string& name : list_directory(here_ / "out"))
    if (is_weights_file(name)) remove_all(here_ / ("out/" + name));
  // The rest is a configuration to train from, or the record of a run that failed at its beginning.
  OutputDirectory output(options_);
  carry_out(output);
  output.finish();
  EXPECT_EQ(files_in(here_ / "out").at("chat_template.jinja"), "earlier chat_template.jinja");
}

TEST(DtypeChanges, TheConfigurationSaysWhatTheFileHolds) {
  const std::vector<TensorSpec> f32 = {{.name = "a", .dtype = FileDType::kF32, .shape = {}}};
  const std::vector<TensorSpec> mixed = {{.name = "a", .dtype = FileDType::kF32, .shape = {}},
                                         {.name = "b", .dtype = FileDType::kBF16, .shape = {}}};
  using Changes = std::vector<std::pair<std::string, Json>>;
  EXPECT_EQ(dtype_changes({{"torch_dtype", "bfloat16"}}, f32), (Changes{{"torch_dtype", "float32"}}));
  EXPECT_EQ(dtype_changes({{"torch_dtype", "float32"}, {"dtype", "float16"}}, f32),
            (Changes{{"dtype", "float32"}}));
  EXPECT_EQ(dtype_changes({{"dtype", "bfloat16"}}, mixed), Changes()) << "one of the types that are there";
  EXPECT_EQ(dtype_changes({{"dtype", "float16"}}, mixed), (Changes{{"dtype", "float32"}}));
  EXPECT_EQ(dtype_changes({{"dtype", nullptr}, {"x", 1}}, f32), Changes()) << "null: whatever the file holds";
}

}  // namespace
}  // namespace snug
