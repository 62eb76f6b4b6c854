// plan/plan.h — the plan: every operation in order and the place of every byte, as plain data
//
// The only door between compiling and running: the runtime takes a Plan and nothing else, and a Plan can be
// written, read and checked as text (plan/text.h, plan/check.h). Time is counted in moments: the operations
// of all phases numbered through in phase order, so that [first, last) intervals of tensors of different
// phases compare. A repeated phase is listed once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/attributes.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/shape.h"

namespace snug {

using PlanTensorId = Id<struct PlanTensorTag>;
using MemoryId = Id<struct MemoryTag>;

// One place that holds bytes. This machine's RAM is memory 0, "ram".
struct PlanMemory {
  std::string name;
  Bytes arena_bytes;        // what the layout needs; reserved and touched before the first step
  Bytes lower_bound_bytes;  // most bytes live at one moment: no layout can need less
  friend bool operator==(const PlanMemory&, const PlanMemory&) = default;
};

struct Place {
  MemoryId memory;
  Bytes offset;
  friend bool operator==(const Place&, const Place&) = default;
};

struct PlanTensor {
  std::string name;  // unique in the plan. State and carried tensors appear once for all phases; a phase's
                     // own values and inputs are named phase/name
  DType dtype = DType::kF32;
  Shape shape;
  std::string category;         // "weights", "activations", … as in every report
  std::string storage;          // "state", "input", "carried", "value", "scratch"
  std::string parameter;        // the file's tensor name of a weight or master weight; empty otherwise
  int64_t first = 0, last = 0;  // moments [first, last) during which the bytes are held
  Place place;
  int32_t buffer = -1;  // tensors that share storage by an alias rule have the same buffer number
  friend bool operator==(const PlanTensor&, const PlanTensor&) = default;
};

struct PlanOp {
  std::string op;    // docs/operations.md
  std::string name;  // logical name
  std::string part;  // "forward", "recompute", "backward", "update", "load", "save"
  int32_t block = -1;
  std::vector<PlanTensorId> inputs, outputs;
  PlanTensorId scratch;  // invalid when none
  Attributes attributes;
  double flops = 0, seconds = 0;  // needed work and estimated time of one execution
  friend bool operator==(const PlanOp&, const PlanOp&) = default;
};

struct PlanPhase {
  std::string name;     // "load", "micro_step", "update", "evaluate", "generate_16", …, "save"
  int64_t repeats = 1;  // in one update; 0 = on demand
  std::vector<PlanOp> ops;
  int64_t first_moment = 0;           // of ops[0]
  Bytes peak_bytes;                   // most bytes live at one moment of the phase
  std::vector<PlanTensorId> inputs;   // written by the host before each repetition
  std::vector<PlanTensorId> results;  // readable by the host afterwards
  friend bool operator==(const PlanPhase&, const PlanPhase&) = default;
};

struct Plan {
  int64_t format = 1;
  std::string target;  // Target::name() of the backend it was made for
  std::vector<PlanMemory> memories;
  std::vector<PlanTensor> tensors;
  std::vector<PlanPhase> phases;

  const PlanTensor& tensor(PlanTensorId id) const { return tensors.at(id.index()); }
  // The phase of that name; nullptr if the plan has none.
  const PlanPhase* phase(std::string_view phase_name) const;
  // The tensor of that name; invalid if the plan has none. O(number of tensors).
  PlanTensorId find(std::string_view tensor_name) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace snug
