// Reads and writes tensors in PyTorch's own files (.pt, .pth): the zip archives of torch.save,
// torch::save and TorchScript.
//
// Such a file is a zip of uncompressed entries: a pickle, and the bytes of each storage. A small
// interpreter reads the pickle. It knows containers, numbers, text and tensors, and it calls
// nothing that the file names, so files from untrusted sources are safe to read.
#pragma once
#include <trireme/checkpoint/safetensors.h>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct LoadedTensor {
  plan::TensorSpec spec;
  std::vector<std::byte> bytes;  // Contiguous.
  // The name of the first tensor that is the same elements of the same storage; empty: none.
  std::string tied_to = {};
  TensorView view() const { return {spec, bytes}; }
};

// Returns all tensors of a state dict in the file's order, each name once. The names of nested
// dicts and modules are joined by dots. Throws Error(not_found | io), and Error(corrupt) for a
// file that is no such archive or contradicts itself. Throws Error(unsupported) for the format
// before PyTorch 1.6, other byte orders, sparse or quantised tensors, and dtypes that Trireme has
// no name for, and naming the function for a file whose pickle calls code.
std::vector<LoadedTensor> read_pytorch(const std::filesystem::path& path);

// Writes a state dict that torch.load(path, weights_only=True) reads. The file is durable when the
// function returns; an older file stays until then. Throws Error(io).
void write_pytorch(const std::filesystem::path& path, const std::vector<TensorView>& tensors);
// The same from tensors that need not all be in memory (see BytesOf). A name that `ties` maps to
// an earlier one has the storage of that tensor.
void write_pytorch(const std::filesystem::path& path, const std::vector<plan::TensorSpec>& tensors,
                   const BytesOf& bytes_of, const std::map<std::string, std::string>& ties = {});

// Writes an archive that torch::load(module, path) reads in C++, and torch.jit.load(path) in
// Python: a module for each part of a name before a dot. A list's children without tensors, such
// as a ReLU between layers, are added where their numbers are missing; `modules` are the names of
// others. Throws Error(io), and Error(unsupported) for a name that no module can have.
void write_module_archive(const std::filesystem::path& path,
                          const std::vector<plan::TensorSpec>& tensors, const BytesOf& bytes_of,
                          const std::map<std::string, std::string>& ties = {},
                          const std::vector<std::string>& modules = {});

}  // namespace trireme::checkpoint
