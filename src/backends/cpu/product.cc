// Products with weights: linear, linear_gelu, linear_add, linear_dx (rows · weight) and linear_dweight.
//
// Rows are multiplied in the same panels whatever the epilogue, so that a fused operation's product has the
// bits of the plain one. Panel lengths depend on shapes, types and dispatch class alone.
//
//   f32                       oneDNN's sgemm over all rows at once, straight into the output where nothing has to be added to it afterwards
//   bf16, f16, any class      the weight is widened to f32 in column panels of at most kWeightPanelElements, activations in row panels
//   bf16, avx512_bf16         oneDNN multiplies bf16 directly, accumulating and returning f32
//
// Measured (AVX2): one panel of 4,096 rows is 2–9 % faster than eight of 512 where N or K is 1,536 or more, equal elsewhere; widening
// costs 2–6 % of the f32 rate; panels of fewer than 512 rows 1.5–10 % (bench/kernels).

#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/panel.h"
#include "backends/cpu/scratch.h"
#include "base/errors.h"
#include "base/float16.h"

namespace snug::cpu {
namespace {

constexpr int64_t kPanelRows = 512;
// 32 MiB of f32: every weight of a GPT-2 124M block is one panel.
constexpr int64_t kWeightPanelElements = 8 * 1024 * 1024;
constexpr int64_t kWeightPanelMultiple = 64;

bool is_product_type(DType dtype) { return dtype == DType::kF32 || is_half(dtype); }

std::optional<std::string> type_refusal(const OpQuery& query, const Dispatch& dispatch, bool native) {
  for (const auto& operands : {query.inputs, query.outputs})
    for (const OperandType& type : operands)
      if (!is_product_type(type.dtype))
        return fmt::format("multiplies f32, bf16 and f16, not {}", dtype_name(type.dtype));
  if (!native) return std::nullopt;
  if (auto refusal = bf16_product_refusal(dispatch)) return refusal;
  if (query.inputs[0].dtype != DType::kBF16 || query.inputs[1].dtype != DType::kBF16)
    return fmt::format("multiplies bf16 by bf16, not {} by {}", dtype_name(query.inputs[0].dtype),
                       dtype_name(query.inputs[1].dtype));
  return std::nullopt;
}

enum class Epilogue { kNone, kGelu, kAdd };

// y (rows, N) = x (rows, K) · w, which is stored (K, N) or, transposed, (N, K).
struct RowsShape {
  int64_t rows = 0, N = 0, K = 0;
  bool transpose_w = false, has_bias = false, native = false;
  bool whole = false;  // one panel of all rows: nothing is widened
  DType x = DType::kF32, w = DType::kF32, y = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;

  int64_t panel_rows() const { return whole ? rows : std::min(rows, kPanelRows); }
  int64_t panel_columns() const {
    if (native || w == DType::kF32 || N * K <= kWeightPanelElements) return N;
    return std::min(
        N, std::max(kWeightPanelElements / K / kWeightPanelMultiple, int64_t{1}) * kWeightPanelMultiple);
  }
  // The product lands where the result will be, to be finished in place.
  bool in_place() const { return y == DType::kF32 && epilogue != Epilogue::kAdd; }
  MatmulShape matmul(int64_t m) const { return {m, N, K, false, transpose_w, x, w, DType::kF32, false}; }
};

RowsShape rows_shape(const OpQuery& query, bool native) {
  const OperandType& x = query.inputs[0];
  const OperandType& w = query.inputs[1];
  const bool oi = query.attributes.word("weight") == "oi";
  const bool backward = query.op == "linear_dx";  // has no bias, whatever attributes it inherited
  RowsShape s;
  s.rows = x.shape.rows();
  s.K = x.shape.last();
  s.N = query.outputs[0].shape.last();
  s.transpose_w = oi != backward;
  s.has_bias = !backward && query.attributes.integer_or("bias", 0) != 0;
  s.native = native;
  s.x = x.dtype;
  s.w = w.dtype;
  s.y = query.outputs[0].dtype;
  s.whole = s.x == DType::kF32 && s.w == DType::kF32 && s.y == DType::kF32;
  s.epilogue = query.op == "linear_gelu"  ? Epilogue::kGelu
               : query.op == "linear_add" ? Epilogue::kAdd
                                          : Epilogue::kNone;
  const Shape expected = s.transpose_w ? Shape{s.N, s.K} : Shape{s.K, s.N};
  require(w.shape == expected, "{}: weight is {}, expected {}", query.op, to_string(w.shape),
          to_string(expected));
  require(query.outputs[0].shape.rows() == s.rows, "{}: {} rows in, {} out", query.op, s.rows,
          query.outputs[0].shape.rows());
  return s;
}

// GELU of one panel of rows is the operation `gelu` itself, whatever kernel serves it: so the bits are those
// of linear followed by gelu.
struct GeluPanel {
  std::array<OperandType, 1> input, output;
  OpQuery query;

