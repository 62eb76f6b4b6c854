// Runs every case of passes/test/*.ir: text in, passes, text out, checked by the comments of the same file.
//
//   # CASE name                 begins a case; what follows up to the next CASE is the graph
//   # RUN: differentiate, fuse  the passes, in order (see pass_named), separated by comma and space
//   # UNCHANGED                 the last pass must say that it changed nothing, and be right
//   # REFUSED: text             the last pass must throw, and its message contains text
//   # LABEL: text               a line that contains text, searched from the beginning
//   # CHECK: text               a line after the last match that contains text
//   # NEXT: text                the line right after the last match contains text
//   # NOT: text                 no line between the matches around it contains text
// In a text [[X:regex]] captures and [[X]] is what was captured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>

#include "base/errors.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/accumulate.h"
#include "passes/cast.h"
#include "passes/chunk_mlp.h"
#include "passes/decompose.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/in_place.h"
#include "passes/narrow_gradients.h"
#include "passes/recompute.h"
#include "passes/scale_loss.h"
#include "passes/update_in_backward.h"

namespace snug {
namespace {

using Pass = std::function<bool(Graph&)>;

const std::map<std::string, Pass> kPasses = {
    {"accumulate", accumulate},
    {"chunk_mlp=4", [](Graph& graph) { return chunk_mlp(graph, 4); }},
    {"chunk_mlp=6", [](Graph& graph) { return chunk_mlp(graph, 6); }},
    {"cast=bf16", [](Graph& graph) { return cast(graph, DType::kBF16); }},
    {"cast=f16", [](Graph& graph) { return cast(graph, DType::kF16); }},
    {"cast=f32", [](Graph& graph) { return cast(graph, DType::kF32); }},
    {"cast=f64", [](Graph& graph) { return cast(graph, DType::kF64); }},
    {"decompose", decompose},
    {"differentiate", differentiate},
    {"fuse", fuse},
    {"in_place", in_place},
    {"narrow_gradients", narrow_gradients},
    {"scale_loss", scale_loss},
    {"update_in_backward",
     [](Graph& graph) {
       return update_in_backward(graph, OptimizerOptions{.max_grad_norm = 0}, MasterWeights::kSplit);
     }},
    {"update_in_backward=clip",
     [](Graph& graph) { return update_in_backward(graph, OptimizerOptions{}, MasterWeights::kSplit); }},
    {"update_in_backward=full_masters",
     [](Graph& graph) {
       return update_in_backward(graph, OptimizerOptions{.max_grad_norm = 0}, MasterWeights::kFull);
     }},
    {"update_in_backward=8bit",
     [](Graph& graph) {
       return update_in_backward(graph, OptimizerOptions{.max_grad_norm = 0, .moments = Moments::kEightBit},
                                 MasterWeights::kSplit);
     }},
    {"update_in_backward=no_masters",
     [](Graph& graph) {
       return update_in_backward(graph, OptimizerOptions{.max_grad_norm = 0, .moments = Moments::kBF16},
                                 MasterWeights::kNone);
     }},
};

// "%r,%y@each_block,%u@e4m3": these values are dropped, the second one kRecomputeEachBlock, the third one compressed.
Retentions dropped(const Graph& graph, const std::string& list) {
  Retentions chosen(graph.tensors.size(), Retention::kKeep);
  std::stringstream stream(list);
  for (std::string entry; std::getline(stream, entry, ',');) {
    static const std::regex kEntry("%([A-Za-z0-9_.]+?)(@each_block|@e4m3|@e5m2)?");
    static const std::map<std::string, Retention> kHow = {{"", Retention::kRecompute},
                                                          {"@each_block", Retention::kRecomputeEachBlock},
                                                          {"@e4m3", Retention::kCompress},
                                                          {"@e5m2", Retention::kCompressWide}};
    std::smatch found;
    require(std::regex_match(entry, found, kEntry), "drop: '{}' is not %name or %name@how", entry);
    const TensorId tensor = graph.find(found[1].str());
    require(tensor.valid(), "drop: no tensor %{}", found[1].str());
    chosen[tensor.index()] = kHow.at(found[2].str());
  }
  return chosen;
}

// A name of kPasses, recompute=POLICY as on the command line, or recompute=drop:LIST.
Pass pass_named(const std::string& name) {
  const std::string recomputation = "recompute=", list = recomputation + "drop:";
  if (name.starts_with(list))
    return [=](Graph& graph) { return recompute(graph, dropped(graph, name.substr(list.size()))); };
  if (name.starts_with(recomputation))
    return [=](Graph& graph) {
      return recompute(graph, retentions(graph, parse_recompute_policy(name.substr(recomputation.size()))));
    };
  const auto found = kPasses.find(name);
  require(found != kPasses.end(), "RUN: no pass '{}'", name);
  return found->second;
}

struct Directive {
  std::string word, text;
  int line = 0;
};

struct Case {
  std::string file, name, graph;
  std::vector<std::string> passes;
  std::vector<Directive> checks;
  bool unchanged = false;
  std::string refused;
};

void PrintTo(const Case& c, std::ostream* stream) { *stream << c.file << ": " << c.name; }

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<Case> read_cases() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SNUG_SOURCE_DIR "/src/passes/test"))
    if (entry.path().extension() == ".ir") files.push_back(entry.path());
  std::sort(files.begin(), files.end());

  std::vector<Case> cases;
  for (const auto& path : files) {
    std::ifstream stream(path);
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      static const std::regex kDirective(
          "# (CASE|RUN|UNCHANGED|REFUSED|LABEL|CHECK|NEXT|NOT)(?:[: ] *(.*))?");
      std::smatch found;
      if (std::regex_match(line, found, kDirective)) {
        const std::string word = found[1], text = trimmed(found[2]);
        if (word == "CASE") {
          cases.push_back({.file = path.filename().string(),
                           .name = text,
                           .graph = {},
                           .passes = {},
                           .checks = {},
                           .unchanged = false,
                           .refused = {}});
        } else if (word == "RUN") {
          for (size_t begin = 0; begin < text.size();) {
            const size_t end = std::min(text.find(", ", begin), text.size());
            cases.back().passes.push_back(trimmed(text.substr(begin, end - begin)));
            begin = end + 2;
          }
        } else if (word == "UNCHANGED") {
          cases.back().unchanged = true;
        } else if (word == "REFUSED") {
          cases.back().refused = text;
        } else {
          cases.back().checks.push_back({word, text, number});
        }
      }
      if (!cases.empty()) cases.back().graph.append(line).append(1, '\n');
    }
  }
  return cases;
}

