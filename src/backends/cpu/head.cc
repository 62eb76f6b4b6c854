// The head in chunks of rows: logits of a chunk, their loss, and both gradients in one pass, so that whole logits never exist.
//
// Scratch: the chunk's logits (chunk, V) f32, over which their gradient is written. With bf16 and f16 the weight is widened in panels of at most
// kWeightPanelElements (twice a chunk in the gradient: once for the logits, once for d_x), and the chunk's x and d_x are f32 rows. Where the processor
// multiplies bf16, nothing is widened: oneDNN reads x, the weight and the logits' gradient in bf16, and d_x is the chunk's f32 rows.
// With bf16 the logits' gradient is rounded to bf16 on every class. Chunks whose targets are all ignored are skipped.
// The loss is summed in f64 over rows in order. Rows that are ignored get d_x = 0 exactly.
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/head_rows.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/panel.h"
#include "backends/cpu/scratch.h"
#include "base/errors.h"
#include "base/float16.h"

namespace snug::cpu {
namespace {

// 16 MiB of f32.
constexpr int64_t kWeightPanelElements = 4 * 1024 * 1024;
constexpr int64_t kWeightPanelMultiple = 64;

// Targets of some rows.
struct Targets {
  const int32_t* data = nullptr;
  int64_t vocabulary = 0;

  // Throws InternalError for a target that is neither ignored nor a token: data is validated before it gets here.
  bool any_supervised(std::string_view op, int64_t first, int64_t rows) const {
    bool any = false;
    for (int64_t row = first; row < first + rows; ++row) {
      const int32_t target = data[row];
      require(target == kIgnoredTarget || (target >= 0 && target < vocabulary),
              "{}: target {} at row {}, {} tokens", op, target, row, vocabulary);
      any = any || target != kIgnoredTarget;
    }
    return any;
  }
};

double sum_in_order(const double* losses, int64_t rows) {
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += losses[row];
  return sum;
}

// losses[row] of `rows` rows of logits.
void rows_loss(const float* logits, int64_t rows, const Targets& targets, int64_t first, double* losses) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row)
    losses[row] = row_loss(logits + row * targets.vocabulary, targets.vocabulary, targets.data[first + row]);
}

void rows_loss_gradient(float* logits, int64_t rows, const Targets& targets, int64_t first,
                        float inverse_tokens, LogitGradient form, double* losses) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row)
    losses[row] = row_loss_gradient(logits + row * targets.vocabulary, targets.vocabulary,
                                    targets.data[first + row], inverse_tokens, form);
}

// What the gradient of the loss is multiplied by: an operand with scaled=1, else 1.
struct LossScale {
  const float* operand = nullptr;
  float value() const { return operand == nullptr ? 1.0f : *operand; }
};
LossScale loss_scale(const Binding& b, size_t position) {
  if (b.attributes.integer_or("scaled", 0) == 0) return {};
  return {b.inputs.at(position).as<float>()};
}

struct HeadShape {
  int64_t rows = 0, C = 0, V = 0, chunk = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool gradient = false, dweight = false, accumulate = false, native = false;

  LogitGradient form() const {
    if (x != DType::kBF16) return LogitGradient::kF32;
    return native ? LogitGradient::kBF16 : LogitGradient::kRounded;
  }
  // Of `m` rows of a chunk, where the processor multiplies bf16. The logits' gradient has the rows of f32 logits.
  MatmulShape logits_product(int64_t m) const { return {.m = m, .n = V, .k = C, .transpose_b = true}; }
  MatmulShape d_x_product(int64_t m) const { return {.m = m, .n = C, .k = V, .stride_a = 2 * V}; }
  MatmulShape d_w_product(int64_t m, bool adds) const {
    return {.m = V, .n = C, .k = m, .transpose_a = true, .accumulate = adds, .stride_a = 2 * V};
  }

  int64_t panel() const {
    if (w == DType::kF32) return V;
    return std::min(
        V, std::max(kWeightPanelElements / C / kWeightPanelMultiple, int64_t{1}) * kWeightPanelMultiple);
  }
};

