// The cost of each block of a model: seconds, and the bytes that autograd saves in it.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/model.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/tensor/activation_bytes.h>
#include <vector>

namespace trireme {

class ReplicaRandom;

// The storages of a module's parameters and buffers.
StorageSet storages_of(const torch::nn::Module& module);

// Runs forward and backward of one block after the other, each twice, and takes the second time.
// The graph of a block goes before the next block begins, so this needs the memory of one block.
// Gradients, random numbers and buffers stay as they are. The blocks are not COLLECTIVE here:
// batch norms use the samples of this replica. Bytes are those of unique storages, without those
// of parameters, buffers and the inputs of the first block. `of_model`: see storages_of().
// `random`: the thread's random numbers, or null.
std::vector<plan::BlockMemory> measure(const std::vector<Block>& blocks, const Tensors& inputs,
                                       const StorageSet& of_model, ReplicaRandom* random);

}  // namespace trireme
