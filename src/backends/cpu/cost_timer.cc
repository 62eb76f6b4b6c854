#include "backends/cpu/cost_timer.h"

#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "backends/cpu/kernel.h"
#include "base/allocator.h"
#include "base/errors.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPatternBytes = 64 << 10;
// Operands of fewer bytes stay in caches between operations of a step, too.
constexpr int64_t kCachedBytes = 4 << 20;
constexpr size_t kColdSets = 3;
// A sample is timed until it has run eight times and for 2 ms, or three times and for 20 ms, or twice and for 60 ms, or fifty times.
constexpr size_t kRuns = 8, kLongRuns = 3, kLongestRuns = 2, kMostRuns = 50;
constexpr double kSeconds = 2e-3, kLongSeconds = 20e-3, kLongestSeconds = 60e-3;
// Executions are alike where the upper quartile of their seconds is at most so many times the lower one.
constexpr double kAlike = 1.15;
// What the child may take beyond its limit for starting and ending.
constexpr double kGraceSeconds = 1;
constexpr useconds_t kReapMicroseconds = 500;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Outputs that are the storage of an input: (output, input).
std::vector<std::pair<size_t, size_t>> aliases(const CostSample& sample) {
  const size_t inputs = sample.inputs.size();
  if (sample.op == "adamw") {
    std::vector<std::pair<size_t, size_t>> pairs = {{0, 0}, {1, 1}, {2, 2}};
    for (size_t output = 4; output < sample.outputs.size(); ++output)
      pairs.emplace_back(output, output + 2);  // a copy or a split master's half, and scales of moments
    return pairs;
  }
  if (sample.attributes.integer_or("accumulate", 0) == 0) return {};
  if (sample.op == "layer_norm_dweight") return {{0, inputs - 2}, {1, inputs - 1}};
  if (sample.op == "head_loss_gradient") return {{2, inputs - 1}};
  if (sample.op == "mlp_gradient") {  // accumulators and parameters' gradients are the last of each
    std::vector<std::pair<size_t, size_t>> pairs;
    const MlpOperands positions(sample.attributes);
    const size_t outputs = sample.outputs.size();
    for (size_t output = positions.first_parameter(); output < outputs; ++output)
      pairs.emplace_back(output, inputs - outputs + output);
    return pairs;
  }
  return {{0, inputs - 1}};
}

int64_t padded(const OperandType& type) { return round_up(type.bytes().value, kAlignment); }

int64_t set_bytes(const CostSample& sample) {
  int64_t bytes = 0;
  for (const OperandType& type : sample.inputs) bytes = checked_add(bytes, padded(type));
  for (const OperandType& type : sample.outputs) bytes = checked_add(bytes, padded(type));
  for (const auto& [output, input] : aliases(sample)) bytes -= padded(sample.outputs.at(output));
  return bytes;
}

int64_t scratch_bytes(const CostSample& sample, const Dispatch& dispatch) {
  const OpQuery query = sample.query();
  return round_up(pick_kernel(query, dispatch).scratch_bytes(query, dispatch).value, kAlignment);
}

// What an integer operand counts: tokens, rows of a table. 1 where zeros are right.
int64_t index_range(const CostSample& sample, size_t input) {
  if (sample.op == "embedding" && input == 0) return sample.inputs.at(1).shape.dim(0);
  if (sample.op == "embedding_dtable" && input == 0) return sample.attributes.integer("rows");
  if (sample.op.starts_with("head_loss") && input == 2) return sample.inputs.at(1).shape.dim(0);
  if (sample.op.starts_with("cross_entropy") && input == 1) return sample.inputs.at(0).shape.last();
  return 1;
}

uint64_t next_random(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
  return state >> 33;
}

// Numbers in [0.5, 1) whether read as bf16 or as f32, in [1.75, 1.9) as f16, small positive ones as f64: no denormal, nothing that is not finite.
std::vector<std::byte> make_pattern() {
  std::vector<std::byte> pattern(static_cast<size_t>(kPatternBytes));
  uint64_t state = 1;
  for (size_t i = 0; i < pattern.size(); i += 2) {
    const auto word = static_cast<uint16_t>(0x3F00 | (next_random(state) & 0x7F));
    std::memcpy(pattern.data() + i, &word, sizeof word);
  }
  return pattern;
}

