// Hollow tensors: ordinary CPU tensors whose storage has a size, but no memory. A rank keeps the
// tensors of a model that it does not own in this form, so that everything which holds them
// (modules, blocks, functions) stays as it is.
//
// Sizes, strides, type and requires_grad can be read. An operation that needs the values throws,
// where an ordinary storage without memory would crash. All tensors that share a storage are
// hollow together, and so are the tensors that autograd has saved: a parameter may be hollow
// between forward and backward, if it has its memory and its values back when backward needs them.
#pragma once
#include <ATen/core/Tensor.h>

namespace trireme {

// A storage of no bytes is never hollow.
bool is_hollow(const c10::Storage& storage);
bool is_hollow(const at::Tensor& tensor);

// Frees the storage's memory and keeps its size. Does nothing if it is hollow, or has no bytes.
void make_hollow(const c10::Storage& storage);
void make_hollow(const at::Tensor& tensor);

// Gives a hollow storage memory with undefined content, from LibTorch's CPU allocator; does
// nothing if it has memory. No version counter moves. Fill it through tensor.variable_data(),
// whose version is its own: then autograd accepts what it saved before.
void give_memory(const c10::Storage& storage);
void give_memory(const at::Tensor& tensor);

// Hands the memory of `from` to the hollow storage `to` of the same size, and leaves `from`
// hollow.
void move_memory(const c10::Storage& from, const c10::Storage& to);

// Gives the storage another size, and frees its memory.
void resize_hollow(const c10::Storage& storage, size_t bytes);
// A new storage without memory.
c10::Storage hollow_storage(size_t bytes);

}  // namespace trireme
