// ir/op_examples.h — one graph text for each kind of phase that together hold every operation, for tests
//
// Written by hand from docs/operations.md, types and all:
// B = 2, T = 6, C = 8, V = 20, H = 4, K = 2, D = 2, F = 12.
#pragma once

#include <string_view>

namespace snug {

constexpr std::string_view kForwardExamples = R"(graph forward
state %wte : bf16[20,8] weights parameter=wte.weight trainable decay
state %w_fc : bf16[8,12] weights parameter="h/0 fc \"w\"" trainable decay
state %b_fc : bf16[12] weights parameter=h.0.fc.bias trainable
state %w_proj : bf16[8,12] weights parameter=h.0.proj.weight trainable decay
state %norm_w : bf16[8] weights parameter=ln.weight trainable
state %norm_b : bf16[8] weights parameter=ln.bias trainable
state %w_kv : bf16[4,8] weights parameter=kv.weight
state %w_qkv : bf16[16,8] weights parameter=qkv.weight
state %w_down : bf16[12,8] weights parameter=down.weight
state %w_gate : bf16[12,8] weights parameter=gate.weight trainable
state %w_up : bf16[12,8] weights parameter=up.weight trainable
input %tokens : i32[2,6] data
input %targets : i32[2,6] data
input %positions : i32[2,6] data
input %document_starts : i32[2,6] data
input %inverse_tokens : f32[1] data
input %randomness : u32[2,4] data
input %position : i32[1] data
%x : bf16[2,6,8] activations = embedding(%tokens, %wte) @forward name=wte
%x1 : bf16[2,6,8] activations = dropout(%x, %randomness) {probability=0.1, stream=-77} @forward name=drop
%ln : bf16[2,6,8] activations, %mean : f32[2,6] activations, %rstd : f32[2,6] activations = layer_norm(%x1, %norm_w, %norm_b) {eps=1e-05} @forward block=0 name=h.0.ln_1
%rms : bf16[2,6,8] activations, %rrms : f32[2,6] activations = rms_norm(%ln, %norm_w) {eps=1e-06} @forward block=0 name=h.0.rms
%k : bf16[2,6,4] activations = linear(%rms, %w_kv) {bias=0, weight=oi} @forward block=0 name=h.0.k
%v : bf16[2,6,4] activations = linear(%rms, %w_kv) {bias=0, weight=oi} @forward block=0 name=h.0.v
%cos : f32[2,6,1] activations, %sin : f32[2,6,1] activations = rotary_table(%positions) {factor=8.0, head_dim=2, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, theta=500000.0, type=llama3} @forward name=rotary
%cos1 : f32[2,6,1] activations, %sin1 : f32[2,6,1] activations = rotary_table(%positions) {attention_factor=1.1, beta_fast=32.0, beta_slow=1.0, factor=4.0, head_dim=2, original_max_position_embeddings=4096, theta=10000.0, truncate=1, type=yarn} @forward name=rotary_yarn
%q : bf16[2,6,8] activations = rotary(%rms, %cos, %sin) {heads=4, inverse=0} @forward block=0 name=h.0.q_rotary
%a : bf16[2,6,8] activations, %lse : f32[2,4,6] activations = attention(%q, %k, %v, %document_starts, %randomness) {dropout=0.1, heads=4, kv_heads=2, scale=0.5, stream=5} @forward block=0 name=h.0.attn
%qkv : bf16[2,6,16] activations = linear(%a, %w_qkv) {bias=0, weight=oi} @forward block=0 name=h.0.qkv
%a1 : bf16[2,6,8] activations, %lse1 : f32[2,4,6] activations = attention_qkv(%qkv, %document_starts) {dropout=0.0, heads=4, kv_heads=2, scale=0.5} @forward block=0 name=h.0.attn_qkv
%sum : bf16[2,6,8] activations = add(%x1, %a1) @forward block=0 name=h.0.residual alias=0:1
%u : bf16[2,6,12] activations = linear(%sum, %w_fc, %b_fc) {bias=1, weight=io} @forward block=0 name=h.0.fc
%h : bf16[2,6,12] activations = gelu(%u) {approximate=tanh} @forward block=0 name=h.0.gelu
%u1 : bf16[2,6,12] activations, %h1 : bf16[2,6,12] activations = linear_gelu(%sum, %w_fc, %b_fc) {approximate=none, bias=1, weight=io} @forward block=0 name=h.0.fc_gelu
%m : bf16[2,6,12] activations = swiglu(%h, %h1) @forward block=0 name=h.0.swiglu alias=0:0
%mlp : bf16[2,6,8] activations = mlp(%sum, %w_fc, %b_fc, %w_down, %norm_b) {activation=gelu_tanh, bias=1, chunk=5, weight=io} @forward block=0 name=h.0.mlp
%gated : bf16[2,6,8] activations = mlp(%mlp, %w_gate, %w_up, %w_proj) {activation=swiglu, bias=0, chunk=12, weight=oi} @forward block=0 name=h.0.gated alias=0:0
%y : bf16[2,6,8] activations = linear_add(%m, %w_proj, %sum) {bias=0, weight=oi} @forward block=0 name=h.0.proj alias=0:2
%loss : f32[1] activations = head_loss(%y, %wte, %targets, %inverse_tokens) {chunk=1024} @forward name=loss
%logits : f32[2,6,20] activations = linear(%y, %wte) {bias=0, out=f32, weight=oi} @forward name=logits
%loss1 : f32[1] activations = cross_entropy(%logits, %targets, %inverse_tokens) @forward name=plain_loss
%last : f32[2,20] activations = last_logits(%y, %wte, %position) @forward name=last
%m.codes : u8[2,6,12] activations, %m.scales : f32[2] activations = fp8_encode(%m) {block=128, format=e4m3} @forward block=0 name=m.encode
%m.decode : bf16[2,6,12] activations = fp8_decode(%m.codes, %m.scales) {block=128, format=e4m3, out=bf16} @recompute block=0 name=m.decode
results %loss, %loss1, %last
)";

