// An MLP over chunks of rows: what lies between its products exists for one chunk at a time, in scratch, and the gradient makes it again.
//
// A chunk's work is that of the operations of the plain decomposition, by whatever kernels serve them, on the chunk's rows: so their bits
// are those of the decomposition on these rows. x and d_y of a chunk are copied in and y or d_x out, so that the kernels are bound to
// scratch once, however many chunks there are. The first chunk overwrites the parameters' gradients (or adds to the accumulators), later
// ones add, in f32.
//
// Scratch, in elements of A: forward chunk · (max(I, O) + F), with a gate chunk · (max(I, O) + 2F); gradient chunk · (max(I, O) + O + 2F),
// with a gate chunk · (max(I, O) + O + max(F, I) + 2F); and the most that one of the operations asks for.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/scratch.h"
#include "base/errors.h"
#include "base/float16.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

// Places of a chunk in scratch. `outer` holds x, then y or d_x.
enum class Slot : uint8_t { kOuter, kDY, kFirst, kSecond, kThird, kCount };

// An operand of one of the operations: rows in a slot, or a whole operand of the MLP.
struct Place {
  enum class Kind : uint8_t { kSlot, kInput, kOutput } kind = Kind::kSlot;
  size_t index = 0;
  OperandType type;
};

struct Step {
  std::string_view op;
  Attributes attributes;
  std::vector<Place> inputs, outputs;
};

struct MlpShape {
  MlpOperands positions;
  bool gradient = false, accumulate = false;
  std::vector<OperandType> operands;  // x and the products'
  int64_t rows = 0, chunk = 0, in = 0, inner = 0, out = 0;
  DType dtype = DType::kF32;
  Attributes attributes;

  size_t first_input() const { return gradient ? 1 : 0; }
  int64_t slot_columns(Slot slot) const {
    switch (slot) {
      case Slot::kOuter:
        return std::max(in, out);
      case Slot::kDY:
        return gradient ? out : 0;
      case Slot::kFirst:  // the gate, and at the end one of the two parts of d_x
        return gradient && positions.gated ? std::max(inner, in) : inner;
      case Slot::kSecond:
        return gradient || positions.gated ? inner : 0;
      case Slot::kThird:
        return gradient && positions.gated ? inner : 0;
      case Slot::kCount:
        break;
    }
    throw_internal("mlp: no slot {}", static_cast<int>(slot));
  }
};

MlpShape mlp_shape(const OpQuery& query) {
  MlpShape s{.positions = MlpOperands(query.attributes), .operands = {}, .attributes = query.attributes};
  s.gradient = query.op == "mlp_gradient";
  s.accumulate = query.attributes.integer_or("accumulate", 0) != 0;
  require(query.inputs.size() >= s.first_input() + s.positions.count(), "{}: {} operands", query.op,
          query.inputs.size());
  for (size_t operand = 0; operand < s.positions.count(); ++operand)
    s.operands.push_back(query.inputs[s.first_input() + operand]);
  const int64_t chunk = query.attributes.integer("chunk");
  require(chunk > 0, "{}: chunk of {} rows", query.op, chunk);
  s.rows = s.operands[0].shape.rows();
  s.chunk = std::min(s.rows, chunk);
  s.in = s.operands[0].shape.last();
  const int output_dim = query.attributes.word("weight") == "oi" ? 0 : 1;
  s.inner = s.operands[s.positions.weight(0)].shape.dim(output_dim);
  s.out = s.operands[s.positions.weight(s.positions.down())].shape.dim(output_dim);
  s.dtype = s.operands[0].dtype;
  return s;
}

