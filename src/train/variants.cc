#include "train/variants.h"

#include <algorithm>

#include "train/batch.h"
#include "train/prepare.h"

namespace snug {
namespace {

// The fewest rows of logits worth a product of their own.
constexpr int64_t kFewestHeadRows = 64;

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

// 0, the default, first.
std::vector<int64_t> head_chunks_of(const RunOptions& options) {
  std::vector<int64_t> chunks{options.head_chunk_rows};
  if (options.head_chunk_rows != 0 || !options.allow.contains(Allowance::kReassociation)) return chunks;
  const int64_t rows = checked_mul(options.per_device_train_batch_size, options.max_length);
  for (int64_t chunk = kHeadChunkRows / 4; chunk >= kFewestHeadRows; chunk /= 4)
    if (chunk < rows) chunks.push_back(chunk);
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
  const std::vector<int64_t> chunks = head_chunks_of(options);
  std::vector<RunVariant> variants;
  for (size_t set = 0; set < sets.size(); ++set)
    for (int64_t chunk : chunks)
      for (UpdatePlacement placement : placements_of(options)) {
        RunVariant variant{.options = options, .forms = {}};
        variant.options.update_placement = placement;
        variant.options.head_chunk_rows = chunk;
        for (const Form* form : sets[set]) {
          form->apply(variant.options);
          variant.forms.insert(form->allowance);
        }
        if (chunk != options.head_chunk_rows) variant.forms.insert(Allowance::kReassociation);
        // Each form lowers what must be held: none or the last of the largest sets, with the shortest chunk.
        variant.may_be_smallest = (set == 0 || set + 1 == sets.size()) && chunk == chunks.back();
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
