#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <trireme/base/error.h>
#include <trireme/tensor/hollow.h>
#include <utility>

namespace trireme {
namespace {

c10::DataPtr no_memory() { return {nullptr, c10::Device(c10::DeviceType::CPU)}; }

// Every access to the memory asks the storage first, and it throws.
void refuse_access(c10::StorageImpl& storage) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
      "this tensor is hollow: its values belong to another rank, or were released; try: "
      "DeferredModel::materialise() with its name, or an engine that gathers it first");
}

void fill_with(const c10::Storage& storage, c10::DataPtr memory) {
  storage.unsafeGetStorageImpl()->clear_data_ptr_access_error_msg_();
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
}

}  // namespace

bool is_hollow(const c10::Storage& storage) {
  if (!storage) return false;
  c10::StorageImpl& storage_impl = *storage.unsafeGetStorageImpl();
  return storage_impl.device_type() == c10::DeviceType::CPU && storage_impl.nbytes() > 0 &&
         storage_impl._mutable_data_ptr_no_checks().get() == nullptr;
}

bool is_hollow(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && is_hollow(tensor.storage());
}

void make_hollow(const c10::Storage& storage) {
  if (is_hollow(storage) || storage.nbytes() == 0) return;
  if (storage.device_type() != c10::DeviceType::CPU)
    throw Error(ErrorCode::unsupported, "tensor",
                "a tensor on " + storage.device().str() + " cannot be hollow",
                "a model on the CPU");
  refuse_access(*storage.unsafeGetStorageImpl());
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(no_memory());
}
void make_hollow(const at::Tensor& tensor) { make_hollow(tensor.storage()); }

void give_memory(const c10::Storage& storage) {
  if (is_hollow(storage)) fill_with(storage, c10::GetCPUAllocator()->allocate(storage.nbytes()));
}
void give_memory(const at::Tensor& tensor) { give_memory(tensor.storage()); }

void move_memory(const c10::Storage& from, const c10::Storage& to) {
  if (is_hollow(from) || !is_hollow(to) || from.nbytes() != to.nbytes())
    throw Error(ErrorCode::internal, "tensor",
                "memory moves only to a hollow storage of its size");
  fill_with(
      to, std::exchange(from.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), no_memory()));
  refuse_access(*from.unsafeGetStorageImpl());
}

void resize_hollow(const c10::Storage& storage, size_t bytes) {
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  if (bytes > 0) refuse_access(*storage.unsafeGetStorageImpl());
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(no_memory());
}

c10::Storage hollow_storage(size_t bytes) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, no_memory(), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  if (bytes > 0) refuse_access(*storage.unsafeGetStorageImpl());
  return storage;
}

}  // namespace trireme