HeadShape head_shape(const OpQuery& query, bool native) {
  const OperandType &x = query.inputs[0], &w = query.inputs[1];
  HeadShape s;
  s.rows = x.shape.rows();
  s.C = x.shape.last();
  s.V = w.shape.dim(0);
  s.x = x.dtype;
  s.w = w.dtype;
  const int64_t chunk = query.attributes.integer("chunk");
  require(chunk > 0, "{}: chunk of {} rows", query.op, chunk);
  require(w.shape == Shape{s.V, s.C}, "{}: w is {}, expected [V,{}]", query.op, to_string(w.shape), s.C);
  s.chunk = std::min(s.rows, chunk);
  s.gradient = query.op == "head_loss_gradient";
  s.dweight = s.gradient && query.attributes.integer("dweight") != 0;
  s.accumulate = s.dweight && query.attributes.integer_or("accumulate", 0) != 0;
  s.native = native;
  return s;
}

// The products of a chunk of so many rows.
struct ChunkProducts {
  Matmul logits;
  std::optional<Matmul> d_x, d_w, d_w_adding;

  ChunkProducts(const HeadShape& s, int64_t rows, int threads) : logits(s.logits_product(rows), threads) {
    if (s.gradient) d_x.emplace(s.d_x_product(rows), threads);
    if (!s.dweight) return;
    d_w.emplace(s.d_w_product(rows, false), threads);
    d_w_adding.emplace(s.d_w_product(rows, true), threads);
  }

  static Bytes scratch_bytes(const HeadShape& s, int64_t rows, int threads) {
    Bytes most = Matmul::scratch_bytes(s.logits_product(rows), threads);
    if (s.gradient) most = std::max(most, Matmul::scratch_bytes(s.d_x_product(rows), threads));
    if (s.dweight)
      for (bool adds : {false, true})
        most = std::max(most, Matmul::scratch_bytes(s.d_w_product(rows, adds), threads));
    return most;
  }
};

struct HeadScratch {
  float *logits = nullptr, *x = nullptr, *d_x = nullptr, *weight = nullptr;
  double* losses = nullptr;
  std::byte* library = nullptr;
};

HeadScratch take_head_scratch(const HeadShape& s, const Dispatch& dispatch, Scratch& scratch) {
  HeadScratch parts;
  parts.logits = scratch.take<float>(checked_mul(s.chunk, s.V));
  parts.losses = scratch.take<double>(s.chunk);
  if (is_half(s.x) && s.gradient) parts.d_x = scratch.take<float>(checked_mul(s.chunk, s.C));
  if (s.native) {
    Bytes library;
    for (int64_t rows : {s.chunk, s.rows % std::max(s.chunk, int64_t{1})})
      if (rows > 0) library = std::max(library, ChunkProducts::scratch_bytes(s, rows, dispatch.threads));
    parts.library = scratch.take(library);
    return parts;
  }
  if (is_half(s.x)) parts.x = scratch.take<float>(checked_mul(s.chunk, s.C));
  if (is_half(s.w)) parts.weight = scratch.take<float>(checked_mul(s.panel(), s.C));
  return parts;
}

class Head : public Kernel {
 public:
  Head(const Binding& b, const HeadShape& shape) : s_(shape), op_(b.op) {
    Scratch scratch(b.scratch);
    parts_ = take_head_scratch(s_, b.dispatch, scratch);
    x_ = {b.inputs[0].data, s_.x, s_.C};
    w_ = {b.inputs[1].data, s_.w, s_.C};
    targets_ = {b.inputs[2].as<int32_t>(), s_.V};
    inverse_tokens_ = b.inputs[3].as<float>();
    loss_scale_ = loss_scale(b, 4);
    loss_ = b.outputs[0].as<float>();
    if (s_.gradient) d_x_ = {b.outputs[1].data, s_.x, s_.C};
    if (s_.dweight) d_w_ = b.outputs[2].as<float>();
    if (s_.native)
      for (int64_t rows : {s_.chunk, s_.rows % std::max(s_.chunk, int64_t{1})})
        if (rows > 0) products_.emplace_back(s_, rows, b.dispatch.threads);
  }