class Checker {
 public:
  explicit Checker(const std::string& output) {
    std::stringstream stream(output);
    for (std::string line; std::getline(stream, line);) lines_.push_back(line);
  }

  // The first directive that does not hold, in words; empty when all hold.
  std::string check(const std::vector<Directive>& directives) {
    std::vector<Directive> forbidden;
    size_t begin = 0;  // lines before it are matched already
    for (const Directive& directive : directives) {
      if (directive.word == "NOT") {
        forbidden.push_back(directive);
        continue;
      }
      const size_t from = directive.word == "LABEL" ? 0 : begin;
      const size_t until = directive.word == "NEXT" ? std::min(begin + 1, lines_.size()) : lines_.size();
      size_t line_idx = from;
      while (line_idx < until && !matches(directive, lines_[line_idx], true)) ++line_idx;
      if (line_idx == until) return fmt::format("line {}: no match for {}", directive.line, directive.text);
      for (const Directive& absent : forbidden)
        for (size_t between = begin; between < line_idx; ++between)
          if (matches(absent, lines_[between], false)) return describe(absent, between);
      forbidden.clear();
      begin = line_idx + 1;
    }
    for (const Directive& absent : forbidden)
      for (size_t after = begin; after < lines_.size(); ++after)
        if (matches(absent, lines_[after], false)) return describe(absent, after);
    return "";
  }

 private:
  std::string describe(const Directive& absent, size_t line_idx) const {
    return fmt::format("line {}: found what must not be there: {}", absent.line, lines_[line_idx]);
  }

