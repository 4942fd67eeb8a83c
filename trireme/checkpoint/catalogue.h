// The tensors of a checkpoint as its readers think of them: each whole tensor once, with the
// slices in which it is stored.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <trireme/plan/tensor_slice.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// A slice of a tensor, and the bytes of a mapped file that hold it.
struct StoredPart {
  plan::TensorSlice slice;
  std::span<const std::byte> bytes;
  std::string file;  // Its name, and the place of the bytes in it. Empty without a checkpoint.
  uint64_t offset = 0;
};

struct StoredTensor {
  plan::TensorSpec spec;          // Of the whole tensor.
  std::vector<StoredPart> parts;  // Together the whole tensor, each element once.
  bool is_whole() const { return parts.size() == 1 && parts[0].slice.is_whole(); }
};

// The tensors of the files of one kind, kModelFile or kOptimizerFile, in the order of the files.
// Throws Error(corrupt) that names file and tensor if the manifest's slices contradict the files,
// overlap or leave a hole.
std::vector<StoredTensor> catalogue_of(const Saved& saved, const char* kind);

// A stored tensor in one part that does not belong to a checkpoint.
StoredTensor stored_whole(const TensorView& tensor);
// The bytes of the whole tensor. They are put together in `memory` unless they are stored so.
std::span<const std::byte> assemble(const StoredTensor& tensor, std::vector<std::byte>& memory);

}  // namespace trireme::checkpoint