  GeluPanel(const RowsShape& s, int64_t rows, const Attributes& attributes)
      : input{{{s.y, {rows, s.N}}}}, output{{{s.y, {rows, s.N}}}}, query{"gelu", input, output, attributes} {}
};

struct RowsScratch {
  std::byte *weight = nullptr, *x = nullptr, *product = nullptr, *library = nullptr, *gelu = nullptr;
  Bytes library_bytes, gelu_bytes;
};

RowsScratch take_rows_scratch(const RowsShape& s, const Attributes& attributes, const Dispatch& dispatch,
                              Scratch& scratch) {
  RowsScratch parts;
  const int64_t rows = s.panel_rows(), columns = s.panel_columns();
  if (!s.native && is_half(s.w)) parts.weight = scratch.take(Shape{columns, s.K}.bytes(DType::kF32));
  if (!s.native && is_half(s.x)) parts.x = scratch.take(Shape{rows, s.K}.bytes(DType::kF32));
  if (!s.in_place()) parts.product = scratch.take(Shape{rows, columns}.bytes(DType::kF32));
  // A last, shorter panel exists when rows is no multiple of the panel.
  const std::array<int64_t, 2> panels = {rows, rows == 0 ? 0 : s.rows % rows};
  for (int64_t panel : panels) {
    if (panel == 0) continue;
    if (s.native) parts.library_bytes = std::max(parts.library_bytes, Matmul::scratch_bytes(s.matmul(panel), dispatch.threads));
    if (s.epilogue == Epilogue::kGelu) {
      const GeluPanel gelu(s, panel, attributes);
      parts.gelu_bytes =
          std::max(parts.gelu_bytes, pick_kernel(gelu.query, dispatch).scratch_bytes(gelu.query, dispatch));
    }
  }
  parts.library = scratch.take(parts.library_bytes);
  parts.gelu = scratch.take(parts.gelu_bytes);
  return parts;
}

class RowsTimesWeight : public Kernel {
 public:
  RowsTimesWeight(const Binding& b, const RowsShape& shape) : s_(shape) {
    Scratch scratch(b.scratch);
    parts_ = take_rows_scratch(s_, b.attributes, b.dispatch, scratch);
    x_ = {b.inputs[0].data, s_.x, s_.K};
    w_ = {b.inputs[1].data, s_.w, s_.transpose_w ? s_.K : s_.N};
    if (s_.has_bias) bias_ = {b.inputs[2].data, b.inputs[2].type.dtype, s_.N};
    if (s_.epilogue == Epilogue::kAdd) residual_ = {b.inputs.back().data, b.inputs.back().type.dtype, s_.N};
    y_ = {b.outputs[0].data, s_.y, s_.N};
    if (s_.native)
      for (int64_t rows : {s_.panel_rows(), s_.rows % std::max(s_.panel_rows(), int64_t{1})})
        if (rows > 0) matmuls_.emplace_back(s_.matmul(rows), b.dispatch.threads);
    if (s_.epilogue == Epilogue::kGelu)
      for (int64_t row = 0; row < s_.rows; row += s_.panel_rows()) bind_gelu(b, row);
  }

  void run(bool) override {
    for (int64_t column = 0; column < s_.N; column += s_.panel_columns()) {
      const int64_t columns = std::min(s_.panel_columns(), s_.N - column);
      const ConstRows w = weight_panel(column, columns);
      for (int64_t row = 0; row < s_.rows; row += s_.panel_rows()) {
        const int64_t rows = std::min(s_.panel_rows(), s_.rows - row);
        multiply(row, rows, column, columns, w);
        if (!gelus_.empty() && column + columns == s_.N)
          gelus_[static_cast<size_t>(row / s_.panel_rows())]->run(false);
      }
    }
  }

 private:
  void bind_gelu(const Binding& b, int64_t row) {
    const int64_t rows = std::min(s_.panel_rows(), s_.rows - row);
    const GeluPanel gelu(s_, rows, b.attributes);
    const int64_t begin_bytes = row * s_.N * dtype_bytes(s_.y);
    const Binding panel{"gelu",
                        b.name,
                        b.attributes,
                        {{b.outputs[0].data + begin_bytes, gelu.input[0]}},
                        {{b.outputs[1].data + begin_bytes, gelu.output[0]}},
                        {parts_.gelu, static_cast<size_t>(parts_.gelu_bytes.value)},
                        b.dispatch};
    gelus_.push_back(pick_kernel(gelu.query, b.dispatch).make(panel));
  }