constexpr std::string_view kBackwardExamples = R"(graph backward
state %wte : bf16[20,8] weights parameter=wte.weight trainable decay
state %w_fc : bf16[8,12] weights parameter=h.0.fc.weight trainable decay
state %norm_w : bf16[8] weights parameter=ln.weight trainable
state %b_fc : bf16[12] weights parameter=h.0.fc.bias trainable
state %w_down : bf16[12,8] weights parameter=down.weight trainable
state %w_gate : bf16[12,8] weights parameter=gate.weight trainable
state %w_up : bf16[12,8] weights parameter=up.weight
state %w_proj : bf16[8,12] weights parameter=proj.weight trainable
input %tokens : i32[2,6] data
input %document_starts : i32[2,6] data
input %inverse_tokens : f32[1] data
input %loss_scale : f32[1] data
input %randomness : u32[2,4] data
carried %d.wte : f32[20,8] gradients
carried %d.norm_w : f32[8] gradients
carried %d.norm_b : f32[8] gradients
carried %d.w_gate : f32[12,8] gradients
carried %d.w_proj : f32[8,12] gradients
carried %x : bf16[2,6,8] activations
carried %kv : bf16[2,6,4] activations
carried %qkv : bf16[2,6,16] activations
carried %u : bf16[2,6,12] activations
carried %rstd : f32[2,6] activations
carried %lse : f32[2,4,6] activations
carried %logits : f32[2,6,20] activations
%loss : f32[1] activations, %d.x : bf16[2,6,8] activations, %d.wte.1 : f32[20,8] gradients = head_loss_gradient(%x, %wte, %tokens, %inverse_tokens, %d.wte) {accumulate=1, chunk=1024, dweight=1, overwrite_first=1} @backward name=loss.gradient alias=2:4
%loss1 : f32[1] activations, %d.x1 : bf16[2,6,8] activations = head_loss_gradient(%x, %wte, %tokens, %inverse_tokens) {accumulate=0, chunk=1024, dweight=0} @backward name=frozen.gradient
%loss2 : f32[1] activations, %d.x5 : bf16[2,6,8] activations = head_loss_gradient(%x, %wte, %tokens, %inverse_tokens, %loss_scale) {accumulate=0, chunk=1024, dweight=0, scaled=1} @backward name=scaled.gradient
%d.logits1 : f32[2,6,20] activations = cross_entropy_backward(%logits, %tokens, %inverse_tokens, %loss_scale) {scaled=1} @backward name=scaled.logits
%d.logits : f32[2,6,20] activations = cross_entropy_backward(%logits, %tokens, %inverse_tokens) @backward name=logits.gradient
%d.x2 : bf16[2,6,8] activations = linear_dx(%d.logits, %wte) {weight=oi} @backward name=logits.dx
%d.u : bf16[2,6,12] activations = linear_dx(%d.x2, %w_fc) {weight=oi} @backward name=proj.dx
%d.u1 : bf16[2,6,12] activations = gelu_backward(%d.u, %u) {approximate=tanh} @backward name=gelu.du alias=0:0
%d.gate : bf16[2,6,12] activations, %d.up : bf16[2,6,12] activations = swiglu_backward(%d.u1, %u, %u) @backward name=swiglu.backward alias=0:0
%d.w_fc : f32[8,12] gradients = linear_dweight(%x, %d.up) {accumulate=0, weight=io} @backward name=fc.dweight
%d.b_fc : f32[12] gradients = linear_dbias(%d.gate) {accumulate=0} @backward name=fc.dbias
%d.norm_w.1 : f32[8] gradients, %d.norm_b.1 : f32[8] gradients = layer_norm_dweight(%d.x, %x, %rstd, %rstd, %d.norm_w, %d.norm_b) {accumulate=1} @backward name=ln.dweight alias=0:4,1:5
%d.x3 : bf16[2,6,8] activations = layer_norm_dx(%d.x, %x, %norm_w, %rstd, %rstd) @backward name=ln.dx alias=0:0
%d.norm_w.2 : f32[8] gradients = rms_norm_dweight(%d.x3, %x, %rstd, %d.norm_w.1) {accumulate=1} @backward name=rms.dweight alias=0:3
%d.x4 : bf16[2,6,8] activations = rms_norm_dx(%d.x3, %x, %norm_w, %rstd) @backward name=rms.dx alias=0:0
%d.q : bf16[2,6,8] activations, %d.k : bf16[2,6,4] activations, %d.v : bf16[2,6,4] activations = attention_backward(%d.x4, %x, %kv, %kv, %x, %lse, %document_starts, %randomness) {dropout=0.1, heads=4, kv_heads=2, scale=0.5, stream=5} @backward block=0 name=attn.backward
%d.qkv : bf16[2,6,16] activations = attention_qkv_backward(%d.q, %qkv, %x, %lse, %document_starts) {dropout=0.0, heads=4, kv_heads=2, scale=0.5} @backward block=0 name=attn_qkv.backward
%d.wte.2 : f32[20,8] gradients = embedding_dtable(%tokens, %d.q, %d.wte.1) {accumulate=1, rows=20} @backward name=wte.dtable alias=0:2
%d.x6 : bf16[2,6,8] activations, %d.w_fc.1 : f32[8,12] gradients, %d.b_fc.1 : f32[12] gradients, %d.w_down : f32[12,8] gradients, %d.b_down : f32[8] gradients = mlp_gradient(%d.x5, %x, %w_fc, %b_fc, %w_down, %norm_w) {accumulate=0, activation=gelu_none, bias=1, chunk=5, gradients=31, weight=io} @backward name=mlp.gradient
%d.x7 : bf16[2,6,8] activations, %d.w_gate.1 : f32[12,8] gradients, %d.w_proj.1 : f32[8,12] gradients = mlp_gradient(%d.x6, %x, %w_gate, %w_up, %w_proj, %d.w_gate, %d.w_proj) {accumulate=1, activation=swiglu, bias=0, chunk=4, gradients=11, overwrite_first=1, weight=oi} @backward name=gated.gradient alias=1:5,2:6,0:0
results %loss, %d.wte, %d.norm_w, %d.norm_b, %d.w_fc, %d.b_fc
)";

