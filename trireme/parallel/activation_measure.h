// The cost of each block of a model: seconds, and the bytes that autograd saves in it.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/model.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/pipeline_memory.h>
#include <trireme/tensor/activation_bytes.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

class ReplicaRandom;

Tensors buffers_of(const Block& block);
// The storages of a module's parameters and buffers, and of a batch.
StorageSet storages_of(const torch::nn::Module& module);
StorageSet storages_of(const Batch& batch);

struct MeasureOptions {
  int runs = 2;  // For each block, at least 1. The times are the shortest, but for the first run.
  bool splits_backward = false;  // Also measures what the halves of a split backward hold.
  // Called before the runs of a block; its result is released after them. May be null.
  std::function<std::shared_ptr<void>(const Block&)> prepare;
};

// Runs forward and backward of one block after the other, each several times. The graph of a block
// goes before the next block begins, so this needs the memory of one block. Gradients, random
// numbers and buffers stay as they are. The blocks are not COLLECTIVE here: batch norms use the
// samples of this replica. Bytes are those of unique storages, without those of parameters,
// buffers and the inputs of the first block. `of_model`: see storages_of(). `random`: the thread's
// random numbers, or null. Throws Error(invalid_argument) that names a block which gives no
// tensor.
plan::MeasuredChain measure_chain(const std::vector<Block>& blocks, const Tensors& inputs,
                                  const StorageSet& of_model, ReplicaRandom* random,
                                  const MeasureOptions& options = {});
// The same as the memory of a chain.
std::vector<plan::BlockMemory> measure(const std::vector<Block>& blocks, const Tensors& inputs,
                                       const StorageSet& of_model, ReplicaRandom* random);

}  // namespace trireme
