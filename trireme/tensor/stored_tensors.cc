#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/stored_tensors.h>

namespace trireme {
namespace {

bool has_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() && !tensor.is_quantized() &&
         !tensor.is_conj() && !tensor.is_neg();
}

// A tensor over another storage with the same content.
class Stored : public SavedTensor {
 public:
  Stored(const at::Tensor& tensor, std::shared_ptr<const KeeperSetting> setting,
         std::shared_ptr<StoredStorage> stored)
      : setting_(std::move(setting)),
        stored_(std::move(stored)),
        version_(tensor),
        options_(tensor.options().requires_grad(false)),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        offset_(tensor.storage_offset()) {}

  at::Tensor get() override {
    version_.check(setting_->place);
    const at::NoGradGuard no_grad;
    return at::empty({0}, options_).set_(storage(), offset_, sizes_, strides_);
  }

 private:
  c10::Storage storage() {
    if (staying_) return staying_;
    setting_->tell_use();
    c10::Storage storage = stored_->get();
    if (FirstOfTwoBackwards::is_running()) staying_ = storage;
    return storage;
  }

  std::shared_ptr<const KeeperSetting> setting_;
  std::shared_ptr<StoredStorage> stored_;
  c10::Storage staying_;  // From the first of two backwards on.
  TensorVersion version_;
  at::TensorOptions options_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_;
};

at::Tensor as_floats(const c10::Storage& storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / sizeof(float));
  return at::empty({0}, at::kFloat).set_(storage, 0, {count}, {1});
}

class Bfloat16Storage : public StoredStorage {
 public:
  Bfloat16Storage(const c10::Storage& storage, std::shared_ptr<ActivationBytes> bytes)
      : bytes_(std::move(bytes)) {
    const at::NoGradGuard no_grad;
    small_ = as_floats(storage).to(at::kBFloat16);
    hold_ = bytes_->hold(small_.storage());
  }

  c10::Storage get() override {
    if (!whole_.defined()) {
      const at::NoGradGuard no_grad;
      const AllocationScope ordinary(nullptr);  // It is no gradient of a parameter.
      whole_ = small_.to(at::kFloat);
      whole_hold_ = bytes_->hold(whole_.storage());
      hold_.release();  // Nobody needs the small copy any more.
      small_.reset();
    }
    return whole_.storage();
  }

 private:
  std::shared_ptr<ActivationBytes> bytes_;
  at::Tensor small_, whole_;
  ActivationBytes::Hold hold_, whole_hold_;
};

class Bfloat16Place : public StoragePlace {
 public:
  Bfloat16Place(int64_t least_bytes, std::shared_ptr<ActivationBytes> bytes)
      : least_bytes_(least_bytes), bytes_(std::move(bytes)) {}
  bool takes(int64_t bytes, at::ScalarType dtype) const override {
    return dtype == at::kFloat && bytes >= least_bytes_ &&
           bytes % static_cast<int64_t>(sizeof(float)) == 0;
  }
  std::unique_ptr<StoredStorage> put(c10::Storage storage) override {
    return std::make_unique<Bfloat16Storage>(storage, bytes_);
  }

 private:
  int64_t least_bytes_;
  std::shared_ptr<ActivationBytes> bytes_;
};

}  // namespace

std::unique_ptr<SavedTensor> StoredTensors::keep(const at::Tensor& tensor) {
  if (setting_->is_exempt(tensor)) return keep_in_place(tensor, setting_, /*is_counted=*/false);
  const bool moves =
      has_plain_memory(tensor) &&
      place_->takes(static_cast<int64_t>(tensor.storage().nbytes()), tensor.scalar_type());
  auto elsewhere = moves ? stored(tensor) : nullptr;
  if (!elsewhere) return keep_in_place(tensor, setting_, /*is_counted=*/true);
  return std::make_unique<Stored>(tensor, setting_, std::move(elsewhere));
}

// Returns null if the storage should stay.
std::shared_ptr<StoredStorage> StoredTensors::stored(const at::Tensor& tensor) {
  c10::StorageImpl* const address = tensor.storage().unsafeGetStorageImpl();
  const uint32_t version = tensor._version();
  if (const auto found = known_->find(address); found != known_->end()) {
    const Known& known = found->second;
    // A storage that is gone may have left its address to this one.
    const bool is_same = known.original.lock() && known.version == version;
    if (auto stored = is_same ? known.stored.lock() : nullptr) return stored;
  }
  if (setting_->bytes->is_held(address)) return nullptr;
  forget_what_is_gone();
  std::shared_ptr<StoredStorage> stored = place_->put(tensor.storage());
  const auto original = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(address);
  known_->insert_or_assign(
      address, Known{stored, c10::weak_intrusive_ptr<c10::StorageImpl>(original), version});
  return stored;
}

void StoredTensors::forget_what_is_gone() {
  std::erase_if(*known_, [](const auto& entry) { return entry.second.stored.expired(); });
}

std::shared_ptr<StoragePlace> make_bfloat16_place(int64_t least_bytes,
                                                  std::shared_ptr<ActivationBytes> bytes) {
  return std::make_shared<Bfloat16Place>(least_bytes, std::move(bytes));
}

}  // namespace trireme
