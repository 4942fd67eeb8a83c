#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <trireme/base/error.h>
#include <trireme/tensor/hollow.h>
#include <optional>
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

// LibTorch 2.11 has no function that takes the refusal back, and its members are private. An
// explicit instantiation may name them.
template <auto throws, auto refresh>
struct PrivateOfStorage {
  friend void take_refusal_back(c10::StorageImpl& storage) {
    storage.*throws = false;
    storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
    (storage.*refresh)();
  }
};
void take_refusal_back(c10::StorageImpl& storage);
template struct PrivateOfStorage<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                                 &c10::StorageImpl::refresh_has_data_ptr_check>;

template <typename Storage>
void allow_access(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
  else
    take_refusal_back(storage);
}

void fill_with(const c10::Storage& storage, c10::DataPtr memory) {
  allow_access(*storage.unsafeGetStorageImpl());
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
