// Adds the weight gradients of a micro-batch to those of the ones before it inside the matrix
// product that computes them. Autograd computes them apart and then adds, which moves three times
// as many bytes. Megatron-LM calls it gradient accumulation fusion.
#pragma once
#include <torch/csrc/autograd/edge.h>

namespace trireme::pipeline {

// Called before a backward from `roots` that uses its graph up, with the default settings of the
// engine. It changes the graph: where a matrix product has the transposed leaf W as its second
// factor, as torch::nn::Linear makes it, the backward will add to `W.grad` in place. It leaves
// alone what it cannot replace: a W without a gradient, of another type, complex or with hooks, a
// sparse first factor, and a product with hooks behind it. Sums are equal up to rounding. One
// thread at a time may run a backward into the same W.
void add_within_products(const torch::autograd::edge_list& roots);

}  // namespace trireme::pipeline