class Timer {
 public:
  Timer(const Dispatch& dispatch, const CpuRates& rates, const TimingLimits& limits, const CostClock& clock)
      : dispatch_(dispatch),
        rates_(rates),
        clock_(clock),
        end_(clock() + limits.seconds),
        memory_(limits.memory, "measuring costs", HugePages::kOn),
        pattern_(make_pattern()) {
    memory_.commit(limits.memory);
  }

  bool is_over() const { return clock_() >= end_; }

  struct Time {
    double seconds = 0;
    bool disturbed = false;  // the executions were not alike
  };
  std::optional<Time> time(const CostSample& sample) {
    const int64_t room = memory_.size().value - scratch_bytes(sample, dispatch_), bytes = set_bytes(sample);
    const double expected = work_seconds(sample.query(), sample.cost, dispatch_, rates_);
    if (!sample.known || bytes > room || clock_() + static_cast<double>(kLongestRuns) * expected > end_)
      return std::nullopt;
    const bool multiplies = roofline_seconds(sample.query(), sample.cost, dispatch_, rates_) >
                            2 * sample.cost.bytes / rates_.bytes_per_second;
    const bool cached = bytes <= kCachedBytes;
    const size_t sets =
        cached || multiplies ? 1 : std::clamp<size_t>(static_cast<size_t>(room / bytes), 1, kColdSets);
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (size_t set = 0; set < sets; ++set)
      kernels.push_back(set_up(sample, static_cast<int64_t>(set) * bytes, room));

    if (cached) kernels[0]->run(false);
    std::vector<double> seconds;
    double sum = 0;
    while (seconds.size() < kMostRuns) {
      const double begin = clock_();
      kernels[seconds.size() % sets]->run(false);
      const double now = clock_();
      seconds.push_back(std::max(now - begin, 1e-9));
      sum += seconds.back();
      if (seconds.size() >= kRuns && sum >= kSeconds) break;
      if (seconds.size() >= kLongRuns && sum >= kLongSeconds) break;
      if (seconds.size() >= kLongestRuns && sum >= kLongestSeconds) break;
      if (now >= end_) break;
    }
    // What disturbs an execution makes it longer.
    std::sort(seconds.begin(), seconds.end());
    const size_t quarter = (seconds.size() - 1) / 4;
    return Time{seconds[quarter], seconds[seconds.size() - 1 - quarter] > kAlike * seconds[quarter]};
  }

 private:
  // A kernel whose operands stand from byte `at` on, filled; scratch stands at `room`, for all.
  std::unique_ptr<Kernel> set_up(const CostSample& sample, int64_t at, int64_t room) {
    Binding binding{sample.op, "sample", sample.attributes, {}, {}, {}, dispatch_};
    const auto place = [&](const OperandType& type) {
      std::byte* data = memory_.bytes().data() + at;
      at += padded(type);
      fill(data, type.bytes().value);
      return Operand{data, type};
    };
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      binding.inputs.push_back(place(sample.inputs[i]));
      set_values(sample, i, binding.inputs.back());
    }
    const auto shared = aliases(sample);
    for (size_t i = 0; i < sample.outputs.size(); ++i) {
      const auto alias =
          std::find_if(shared.begin(), shared.end(), [&](const auto& pair) { return pair.first == i; });
      binding.outputs.push_back(alias != shared.end()
                                    ? Operand{binding.inputs.at(alias->second).data, sample.outputs[i]}
                                    : place(sample.outputs[i]));
    }
    binding.scratch = memory_.bytes().subspan(static_cast<size_t>(room));
    return pick_kernel(sample.query(), dispatch_).make(binding);
  }

  void fill(std::byte* data, int64_t bytes) const {
    const int64_t pieces = ceil_div(bytes, kPatternBytes);
#pragma omp parallel for schedule(static) num_threads(dispatch_.threads)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = piece * kPatternBytes;
      std::memcpy(data + begin, pattern_.data(), static_cast<size_t>(std::min(kPatternBytes, bytes - begin)));
    }
  }

  void set_values(const CostSample& sample, size_t input, const Operand& operand) const {
    if (operand.type.dtype == DType::kI32) {
      const auto range = static_cast<uint64_t>(index_range(sample, input));
      uint64_t state = 2;
      for (int64_t i = 0; i < operand.elements(); ++i)
        operand.as<int32_t>()[i] = static_cast<int32_t>(next_random(state) % range);
    } else if (sample.op == "adamw" && input == 5) {
      const std::array<float, 4> control = {1, 1, 1, -1};  // applies
      std::memcpy(operand.data, control.data(), sizeof control);
    }
  }

  const Dispatch& dispatch_;
  const CpuRates& rates_;
  const CostClock& clock_;
  double end_;
  Reservation memory_;
  std::vector<std::byte> pattern_;
};

