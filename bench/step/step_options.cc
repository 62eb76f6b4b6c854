#include "step_options.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>

#include "base/errors.h"
#include "models/gpt2.h"
#include "models/llama.h"

namespace snug::bench {
namespace {

int64_t parse_count(std::string_view option, std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > 1'000'000)
    throw_user(ExitCode::kUsage, "{} is {}; expected a whole number from {} to 1000000", option, text, least);
  return value;
}

template <typename T>
T parse_choice(std::string_view option, std::string_view text, const std::map<std::string_view, T>& choices) {
  const auto found = choices.find(text);
  if (found != choices.end()) return found->second;
  std::string expected;
  for (const auto& [name, value] : choices) expected += (expected.empty() ? "" : ", ") + std::string(name);
  throw_user(ExitCode::kUsage, "{} is {}; expected one of {}", option, text, expected);
}

}  // namespace

StepOptions parse_step_options(int count, char** arguments) {
  StepOptions options;
  const std::map<std::string_view, std::pair<int64_t*, int64_t>> counts = {
      {"--blocks", {&options.blocks, 0}},   {"--batch", {&options.batch, 1}},
      {"--length", {&options.length, 1}},   {"--accumulation", {&options.accumulation, 1}},
      {"--steps", {&options.steps, 1}},     {"--tries", {&options.tries, 1}},
      {"--threads", {&options.threads, 0}},
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "--json" || option == "--plan_only") {
      (option == "--json" ? options.json : options.plan_only) = true;
      continue;
    }
    const auto counted = counts.find(option);
    const bool known = counted != counts.end() || option == "--model" || option == "--weights" ||
                       option == "--huge_pages" || option == "--precision" || option == "--recompute" ||
                       option == "--memory" || option == "--update_placement" || option == "--max_grad_norm";
    if (!known) throw_user(ExitCode::kUsage, "{} is no option\n{}", option, step_usage());
    if (++i == count) throw_user(ExitCode::kUsage, "{} has no value\n{}", option, step_usage());
    const std::string_view value = arguments[i];
    if (counted != counts.end()) {
      *counted->second.first = parse_count(option, value, counted->second.second);
    } else if (option == "--model") {
      options.model = parse_choice<std::string>(option, value,
                                                {{"gpt2", "gpt2"}, {"smollm2", "smollm2"}, {"tiny", "tiny"}});
    } else if (option == "--weights") {
      options.weights = value;
    } else if (option == "--huge_pages") {
      options.huge_pages = parse_choice<HugePages>(
          option, value, {{"system", HugePages::kSystem}, {"on", HugePages::kOn}, {"off", HugePages::kOff}});
    } else if (option == "--precision") {
      options.precision =
          parse_choice<Precision>(option, value,
                                  {{"fp32", Precision::kF32}, {"bf16", Precision::kBF16}, {"fp16", Precision::kF16}});
    } else if (option == "--memory") {
      options.smallest = value == "smallest";
      if (!options.smallest) options.memory = parse_bytes(value);
    } else if (option == "--update_placement") {
      options.update_placement = parse_choice<UpdatePlacement>(
          option, value, {{"after", UpdatePlacement::kAfter}, {"in_backward", UpdatePlacement::kInBackward}});
    } else if (option == "--max_grad_norm") {
      options.max_grad_norm = static_cast<double>(parse_count(option, value, 0));
    } else {
      options.recompute = parse_recompute_policy(value);
    }
  }
  if (needs_budget(options.recompute))
    throw_user(ExitCode::kUsage, "--recompute is {}; expected a policy without a budget, or --memory instead",
               to_string(options.recompute));
  return options;
}

std::string step_usage() {
  return "usage: snug_bench_step [--model gpt2|smollm2|tiny] [--blocks N] [--batch 4] [--length 1024] "
         "[--precision fp32|bf16|fp16]\n"
         "                       [--recompute none|block|uniform:K|selective:LIST | --memory SIZE|smallest]\n"
         "                       [--accumulation 1] [--update_placement after|in_backward] [--max_grad_norm "
         "1]\n"
         "                       [--steps 3] [--tries 5] [--threads 0]\n"
         "                       [--weights DIR]\n"
         "                       [--huge_pages system|on|off] [--plan_only] [--json]";
}

Model bench_model(const StepOptions& options) {
  if (options.model == "smollm2") {
    LlamaConfig config;
    config.vocab_size = 49152;
    config.positions = 8192;
    config.hidden = 576;
    config.intermediate = 1536;
    config.layers = options.blocks > 0 ? options.blocks : 30;
    config.heads = 9;
    config.kv_heads = 3;
    config.head_dim = 64;
    config.rms_norm_epsilon = 1e-5;
    config.tie_word_embeddings = true;
    config.rope.theta = 100000;
    return llama_model(config);
  }
  Gpt2Config config;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  if (options.model == "tiny") {
    config.vocab_size = 257;
    config.positions = std::max<int64_t>(options.length, 64);
    config.hidden = 64;
    config.layers = 2;
    config.heads = 4;
    config.inner = 256;
  }
  if (options.blocks > 0) config.layers = options.blocks;
  return gpt2_model(config);
}

}  // namespace snug::bench