constexpr std::string_view kUpdateExamples = R"(graph update
state %wte : bf16[20,8] weights parameter=wte.weight trainable decay
state %wte.master : f32[20,8] master_weights parameter=wte.weight trainable decay
state %wte.m : f32[20,8] optimizer_state
state %wte.v : f32[20,8] optimizer_state
state %wpe : bf16[6,8] weights parameter=wpe.weight trainable decay
state %wpe.low : u8[6,8,2] master_weights parameter=wpe.weight trainable decay
state %wpe.m : f32[6,8] optimizer_state
state %wpe.v : f32[6,8] optimizer_state
input %hyperparameters : f32[4] data
input %loss_scale : f32[1] data
carried %d.wpe : f32[6,8] gradients
carried %d.wte : f32[20,8] gradients
carried %loss : f32[1] activations
state %w8 : f32[20,16] weights parameter=w8.weight trainable decay
state %w8.m : u8[20,16] optimizer_state
state %w8.v : u8[20,16] optimizer_state
state %w8.m_scale : f32[2] optimizer_state
state %w8.v_scale : f32[2] optimizer_state
state %w16 : bf16[6,8] weights parameter=w16.weight trainable decay
state %w16.m : bf16[6,8] optimizer_state
state %w16.v : bf16[6,8] optimizer_state
input %update_randomness : u32[4] data
carried %d.w8 : f32[20,16] gradients
carried %d.w16 : bf16[6,8] gradients
%d.wte.narrow : bf16[20,8] gradients = narrow_gradient(%d.wte) @backward name=wte.narrow_gradient
%s : f64[1] scratch = sum_squares(%d.wte) @update name=wte.sum_squares
%control : f32[4] data = update_control(%hyperparameters, %s, %s) {max_grad_norm=1.0} @update name=control
%wte.master.1 : f32[20,8] master_weights, %wte.m.1 : f32[20,8] optimizer_state, %wte.v.1 : f32[20,8] optimizer_state, %wte.moved : i32[1] data, %wte.1 : bf16[20,8] weights = adamw(%wte.master, %wte.m, %wte.v, %d.wte, %hyperparameters, %control, %wte) {beta1=0.9, beta2=0.999, eps=1e-08, narrow=1, weight_decay=0.01} @update name=wte.adamw alias=0:0,1:1,2:2,4:6
%gate0 : f32[4] data = update_gate(%loss, %s) {after=nothing} @update name=gate0
%gate1 : f32[4] data = update_gate(%loss, %gate0, %s) {after=gate} @update name=gate1
%gate2 : f32[4] data = update_gate(%loss, %control) {after=control} @update name=gate2
%wpe.1 : bf16[6,8] weights, %wpe.m.1 : f32[6,8] optimizer_state, %wpe.v.1 : f32[6,8] optimizer_state, %wpe.moved : i32[1] data, %wpe.low.1 : u8[6,8,2] master_weights = adamw(%wpe, %wpe.m, %wpe.v, %d.wpe, %hyperparameters, %gate1, %wpe.low) {beta1=0.9, beta2=0.999, eps=1e-08, narrow=0, split=1, weight_decay=0.01} @update name=wpe.adamw alias=0:0,1:1,2:2,4:6
%w8.1 : f32[20,16] weights, %w8.m.1 : u8[20,16] optimizer_state, %w8.v.1 : u8[20,16] optimizer_state, %w8.moved : i32[1] data, %w8.m_scale.1 : f32[2] optimizer_state, %w8.v_scale.1 : f32[2] optimizer_state = adamw(%w8, %w8.m, %w8.v, %d.w8, %hyperparameters, %gate1, %w8.m_scale, %w8.v_scale) {beta1=0.9, beta2=0.999, eps=1e-08, narrow=0, weight_decay=0.01} @update name=w8.adamw alias=0:0,1:1,2:2,4:6,5:7
%w16.1 : bf16[6,8] weights, %w16.m.1 : bf16[6,8] optimizer_state, %w16.v.1 : bf16[6,8] optimizer_state, %w16.moved : i32[1] data = adamw(%w16, %w16.m, %w16.v, %d.w16, %hyperparameters, %gate1, %update_randomness) {beta1=0.9, beta2=0.999, eps=1e-08, narrow=0, rounding=stochastic, stream=-5, weight_decay=0.01} @update name=w16.adamw alias=0:0,1:1,2:2
%control1 : f32[4] data = update_control(%hyperparameters, %loss_scale, %s) {max_grad_norm=1.0, scaled=1} @update name=control1
results %control, %wte.moved
)";