// The operations of one chunk of `rows` rows. `adds`: to what the parameters' gradients already hold.
class Recipe {
 public:
  Recipe(const MlpShape& s, int64_t rows, bool adds) : s_(s), rows_(rows), adds_(adds) {
    if (s.gradient)
      gradient();
    else
      forward();
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  Place slot(Slot at, int64_t columns) const {
    return {Place::Kind::kSlot, static_cast<size_t>(at), {s_.dtype, {rows_, columns}}};
  }
  Place operand(size_t position) const {
    return {Place::Kind::kInput, s_.first_input() + position, s_.operands[position]};
  }
  Place inner(Slot at) const { return slot(at, s_.inner); }
  // What product `product` before the activation makes.
  Place before(size_t product) const { return inner(product == 0 ? Slot::kFirst : Slot::kSecond); }

  Attributes weight() const { return {{"weight", s_.attributes.word("weight")}}; }
  Attributes gelu() const {
    return {{"approximate", s_.attributes.word("activation") == "gelu_tanh" ? "tanh" : "none"}};
  }

  void linear(const Place& x, size_t product, const Place& y) {
    Step step{"linear", weight(), {x, operand(s_.positions.weight(product))}, {y}};
    step.attributes.set("bias", int64_t{s_.positions.bias});
    if (s_.positions.bias) step.inputs.push_back(operand(s_.positions.bias_of(product)));
    steps_.push_back(std::move(step));
  }

  void products_before() {
    for (size_t product = 0; product < s_.positions.down(); ++product)
      linear(slot(Slot::kOuter, s_.in), product, before(product));
  }

  void activation(const Place& h) {
    if (s_.positions.gated)
      steps_.push_back({"swiglu", {}, {before(0), before(1)}, {h}});
    else
      steps_.push_back({"gelu", gelu(), {before(0)}, {h}});
  }

  void forward() {
    products_before();
    activation(inner(Slot::kFirst));
    linear(inner(Slot::kFirst), s_.positions.down(), slot(Slot::kOuter, s_.out));
  }

  // The gradient of operand `position`, if it is made, from `inputs`.
  void parameter(size_t position, std::string_view op, Attributes attributes, std::vector<Place> inputs) {
    if (!s_.positions.makes(position)) return;
    const Place into{
        Place::Kind::kOutput, s_.positions.output(position), {DType::kF32, s_.operands[position].shape}};
    attributes.set("accumulate", int64_t{adds_});
    if (adds_) inputs.push_back(into);
    steps_.push_back({op, std::move(attributes), std::move(inputs), {into}});
  }
  void parameters(size_t product, const Place& x, const Place& d_y) {
    parameter(s_.positions.weight(product), "linear_dweight", weight(), {x, d_y});
    if (s_.positions.bias) parameter(s_.positions.bias_of(product), "linear_dbias", {}, {d_y});
  }

  void gradient() {
    const MlpOperands& positions = s_.positions;
    const Place x = slot(Slot::kOuter, s_.in), d_y = slot(Slot::kDY, s_.out);
    // h, then its gradient, then that of gate or up.
    const Place h = inner(positions.gated ? Slot::kThird : Slot::kSecond);
    if (positions.repeated_products() > 0) products_before();
    if (positions.makes(positions.weight(positions.down()))) activation(h);
    parameters(positions.down(), h, d_y);
    if (!positions.passes_down()) return;

    steps_.push_back({"linear_dx", weight(), {d_y, operand(positions.weight(positions.down()))}, {h}});
    if (positions.gated)
      steps_.push_back({"swiglu_backward", {}, {h, before(0), before(1)}, {h, before(1)}});
    else
      steps_.push_back({"gelu_backward", gelu(), {h, before(0)}, {h}});
    const auto d_before = [&](size_t product) { return product == 0 ? h : before(1); };
    for (size_t product = 0; product < positions.down(); ++product) parameters(product, x, d_before(product));
    if (!positions.makes(0)) return;

    // The gradient of x takes its place: nothing reads x any more.
    const auto d_x = [&](size_t product, const Place& to) {
      steps_.push_back(
          {"linear_dx", weight(), {d_before(product), operand(positions.weight(product))}, {to}});
    };
    d_x(positions.down() - 1, x);
    if (!positions.gated) return;
    const Place of_gate = slot(Slot::kFirst, s_.in);
    d_x(0, of_gate);
    steps_.push_back({"add", {}, {x, of_gate}, {x}});
  }

  const MlpShape& s_;
  int64_t rows_;
  bool adds_;
  std::vector<Step> steps_;
};

// Types of a step's operands, and the question a kernel is picked by.
struct StepQuery {
  std::vector<OperandType> inputs, outputs;
  OpQuery query;