  // Columns [column, column + columns) of the weight, as stored, in a form that can be multiplied.
  ConstRows weight_panel(int64_t column, int64_t columns) const {
    const ConstRows stored = s_.transpose_w ? w_.from(column, 0) : w_.from(0, column);
    if (s_.native || s_.w == DType::kF32) return stored;
    const int64_t rows = s_.transpose_w ? columns : s_.K, width = s_.transpose_w ? s_.K : columns;
    const Rows widened{parts_.weight, DType::kF32, width};
    widen_rows(stored, rows, width, widened);
    return widened;
  }

  void multiply(int64_t row, int64_t rows, int64_t column, int64_t columns, ConstRows w) const {
    const Rows y = y_.from(row, column);
    const Rows product = s_.in_place() ? y : Rows{parts_.product, DType::kF32, columns};
    if (s_.native) {
      // Native products have one column panel, so the product is dense.
      matmuls_[rows == s_.panel_rows() ? 0 : 1].run(x_.from(row, 0).data, w.data, product.data,
                                                    parts_.library);
    } else {
      ConstRows x = x_.from(row, 0);
      if (is_half(s_.x)) {
        const Rows widened{parts_.x, DType::kF32, s_.K};
        widen_rows(x, rows, s_.K, widened);
        x = widened;
      }
      sgemm(false, s_.transpose_w, rows, columns, s_.K, x.f32(), x.stride, w.f32(), w.stride, 0.0F,
            product.f32(), product.stride);
    }
    if (s_.in_place() && !s_.has_bias) return;
    const ConstRows none;
    finish_rows(product, s_.has_bias ? bias_.from(0, column) : none,
                s_.epilogue == Epilogue::kAdd ? residual_.from(row, column) : none, rows, columns, y);
  }

  RowsShape s_;
  RowsScratch parts_;
  ConstRows x_, w_, bias_, residual_;
  Rows y_;
  std::vector<Matmul> matmuls_;                 // one for full panels, one for the last
  std::vector<std::unique_ptr<Kernel>> gelus_;  // one a panel
};

// d_w (R, C) = leftᵀ · right over the rows: left (M, R), right (M, C). `oi`: left is d_y; `io`: left is x.
struct DWeightShape {
  int64_t M = 0, R = 0, C = 0;
  bool left_is_d_y = false, accumulate = false, native = false;
  DType left = DType::kF32, right = DType::kF32;

  bool widens() const { return !native && (is_half(left) || is_half(right)); }
  int64_t panel_rows() const { return widens() ? std::min(M, kPanelRows) : M; }
  MatmulShape matmul(bool adds) const { return {R, C, M, true, false, left, right, DType::kF32, adds}; }
};

DWeightShape dweight_shape(const OpQuery& query, bool native) {
  const OperandType &x = query.inputs[0], &d_y = query.inputs[1];
  DWeightShape s;
  s.left_is_d_y = query.attributes.word("weight") == "oi";
  s.accumulate = query.attributes.integer_or("accumulate", 0) != 0;
  s.native = native;
  const OperandType &left = s.left_is_d_y ? d_y : x, &right = s.left_is_d_y ? x : d_y;
  s.M = x.shape.rows();
  s.R = left.shape.last();
  s.C = right.shape.last();
  s.left = left.dtype;
  s.right = right.dtype;
  require(d_y.shape.rows() == s.M, "{}: {} rows of x, {} of d_y", query.op, s.M, d_y.shape.rows());
  require(query.outputs[0].shape == Shape{s.R, s.C}, "{}: d_w is {}, expected [{},{}]", query.op,
          to_string(query.outputs[0].shape), s.R, s.C);
  return s;
}

struct DWeightScratch {
  std::byte *left = nullptr, *right = nullptr, *library = nullptr;
};

DWeightScratch take_dweight_scratch(const DWeightShape& s, const Dispatch& dispatch, Scratch& scratch) {
  DWeightScratch parts;
  if (s.widens() && is_half(s.left))
    parts.left = scratch.take(Shape{s.panel_rows(), s.R}.bytes(DType::kF32));
  if (s.widens() && is_half(s.right))
    parts.right = scratch.take(Shape{s.panel_rows(), s.C}.bytes(DType::kF32));
  if (s.native)
    parts.library = scratch.take(
        std::max(Matmul::scratch_bytes(s.matmul(false), dispatch.threads),
                 s.accumulate ? Matmul::scratch_bytes(s.matmul(true), dispatch.threads) : Bytes()));
  return parts;
}

class DWeight : public Kernel {
 public:
  DWeight(const Binding& b, const DWeightShape& shape) : s_(shape) {
    Scratch scratch(b.scratch);
    parts_ = take_dweight_scratch(s_, b.dispatch, scratch);
    left_ = {b.inputs[s_.left_is_d_y ? 1 : 0].data, s_.left, s_.R};
    right_ = {b.inputs[s_.left_is_d_y ? 0 : 1].data, s_.right, s_.C};
    d_w_ = {b.outputs[0].data, DType::kF32, s_.C};
    if (s_.native) {
      matmuls_.emplace_back(s_.matmul(false), b.dispatch.threads);
      if (s_.accumulate) matmuls_.emplace_back(s_.matmul(true), b.dispatch.threads);
    }
  }