struct Record {
  uint64_t index = 0;
  double seconds = 0;
};

// The child: OpenMP of the process that forked is unusable in it, but a thread that is new gets threads of its own.
[[noreturn]] void run_child(std::span<const CostSample> samples, const Dispatch& dispatch,
                            const CpuRates& rates, const TimingLimits& limits, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 0;
  try {
    std::thread worker([&] {
      try {
        omp_set_dynamic(0);
        omp_set_num_threads(dispatch.threads);
        time_samples(samples, dispatch, rates, limits, seconds_now, [&](size_t index, double seconds) {
          const Record record{index, seconds};
          if (write(out, &record, sizeof record) != sizeof record) _exit(1);
        });
      } catch (...) {
        _exit(1);
      }
    });
    worker.join();
  } catch (...) {
    code = 1;
  }
  _exit(code);
}

}  // namespace

Bytes sample_bytes(const CostSample& sample, const Dispatch& dispatch) {
  return Bytes(set_bytes(sample) + scratch_bytes(sample, dispatch));
}

void time_samples(std::span<const CostSample> samples, const Dispatch& dispatch, const CpuRates& rates,
                  const TimingLimits& limits, const CostClock& clock, const CostSink& sink) {
  Timer timer(dispatch, rates, limits, clock);
  std::vector<std::pair<size_t, double>> disturbed;
  for (size_t i = 0; i < samples.size() && !timer.is_over(); ++i)
    if (const auto time = timer.time(samples[i])) {
      sink(i, time->seconds);
      if (time->disturbed) disturbed.emplace_back(i, time->seconds);
    }
  for (const auto& [index, seconds] : disturbed) {
    if (timer.is_over()) return;
    if (const auto again = timer.time(samples[index])) sink(index, std::min(seconds, again->seconds));
  }
}

std::vector<std::optional<double>> time_samples_in_child(std::span<const CostSample> samples,
                                                         const Dispatch& dispatch, const CpuRates& rates,
                                                         const TimingLimits& limits) {
  std::vector<std::optional<double>> result(samples.size());
  std::array<int, 2> ends{};
  if (samples.empty() || pipe2(ends.data(), O_CLOEXEC) != 0) return result;
  const pid_t child = fork();
  if (child == 0) run_child(samples, dispatch, rates, limits, ends[1]);
  close(ends[1]);
  const double end = seconds_now() + limits.seconds + kGraceSeconds;
  std::array<char, sizeof(Record)> bytes{};
  size_t held = 0;
  while (child > 0) {
    const int left = static_cast<int>(1000 * (end - seconds_now()));
    pollfd waiting{.fd = ends[0], .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? poll(&waiting, 1, left) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t got = read(ends[0], bytes.data() + held, bytes.size() - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held += static_cast<size_t>(got);
    if (held < bytes.size()) continue;
    Record record;
    std::memcpy(&record, bytes.data(), sizeof record);
    held = 0;
    if (record.index < result.size()) result[record.index] = record.seconds;
  }
  close(ends[0]);
  if (child > 0) {
    kill(child, SIGKILL);  // also where it closed its end and goes on
    // One that hangs in the kernel is left to the process that takes it over.
    const double until = seconds_now() + kGraceSeconds;
    while (waitpid(child, nullptr, WNOHANG) == 0 && seconds_now() < until) usleep(kReapMicroseconds);
  }
  return result;
}

}  // namespace snug::cpu
