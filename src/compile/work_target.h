// compile/work_target.h — a target that answers with work in place of seconds: the same on every machine, measured or not
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "plan/target.h"

namespace snug {

// In units of 10¹² FLOPs: the larger of an operation's FLOPs (those that it makes again among them) and 32 times the bytes that it reads and
// writes. All else as `target` says, which must outlive it.
class WorkTarget : public Target {
 public:
  explicit WorkTarget(const Target& target) : target_(target) {}
  std::string name() const override { return target_.name(); }
  std::optional<std::string> refusal(const OpQuery& query) const override { return target_.refusal(query); }
  Bytes scratch_bytes(const OpQuery& query) const override { return target_.scratch_bytes(query); }
  Bytes alignment() const override { return target_.alignment(); }
  double seconds(const OpQuery&, const OpCost& cost) const override {
    constexpr double kFlopsOfAByte = 32;
    return std::max(cost.flops + cost.repeated_flops, kFlopsOfAByte * cost.bytes) * 1e-12;
  }

 private:
  const Target& target_;
};

}  // namespace snug