  void run(bool overwrite) override {
    double sum = 0;
    bool adds = s_.accumulate && !overwrite;  // whether d_w already holds something that counts
    for (int64_t row = 0; row < s_.rows; row += s_.chunk) {
      const int64_t rows = std::min(s_.chunk, s_.rows - row);
      if (!targets_.any_supervised(op_, row, rows)) {
        if (s_.gradient) std::fill_n(d_x_.from(row, 0).data, rows * s_.C * dtype_bytes(s_.x), std::byte{0});
        continue;
      }
      const float* x = s_.native ? nullptr : chunk_rows(row, rows);
      if (s_.native) make_native_logits(row, rows);
      else make_logits(x, rows);
      if (s_.gradient) {
        rows_loss_gradient(parts_.logits, rows, targets_, row, *inverse_tokens_ * loss_scale_.value(), s_.form(),
                           parts_.losses);
        if (s_.native) make_native_gradients(row, rows, adds);
        else make_gradients(x, row, rows, adds);
        adds = true;
      } else {
        rows_loss(parts_.logits, rows, targets_, row, parts_.losses);
      }
      sum += sum_in_order(parts_.losses, rows);
    }
    if (s_.dweight && !adds) std::fill_n(d_w_, s_.V * s_.C, 0.0f);
    *loss_ = static_cast<float>(sum * double{*inverse_tokens_});
  }

 private:
  const float* chunk_rows(int64_t row, int64_t rows) const {
    if (s_.x == DType::kF32) return x_.from(row, 0).f32();
    widen_rows(x_.from(row, 0), rows, s_.C, {reinterpret_cast<std::byte*>(parts_.x), DType::kF32, s_.C});
    return parts_.x;
  }

  // Rows [token, token + tokens) of w in f32.
  const float* weight_panel(int64_t token, int64_t tokens) const {
    if (s_.w == DType::kF32) return w_.from(token, 0).f32();
    widen_rows(w_.from(token, 0), tokens, s_.C,
               {reinterpret_cast<std::byte*>(parts_.weight), DType::kF32, s_.C});
    return parts_.weight;
  }

  void make_logits(const float* x, int64_t rows) const {
    for (int64_t token = 0; token < s_.V; token += s_.panel()) {
      const int64_t tokens = std::min(s_.panel(), s_.V - token);
      sgemm(false, true, rows, tokens, s_.C, x, s_.C, weight_panel(token, tokens), s_.C, 0.0f,
            parts_.logits + token, s_.V);
    }
  }

  // From logits that have become d_logits.
  void make_gradients(const float* x, int64_t row, int64_t rows, bool adds) const {
    float* d_x = s_.x == DType::kF32 ? d_x_.from(row, 0).f32() : parts_.d_x;
    for (int64_t token = 0; token < s_.V; token += s_.panel()) {
      const int64_t tokens = std::min(s_.panel(), s_.V - token);
      sgemm(false, false, rows, s_.C, tokens, parts_.logits + token, s_.V, weight_panel(token, tokens), s_.C,
            token > 0 ? 1.0f : 0.0f, d_x, s_.C);
    }
    if (s_.x != DType::kF32)
      finish_rows({reinterpret_cast<std::byte*>(d_x), DType::kF32, s_.C}, {}, {}, rows, s_.C,
                  d_x_.from(row, 0));
    if (s_.dweight)
      sgemm(true, false, s_.V, s_.C, rows, parts_.logits, s_.V, x, s_.C, adds ? 1.0f : 0.0f, d_w_, s_.C);
  }

  const ChunkProducts& products(int64_t rows) const { return products_[rows == s_.chunk ? 0 : 1]; }

  void make_native_logits(int64_t row, int64_t rows) const {
    products(rows).logits.run(x_.from(row, 0).data, w_.data, reinterpret_cast<std::byte*>(parts_.logits),
                              parts_.library);
  }

