#include "train/variants.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "train/batch.h"
#include "train/prepare.h"

namespace snug {
namespace {

// The fewest rows worth a product of their own.
constexpr int64_t kFewestRows = 64;
// Rows of an MLP's chunk below which its products slow down.
constexpr int64_t kFewMlpRows = 256;

// What a word of --allow makes of a run.
struct Form {
  Allowance allowance;
  // Of forms with one subject at most one is taken; the last one needs the fewest bytes.
  enum class Subject : uint8_t { kMoments, kGradients, kMasters } subject;
  bool (*applies)(const RunOptions&);  // to a run that has not taken the form yet
  void (*apply)(RunOptions&);
};

const std::vector<Form>& all_forms() {
  using Subject = Form::Subject;
  static const std::vector<Form> kForms = {
      {Allowance::kBF16Optimizer, Subject::kMoments,
       [](const RunOptions& o) { return o.moments == Moments::kF32; },
       [](RunOptions& o) { o.moments = Moments::kBF16; }},
      {Allowance::k8BitOptimizer, Subject::kMoments,
       [](const RunOptions& o) { return o.moments != Moments::kEightBit; },
       [](RunOptions& o) { o.moments = Moments::kEightBit; }},
      {Allowance::kBF16Gradients, Subject::kGradients,
       [](const RunOptions& o) { return o.gradients == DType::kF32 && o.gradient_accumulation_steps == 1; },
       [](RunOptions& o) { o.gradients = DType::kBF16; }},
      {Allowance::kNoMasterWeights, Subject::kMasters,
       [](const RunOptions& o) {
         return o.precision == Precision::kBF16 && o.master_weights != MasterWeights::kNone;
       },
       [](RunOptions& o) { o.master_weights = MasterWeights::kNone; }},
  };
  return kForms;
}

std::vector<UpdatePlacement> placements_of(const RunOptions& options) {
  if (options.update_placement) return {*options.update_placement};
  // With fp16 an overflow that is found late would have to undo what earlier blocks wrote.
  if (options.gradient_accumulation_steps > 1 || options.precision == Precision::kF16)
    return {UpdatePlacement::kAfter};
  return {UpdatePlacement::kAfter, UpdatePlacement::kInBackward};
}

// Lengths of chunks, as RunOptions has them.
struct Chunks {
  int64_t head = 0;
  std::optional<int64_t> mlp;
  friend bool operator==(const Chunks&, const Chunks&) = default;
};

// What the user said first, then what holds less and less; each of these is one more plan to make, so head and MLPs go together: the
// head, whose logits are the largest scratch of small models, by one step, then the MLPs by one, then both to their ends. With a quarter
// of the rows an MLP holds about what the attention beside it does, at hardly any cost; chunks below 256 rows multiply slowly (GPT-2
// 124M's mlp_gradient of 1,024 rows: 245 ms in one chunk, 267 in four, 402 in sixteen).
std::vector<Chunks> chunks_of(const RunOptions& options) {
  std::vector<Chunks> chunks{{options.head_chunk_rows, options.mlp_chunk_rows}};
  if (!options.allow.contains(Allowance::kReassociation)) return chunks;
  const int64_t rows = checked_mul(options.per_device_train_batch_size, options.max_length);
  const auto shorter = [&](Chunks next) {
    if (options.head_chunk_rows != 0 || next.head >= rows) next.head = chunks.back().head;
    if (options.mlp_chunk_rows || next.mlp >= rows) next.mlp = chunks.back().mlp;
    if (next != chunks.back()) chunks.push_back(next);
  };
  const int64_t quarter =
      std::max(kFewestRows, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows / 4))));
  shorter({kHeadChunkRows / 4, options.mlp_chunk_rows});
  shorter({kHeadChunkRows / 4, quarter});
  shorter({kFewestRows, std::min(quarter, kFewMlpRows)});
  return chunks;
}

// Sets of forms that go together, the smaller sets first.
std::vector<std::vector<const Form*>> sets_of_forms(const RunOptions& options) {
  std::vector<std::vector<const Form*>> sets{{}};
  for (const Form& form : all_forms()) {
    if (!options.allow.contains(form.allowance) || !form.applies(options)) continue;
    const size_t before = sets.size();
    for (size_t set = 0; set < before; ++set) {
      if (std::any_of(sets[set].begin(), sets[set].end(),
                      [&](const Form* taken) { return taken->subject == form.subject; }))
        continue;
      sets.push_back(sets[set]);
      sets.back().push_back(&form);
    }
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return sets;
}

}  // namespace

std::vector<RunVariant> variants_of(const RunOptions& options) {
  const std::vector<std::vector<const Form*>> sets = sets_of_forms(options);
  const std::vector<Chunks> all_chunks = chunks_of(options);
  std::vector<RunVariant> variants;
  for (size_t set = 0; set < sets.size(); ++set)
    for (const Chunks& chunks : all_chunks)
      for (UpdatePlacement placement : placements_of(options)) {
        RunVariant variant{.options = options, .forms = {}};
        variant.options.update_placement = placement;
        variant.options.head_chunk_rows = chunks.head;
        variant.options.mlp_chunk_rows = chunks.mlp;
        for (const Form* form : sets[set]) {
          form->apply(variant.options);
          variant.forms.insert(form->allowance);
        }
        if (chunks != all_chunks.front()) variant.forms.insert(Allowance::kReassociation);
        // Each form lowers what must be held: none or the last of the largest sets, with the shortest chunks.
        variant.may_be_smallest = (set == 0 || set + 1 == sets.size()) && chunks == all_chunks.back();
        variants.push_back(std::move(variant));
      }
  return variants;
}

std::vector<Variant> compile_variants(std::span<const RunVariant> variants, const Model& model,
                                      bool evaluates) {
  std::vector<Variant> compiled;
  for (const RunVariant& variant : variants)
    compiled.push_back({.options = compile_options(variant.options, model, RunKind::kTrain, evaluates),
                        .may_be_smallest = variant.may_be_smallest});
  return compiled;
}

}  // namespace snug