constexpr std::string_view kLoadExamples = R"(graph load
state %wte : bf16[20,8] weights parameter=wte.weight trainable decay
state %wte.master : f32[20,8] master_weights parameter=wte.weight trainable decay
state %wte.m : f32[20,8] optimizer_state
state %wte.v : u8[20,8] optimizer_state
state %wte.v_scale : f32[1] optimizer_state
state %head : f16[20,8] weights parameter=head.weight trainable decay
state %head.master : f32[20,8] master_weights parameter=head.weight trainable decay
state %wpe : bf16[6,8] weights parameter=wpe.weight trainable decay
state %wpe.low : u8[6,8,2] master_weights parameter=wpe.weight trainable decay
%head.master = read_tensor() @load name=head.read
%head = narrow_weight(%head.master) {out=f16} @load name=head.narrow
%wpe, %wpe.low = read_tensor() @load name=wpe.read
%wte.master = read_tensor() @load name=wte.read
%wte = narrow_weight(%wte.master) @load name=wte.narrow
%wte.m = fill() {value=0.0} @load name=wte.m.fill
%wte.v = fill() {value=0.0} @load name=wte.v.fill
%wte.v_scale = fill() {value=0.0} @load name=wte.v_scale.fill
write_tensor(%wte.master) @save name=wte.write
write_tensor(%wpe, %wpe.low) {split=1} @save name=wpe.write
)";

constexpr std::string_view kExamples[] = {kForwardExamples, kBackwardExamples, kUpdateExamples,
                                          kLoadExamples};

}  // namespace snug