  void make_native_gradients(int64_t row, int64_t rows, bool adds) const {
    const auto* d_logits = reinterpret_cast<const std::byte*>(parts_.logits);
    const Rows d_x{reinterpret_cast<std::byte*>(parts_.d_x), DType::kF32, s_.C};
    products(rows).d_x->run(d_logits, w_.data, d_x.data, parts_.library);
    finish_rows(d_x, {}, {}, rows, s_.C, d_x_.from(row, 0));
    if (s_.dweight)
      (adds ? products(rows).d_w_adding : products(rows).d_w)
          ->run(d_logits, x_.from(row, 0).data, reinterpret_cast<std::byte*>(d_w_), parts_.library);
  }

  HeadShape s_;
  std::string op_;
  HeadScratch parts_;
  std::vector<ChunkProducts> products_;  // of a whole chunk, of the last one
  ConstRows x_, w_;
  Targets targets_;
  const float* inverse_tokens_ = nullptr;
  LossScale loss_scale_;
  float* loss_ = nullptr;
  Rows d_x_;
  float* d_w_ = nullptr;
};

// cross_entropy: loss from whole logits. scratch: a loss for each row
class CrossEntropy : public Kernel {
 public:
  explicit CrossEntropy(const Binding& b)
      : op_(b.op),
        rows_(b.inputs[0].type.shape.rows()),
        logits_(b.inputs[0].as<float>()),
        targets_{b.inputs[1].as<int32_t>(), b.inputs[0].type.shape.last()},
        inverse_tokens_(b.inputs[2].as<float>()),
        loss_(b.outputs[0].as<float>()),
        losses_(Scratch(b.scratch).take<double>(rows_)) {}

  void run(bool) override {
    double sum = 0;
    if (targets_.any_supervised(op_, 0, rows_)) {
      rows_loss(logits_, rows_, targets_, 0, losses_);
      sum = sum_in_order(losses_, rows_);
    }
    *loss_ = static_cast<float>(sum * double{*inverse_tokens_});
  }

 private:
  std::string op_;
  int64_t rows_;
  const float* logits_;
  Targets targets_;
  const float* inverse_tokens_;
  float* loss_;
  double* losses_;
};

// cross_entropy_backward: d_logits may be the logits' storage
class CrossEntropyBackward : public Kernel {
 public:
  explicit CrossEntropyBackward(const Binding& b)
      : op_(b.op),
        rows_(b.inputs[0].type.shape.rows()),
        logits_(b.inputs[0].as<float>()),
        targets_{b.inputs[1].as<int32_t>(), b.inputs[0].type.shape.last()},
        inverse_tokens_(b.inputs[2].as<float>()),
        loss_scale_(loss_scale(b, 3)),
        d_logits_(b.outputs[0].as<float>()),
        losses_(Scratch(b.scratch).take<double>(rows_)) {}

  void run(bool) override {
    targets_.any_supervised(op_, 0, rows_);
    if (d_logits_ != logits_) std::copy_n(logits_, rows_ * targets_.vocabulary, d_logits_);
    rows_loss_gradient(d_logits_, rows_, targets_, 0, *inverse_tokens_ * loss_scale_.value(),
                       LogitGradient::kF32, losses_);
  }

 private:
  std::string op_;
  int64_t rows_;
  const float* logits_;
  Targets targets_;
  const float* inverse_tokens_;
  LossScale loss_scale_;
  float* d_logits_;
  double* losses_;
};

// last_logits: bound by reading w once, so straight dot products. scratch: the rows of x in f32
class LastLogits : public Kernel {
 public:
  explicit LastLogits(const Binding& b)
      : samples_(b.inputs[0].type.shape.dim(0)),
        positions_(b.inputs[0].type.shape.dim(1)),
        C_(b.inputs[0].type.shape.last()),
        V_(b.inputs[1].type.shape.dim(0)),
        x_{b.inputs[0].data, b.inputs[0].type.dtype, positions_ * C_},
        w_{b.inputs[1].data, b.inputs[1].type.dtype, C_},
        position_(b.inputs[2].as<int32_t>()),
        logits_(b.outputs[0].as<float>()),
        rows_{Scratch(b.scratch).take(Shape{samples_, C_}.bytes(DType::kF32)), DType::kF32, C_} {}

