// backends/cpu/cost_sample.h — what is timed in an operation's place: the same operation on fewer rows, heads, tokens of the
// vocabulary or elements
//
//   products, norms, elementwise   fewer rows (at least 1,024 of a product, at least 16 MiB of operands of the others where there
//                                  are so many); weights stay whole
//   attention                      fewer samples, then fewer heads; positions stay
//   head                           one chunk of rows or less, and a part of the vocabulary
//   update                         a part of the elements, whatever the parameter's shape
//   fp8_encode, fp8_decode         a part of the blocks, whatever the shape
//
// Kernel, threads, row lengths and leading dimensions stay what they are, except the head's vocabulary and attention's heads.
// Sizes follow from the operation and the machine's rates alone, in powers of two: so operations that differ in batch share a sample.
#pragma once

#include <string>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/roofline.h"
#include "base/attributes.h"
#include "base/operand_type.h"
#include "plan/target.h"

namespace snug::cpu {

struct CostSample {
  std::string op;
  std::vector<OperandType> inputs, outputs;
  Attributes attributes;
  OpCost cost;  // of the sample
  // Names the sample. Values that no kernel's speed depends on (names' hashes, rates, epsilons) are left out: equal keys, equal
  // seconds.
  std::string key;
  // Seconds of the operation for one second of the sample: work done once whatever the rows are is not multiplied, and attention
  // counts rounds of its threads.
  double factor = 1;
  // Whether cost_timer knows how to set the operation up.
  bool known = false;

  OpQuery query() const { return {op, inputs, outputs, attributes}; }
};

CostSample cost_sample(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                       const CpuRates& rates);

}  // namespace snug::cpu