  void run(bool overwrite) override {
    const bool adds = s_.accumulate && !overwrite;
    if (s_.native) return matmuls_[adds ? 1 : 0].run(left_.data, right_.data, d_w_.data, parts_.library);
    for (int64_t row = 0; row < s_.M; row += s_.panel_rows()) {
      const int64_t rows = std::min(s_.panel_rows(), s_.M - row);
      const ConstRows left = widened(left_.from(row, 0), rows, s_.R, parts_.left),
                      right = widened(right_.from(row, 0), rows, s_.C, parts_.right);
      sgemm(true, false, s_.R, s_.C, rows, left.f32(), s_.R, right.f32(), s_.C, adds || row > 0 ? 1.0F : 0.0F,
            d_w_.f32(), s_.C);
    }
  }

 private:
  static ConstRows widened(ConstRows stored, int64_t rows, int64_t columns, std::byte* panel) {
    if (stored.dtype == DType::kF32) return stored;
    const Rows to{panel, DType::kF32, columns};
    widen_rows(stored, rows, columns, to);
    return to;
  }

  DWeightShape s_;
  DWeightScratch parts_;
  ConstRows left_, right_;
  Rows d_w_;
  std::vector<Matmul> matmuls_;  // overwriting, adding
};

std::vector<OperandType> types(const std::vector<Operand>& operands) {
  std::vector<OperandType> result;
  for (const Operand& operand : operands) result.push_back(operand.type);
  return result;
}

template <bool kNative>
std::optional<std::string> product_refusal(const OpQuery& query, const Dispatch& dispatch) {
  return type_refusal(query, dispatch, kNative);
}

template <bool kNative>
Bytes rows_scratch_bytes(const OpQuery& query, const Dispatch& dispatch) {
  Scratch scratch;
  take_rows_scratch(rows_shape(query, kNative), query.attributes, dispatch, scratch);
  return scratch.used();
}

template <bool kNative>
std::unique_ptr<Kernel> make_rows(const Binding& b) {
  const std::vector<OperandType> inputs = types(b.inputs), outputs = types(b.outputs);
  return std::make_unique<RowsTimesWeight>(b, rows_shape({b.op, inputs, outputs, b.attributes}, kNative));
}

template <bool kNative>
Bytes dweight_scratch_bytes(const OpQuery& query, const Dispatch& dispatch) {
  Scratch scratch;
  take_dweight_scratch(dweight_shape(query, kNative), dispatch, scratch);
  return scratch.used();
}

template <bool kNative>
std::unique_ptr<Kernel> make_dweight(const Binding& b) {
  const std::vector<OperandType> inputs = types(b.inputs), outputs = types(b.outputs);
  return std::make_unique<DWeight>(b, dweight_shape({b.op, inputs, outputs, b.attributes}, kNative));
}

template <bool kNative>
constexpr KernelEntry rows_entry(std::string_view op) {
  return {op, kNative ? "onednn_bf16" : "onednn", product_refusal<kNative>, rows_scratch_bytes<kNative>,
          make_rows<kNative>};
}
template <bool kNative>
constexpr KernelEntry dweight_entry() {
  return {"linear_dweight", kNative ? "onednn_bf16" : "onednn", product_refusal<kNative>,
          dweight_scratch_bytes<kNative>, make_dweight<kNative>};
}

constexpr std::array kEntries = {
    rows_entry<true>("linear"),       rows_entry<false>("linear"),    rows_entry<true>("linear_gelu"),
    rows_entry<false>("linear_gelu"), rows_entry<true>("linear_add"), rows_entry<false>("linear_add"),
    rows_entry<true>("linear_dx"),    rows_entry<false>("linear_dx"), dweight_entry<true>(),
    dweight_entry<false>(),
};

}  // namespace

std::span<const KernelEntry> product_kernels() { return kEntries; }

}  // namespace snug::cpu