  void run(bool) override {
    const int32_t position = *position_;
    require(position >= 0 && position < positions_, "last_logits: position {} of {}", position, positions_);
    widen_rows(x_.from(0, position * C_), samples_, C_, rows_);
#pragma omp parallel for schedule(static)
    for (int64_t token = 0; token < V_; ++token)
      for (int64_t sample = 0; sample < samples_; ++sample)
        logits_[sample * V_ + token] = dot(rows_.from(sample, 0).f32(), w_.from(token, 0).data, w_.dtype, C_);
  }

 private:
  int64_t samples_, positions_, C_, V_;
  ConstRows x_, w_;
  const int32_t* position_;
  float* logits_;
  Rows rows_;
};

std::optional<std::string> native_head_refusal(const OpQuery& query, const Dispatch& dispatch) {
  for (const OperandType& type : query.inputs.first(2))
    if (type.dtype != DType::kBF16) return fmt::format("multiplies bf16, not {}", dtype_name(type.dtype));
  return bf16_product_refusal(dispatch);
}

std::optional<std::string> head_refusal(const OpQuery& query, const Dispatch&) {
  for (const OperandType& type : query.inputs.first(2))
    if (type.dtype != DType::kF32 && !is_half(type.dtype))
      return fmt::format("computes f32, bf16 and f16, not {}", dtype_name(type.dtype));
  return std::nullopt;
}

std::optional<std::string> logits_refusal(const OpQuery& query, const Dispatch&) {
  if (query.inputs[0].dtype != DType::kF32)
    return fmt::format("takes f32 logits, not {}", dtype_name(query.inputs[0].dtype));
  if (query.attributes.has("out")) return "writes the logits' gradient in f32";
  return std::nullopt;
}

template <bool kNative>
Bytes head_scratch_bytes(const OpQuery& query, const Dispatch& dispatch) {
  Scratch scratch;
  take_head_scratch(head_shape(query, kNative), dispatch, scratch);
  return scratch.used();
}

Bytes row_losses_bytes(const OpQuery& query, const Dispatch&) {
  Scratch scratch;
  scratch.take<double>(query.inputs[0].shape.rows());
  return scratch.used();
}

Bytes last_logits_scratch_bytes(const OpQuery& query, const Dispatch&) {
  Scratch scratch;
  scratch.take(Shape{query.inputs[0].shape.dim(0), query.inputs[0].shape.last()}.bytes(DType::kF32));
  return scratch.used();
}

template <bool kNative>
std::unique_ptr<Kernel> make_head(const Binding& b) {
  std::vector<OperandType> inputs;
  for (const Operand& operand : b.inputs) inputs.push_back(operand.type);
  return std::make_unique<Head>(b, head_shape({b.op, inputs, {}, b.attributes}, kNative));
}

template <typename K>
std::unique_ptr<Kernel> make(const Binding& b) {
  return std::make_unique<K>(b);
}

constexpr std::array kEntries = {
    KernelEntry{"head_loss", "chunked_bf16", native_head_refusal, head_scratch_bytes<true>, make_head<true>},
    KernelEntry{"head_loss", "chunked", head_refusal, head_scratch_bytes<false>, make_head<false>},
    KernelEntry{"head_loss_gradient", "chunked_bf16", native_head_refusal, head_scratch_bytes<true>,
                make_head<true>},
    KernelEntry{"head_loss_gradient", "chunked", head_refusal, head_scratch_bytes<false>, make_head<false>},
    KernelEntry{"cross_entropy", "highway", logits_refusal, row_losses_bytes, make<CrossEntropy>},
    KernelEntry{"cross_entropy_backward", "highway", logits_refusal, row_losses_bytes,
                make<CrossEntropyBackward>},
    KernelEntry{"last_logits", "highway", head_refusal, last_logits_scratch_bytes, make<LastLogits>},
};

}  // namespace

std::span<const KernelEntry> head_kernels() { return kEntries; }

}  // namespace snug::cpu
