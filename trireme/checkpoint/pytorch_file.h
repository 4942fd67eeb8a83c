// Tensors in PyTorch's own files (.pt, .pth): the zip archives of torch.save, torch::save and
// TorchScript. No torch.
//
// Such a file is a zip of plain entries: a pickle, and the bytes of each storage. The pickle is
// read by a small machine that knows containers, numbers, text and tensors; it calls nothing that
// the file names, so a file from anywhere is safe to read.
#pragma once
#include <trireme/checkpoint/safetensors.h>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct LoadedTensor {
  plan::TensorSpec spec;
  std::vector<std::byte> bytes;  // Contiguous.
  TensorView view() const { return {spec, bytes}; }
};

// All tensors of a state dict (nested dicts and modules: names joined by dots), each name once, in
// the file's order. Throws Error(not_found | io), Error(corrupt) for what is no such
// archive or lies about itself, Error(unsupported) for the format before PyTorch 1.6, other byte
// orders, sparse or quantised tensors, and dtypes that Trireme has no name for.
std::vector<LoadedTensor> read_pytorch(const std::filesystem::path& path);

// A state dict that torch.load(path, weights_only=True) reads. Durable when it returns; what was
// there stays until then. Throws Error(io).
void write_pytorch(const std::filesystem::path& path, const std::vector<TensorView>& tensors);

}  // namespace trireme::checkpoint
