// planner/described_target_test.h — a target for the planner's tests: a roofline, and scratch where the CPU has
// some
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "plan/target.h"

namespace snug {

class DescribedTarget : public Target {
 public:
  explicit DescribedTarget(double flops_per_second = 1e11, double bytes_per_second = 1e10)
      : flops_per_second_(flops_per_second), bytes_per_second_(bytes_per_second) {}
  std::string name() const override { return "described"; }
  std::optional<std::string> refusal(const OpQuery&) const override { return std::nullopt; }
  Bytes alignment() const override { return Bytes(64); }
  // A chunk of logits for the head, a row of floats for every product.
  Bytes scratch_bytes(const OpQuery& query) const override {
    if (query.attributes.has("chunk"))
      return Bytes(query.attributes.integer("chunk") * query.inputs[1].shape.dim(0) * 4);
    return query.op.starts_with("linear") ? Bytes(query.inputs[0].shape.last() * 4) : Bytes(0);
  }
  double seconds(const OpQuery&, const OpCost& cost) const override {
    return std::max(cost.flops / flops_per_second_, cost.bytes / bytes_per_second_) + 1e-6;
  }

 private:
  double flops_per_second_, bytes_per_second_;
};

}  // namespace snug
