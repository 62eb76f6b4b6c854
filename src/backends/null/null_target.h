// backends/null/null_target.h — a target that supports every operation, described by a few numbers
//
// Makes planning possible without any hardware: same model and options, same plan, on every machine.
#pragma once

#include <optional>
#include <string>

#include "plan/target.h"

namespace snug {

struct NullProfile {
  double flops_per_second = 1e11;
  double bytes_per_second = 1e10;
  Bytes alignment{64};
  // Scratch of head_loss, head_loss_gradient: one chunk of logits, chunk x V x this many bytes.
  int64_t head_scratch_bytes_per_logit = 4;
  // Scratch of mlp, mlp_gradient: what lies between the products of one chunk, in the activation's type.
  // Scratch of read_tensor, write_tensor: what the host streams a tensor through.
  Bytes staging{4 << 20};
  // Scratch of every other operation.
  Bytes scratch{0};
};

class NullTarget : public Target {
 public:
  explicit NullTarget(NullProfile profile = {}) : profile_(profile) {}

  const NullProfile& profile() const { return profile_; }

  std::string name() const override { return "null"; }
  std::optional<std::string> refusal(const OpQuery&) const override { return std::nullopt; }
  Bytes scratch_bytes(const OpQuery& query) const override;
  Bytes alignment() const override { return profile_.alignment; }
  // The slower of arithmetic and memory: max(flops / flops_per_second, bytes / bytes_per_second).
  double seconds(const OpQuery& query, const OpCost& cost) const override;

 private:
  NullProfile profile_;
};

}  // namespace snug