  explicit StepQuery(const Step& step)
      : inputs(types(step.inputs)),
        outputs(types(step.outputs)),
        query{step.op, inputs, outputs, step.attributes} {}

 private:
  static std::vector<OperandType> types(const std::vector<Place>& places) {
    std::vector<OperandType> all;
    for (const Place& place : places) all.push_back(place.type);
    return all;
  }
};

// The kinds of chunk: the first, later ones, and a last one that is shorter.
struct ChunkKind {
  int64_t rows = 0;
  bool is_first = false;
};
std::vector<ChunkKind> chunk_kinds(const MlpShape& s) {
  std::vector<ChunkKind> kinds{{s.chunk, true}};
  if (s.rows >= 2 * s.chunk) kinds.push_back({s.chunk, false});
  if (s.chunk > 0 && s.rows % s.chunk != 0) kinds.push_back({s.rows % s.chunk, false});
  return kinds;
}

std::vector<Step> steps_of(const MlpShape& s, const ChunkKind& kind) {
  return Recipe(s, kind.rows, s.accumulate || !kind.is_first).take();
}

struct MlpScratch {
  std::array<std::byte*, static_cast<size_t>(Slot::kCount)> slots{};
  std::byte* step = nullptr;
  Bytes step_bytes;
};

MlpScratch take_mlp_scratch(const MlpShape& s, const Dispatch& dispatch, Scratch& scratch) {
  MlpScratch parts;
  for (size_t slot = 0; slot < parts.slots.size(); ++slot)
    parts.slots[slot] = scratch.take(Shape{s.chunk, s.slot_columns(static_cast<Slot>(slot))}.bytes(s.dtype));
  for (const ChunkKind& kind : chunk_kinds(s))
    for (const Step& step : steps_of(s, kind)) {
      const StepQuery of(step);
      parts.step_bytes =
          std::max(parts.step_bytes, pick_kernel(of.query, dispatch).scratch_bytes(of.query, dispatch));
    }
  parts.step = scratch.take(parts.step_bytes);
  return parts;
}

void copy_rows(const std::byte* from, int64_t rows, int64_t row_bytes, std::byte* to) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * row_bytes, from + row * row_bytes, static_cast<size_t>(row_bytes));
}

class Mlp : public Kernel {
 public:
  Mlp(const Binding& b, MlpShape shape) : s_(std::move(shape)) {
    Scratch scratch(b.scratch);
    parts_ = take_mlp_scratch(s_, b.dispatch, scratch);
    x_ = b.inputs[s_.first_input()].data;
    if (s_.gradient) d_y_ = b.inputs[0].data;
    if (!s_.gradient || s_.positions.makes(0)) result_ = b.outputs[0].data;
    const std::vector<ChunkKind> kinds = chunk_kinds(s_);
    const std::vector<Step> of_first = steps_of(s_, kinds.front());
    for (const ChunkKind& kind : kinds) {
      Chunk chunk{kind, {}};
      const std::vector<Step> steps = steps_of(s_, kind);
      for (size_t step = 0; step < steps.size(); ++step) {
        // Of as many rows, only what adds instead of overwriting is another kernel.
        const bool is_shared = !chunks_.empty() && kind.rows == kinds.front().rows &&
                               steps[step].attributes == of_first[step].attributes;
        if (!is_shared) kernels_.push_back(bind(b, steps[step]));
        chunk.kernels.push_back(is_shared ? chunks_.front().kernels[step] : kernels_.back().get());
      }
      chunks_.push_back(std::move(chunk));
    }
  }

