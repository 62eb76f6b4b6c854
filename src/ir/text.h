// ir/text.h — the text form of graphs and programs: parse_graph(print(g)) == g for every graph with proper names
//
//   graph micro_step
//   input %tokens : i32[4,1024] data
//   state %wte : f32[257,64] weights parameter=transformer.wte.weight trainable decay
//   carried %d.wte : f32[257,64] gradients
//   %x : f32[4,1024,64] activations = embedding(%tokens, %wte) @forward name=wte
//   %y : …, %mean : …, %rstd : … = layer_norm(%x, %w, %b) {eps=1e-05} @forward block=0 name=h.0.ln_1
//   %d.wte.1 : … = embedding_dtable(…, %d.wte) {accumulate=1, rows=257} @backward name=wte.dtable alias=0:2
//   results %loss, %d.wte
//
// One line a tensor or operation; `#` begins a comment. An output is declared where it is defined; one that is a
// declared state is only named there (`%wte = read_tensor() @load name=…`). `value %x : …` declares a value that
// nothing defines before its first use. Tensors are numbered in the order of the text unless a line
// `tensors %a, %b, …` gives their order (graphs that are not canonical, see canonicalize). A name of a file's
// tensor that is not [A-Za-z0-9_.]+ stands in quotes. Nothing is inferred: types, must-aliases and all stand in
// the text, and verify() says whether they fit.
//
// A program is its graphs, each after a line `phase repeats=4`.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace snug {

std::string print(const Graph& graph);
std::string print(const Program& program);

// Reads the text form. `file` is the name for messages. Throws UserError(kBadFile)
// "file:line:column: found …, expected …".
Graph parse_graph(std::string_view text, std::string_view file = "graph");
Program parse_program(std::string_view text, std::string_view file = "program");

}  // namespace snug