  bool matches(const Directive& directive, const std::string& line, bool capture) {
    static const std::regex kHole(R"(\[\[([A-Za-z_]+)(?::(.*?))?\]\])");
    static const std::regex kSpecial(R"([.^$|()\[\]{}*+?\\])");
    std::string pattern;
    std::vector<std::string> names;
    std::string rest = directive.text;
    for (std::smatch hole; std::regex_search(rest, hole, kHole); rest = hole.suffix()) {
      pattern += std::regex_replace(hole.prefix().str(), kSpecial, R"(\$&)");
      if (hole[2].matched) {
        pattern += fmt::format("({})", hole[2].str());
        names.push_back(hole[1]);
      } else {
        pattern += std::regex_replace(captured_[hole[1]], kSpecial, R"(\$&)");
      }
    }
    pattern += std::regex_replace(rest, kSpecial, R"(\$&)");
    std::smatch found;
    if (!std::regex_search(line, found, std::regex(pattern))) return false;
    for (size_t name_idx = 0; capture && name_idx < names.size(); ++name_idx)
      captured_[names[name_idx]] = found[name_idx + 1];
    return true;
  }

  std::vector<std::string> lines_;
  std::map<std::string, std::string> captured_;
};

class PassText : public testing::TestWithParam<Case> {};

TEST_P(PassText, GivesWhatTheFileSays) {
  const Case& c = GetParam();
  Graph graph = parse_graph(c.graph, c.file);
  verify(graph, "reading the case");
  ASSERT_FALSE(c.passes.empty()) << "a case without RUN";
  for (size_t pass_idx = 0; pass_idx < c.passes.size(); ++pass_idx) {
    const Pass pass = pass_named(c.passes[pass_idx]);
    const bool last = pass_idx + 1 == c.passes.size();
    if (last && !c.refused.empty()) {
      try {
        pass(graph);
        ADD_FAILURE() << "not refused: " << c.refused;
      } catch (const std::exception& error) {
        EXPECT_NE(std::string(error.what()).find(c.refused), std::string::npos) << error.what();
      }
      return;
    }
    const Graph before = graph;
    const bool changed = pass(graph);
    EXPECT_EQ(changed, graph != before) << c.passes[pass_idx] << " lies";
    EXPECT_EQ(changed, !(last && c.unchanged)) << c.passes[pass_idx] << "\n" << print(graph);
    verify(graph, c.passes[pass_idx]);
  }
  const std::string output = print(graph);
  EXPECT_TRUE(parse_graph(output) == graph);
  ASSERT_TRUE(c.unchanged || !c.checks.empty()) << "a case without checks";
  EXPECT_EQ(Checker(output).check(c.checks), "") << output;
}

INSTANTIATE_TEST_SUITE_P(Files, PassText, testing::ValuesIn(read_cases()), [](const auto& tested) {
  std::string name = tested.param.file.substr(0, tested.param.file.size() - 3) + "_" + tested.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// The checker can fail: each directive refuses what it must refuse.
TEST(PassTextChecker, Refuses) {
  const std::string text = "a 1\nb 2\nc 1\n";
  EXPECT_EQ(Checker(text).check({{"CHECK", "a [[X:\\d]]", 1}, {"NEXT", "b", 2}, {"CHECK", "c [[X]]", 3}}),
            "");
  EXPECT_NE(Checker(text).check({{"CHECK", "d", 1}}), "");
  EXPECT_NE(Checker(text).check({{"CHECK", "b", 1}, {"CHECK", "a", 2}}), "");
  EXPECT_NE(Checker(text).check({{"CHECK", "a", 1}, {"NEXT", "c", 2}}), "");
  EXPECT_NE(Checker(text).check({{"CHECK", "a", 1}, {"NOT", "b", 2}, {"CHECK", "c", 3}}), "");
  EXPECT_NE(Checker(text).check({{"NOT", "c", 1}}), "");
  EXPECT_NE(Checker(text).check({{"CHECK", "a [[X:\\d]]", 1}, {"CHECK", "b [[X]]", 2}}), "");
  EXPECT_EQ(Checker(text).check({{"CHECK", "b", 1}, {"LABEL", "a", 2}, {"NEXT", "b", 3}}), "");
}

}  // namespace
}  // namespace snug