  void run(bool overwrite) override {
    const int64_t element = dtype_bytes(s_.dtype), x_bytes = s_.in * element, y_bytes = s_.out * element;
    const int64_t result_bytes = s_.gradient ? x_bytes : y_bytes;
    std::byte* outer = parts_.slots[static_cast<size_t>(Slot::kOuter)];
    for (int64_t row = 0; row < s_.rows; row += s_.chunk) {
      const int64_t rows = std::min(s_.chunk, s_.rows - row);
      copy_rows(x_ + row * x_bytes, rows, x_bytes, outer);
      if (s_.gradient)
        copy_rows(d_y_ + row * y_bytes, rows, y_bytes, parts_.slots[static_cast<size_t>(Slot::kDY)]);
      for (Kernel* kernel : chunk_of(rows, row == 0).kernels) kernel->run(overwrite && row == 0);
      if (result_ != nullptr) copy_rows(outer, rows, result_bytes, result_ + row * result_bytes);
    }
  }

 private:
  struct Chunk {
    ChunkKind kind;
    std::vector<Kernel*> kernels;  // one a step
  };

  const Chunk& chunk_of(int64_t rows, bool is_first) const {
    for (const Chunk& chunk : chunks_)
      if (chunk.kind.rows == rows && chunk.kind.is_first == is_first) return chunk;
    throw_internal("mlp: no kernels for a chunk of {} rows", rows);
  }

  std::unique_ptr<Kernel> bind(const Binding& b, const Step& step) const {
    const StepQuery of(step);
    const auto operands = [&](const std::vector<Place>& places) {
      std::vector<Operand> all;
      for (const Place& place : places)
        all.push_back({place.kind == Place::Kind::kSlot    ? parts_.slots[place.index]
                       : place.kind == Place::Kind::kInput ? b.inputs[place.index].data
                                                           : b.outputs[place.index].data,
                       place.type});
      return all;
    };
    return pick_kernel(of.query, b.dispatch)
        .make({step.op,
               b.name,
               step.attributes,
               operands(step.inputs),
               operands(step.outputs),
               {parts_.step, static_cast<size_t>(parts_.step_bytes.value)},
               b.dispatch});
  }

  MlpShape s_;
  MlpScratch parts_;
  const std::byte *x_ = nullptr, *d_y_ = nullptr;
  std::byte* result_ = nullptr;  // y or d_x; null: no gradient of x
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Chunk> chunks_;  // one a kind
};

std::optional<std::string> mlp_refusal(const OpQuery& query, const Dispatch&) {
  for (const auto& operands : {query.inputs, query.outputs})
    for (const OperandType& type : operands)
      if (type.dtype != DType::kF32 && !is_half(type.dtype))
        return fmt::format("computes f32, bf16 and f16, not {}", dtype_name(type.dtype));
  return std::nullopt;
}

Bytes mlp_scratch_bytes(const OpQuery& query, const Dispatch& dispatch) {
  Scratch scratch;
  take_mlp_scratch(mlp_shape(query), dispatch, scratch);
  return scratch.used();
}

std::unique_ptr<Kernel> make_mlp(const Binding& b) {
  std::vector<OperandType> inputs;
  for (const Operand& operand : b.inputs) inputs.push_back(operand.type);
  return std::make_unique<Mlp>(b, mlp_shape({b.op, inputs, {}, b.attributes}));
}

constexpr std::array kEntries = {
    KernelEntry{"mlp", "chunked", mlp_refusal, mlp_scratch_bytes, make_mlp},
    KernelEntry{"mlp_gradient", "chunked", mlp_refusal, mlp_scratch_bytes, make_mlp},
};

}  // namespace

std::span<const KernelEntry> mlp_kernels() { return kEntries; }

}  // namespace snug::cpu
