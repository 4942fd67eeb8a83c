// Saved tensors whose memory goes elsewhere until backward needs them: into a file, or into fewer
// bits. Storages move, not tensors, so views and expanded tensors cost what their storage costs,
// and tensors that share a storage move it once.
#pragma once
#include <c10/core/Storage.h>
#include <trireme/tensor/kept_tensors.h>
#include <map>
#include <memory>

namespace trireme {

// A storage that has gone elsewhere. It is forgotten when the object ends.
class StoredStorage {
 public:
  virtual ~StoredStorage() = default;
  // Returns the content; it waits for it if need be. Called by the thread that runs backward.
  virtual c10::Storage get() = 0;
};

class StoragePlace {
 public:
  virtual ~StoragePlace() = default;
  // Whether a storage of so many bytes, whose elements have this type, goes to the place.
  virtual bool takes(int64_t bytes, at::ScalarType dtype) const = 0;
  // `storage` is on CPU, and nothing changes its content until the graph is gone: the saved
  // tensors prove that by their versions.
  virtual std::unique_ptr<StoredStorage> put(c10::Storage storage) = 0;
};

// The keeper of a block. Tensors that the place does not take stay where they are, and so do those
// that something else holds: their memory would not become free. Blocks that use one place share
// its storages, if they share `stored`.
class StoredTensors : public SavedTensorKeeper {
 public:
  // The storages that are there now, by address. Used by one thread.
  struct Known {
    std::weak_ptr<StoredStorage> stored;
    c10::weak_intrusive_ptr<c10::StorageImpl> original;
    uint32_t version = 0;
  };
  using KnownStorages = std::map<const void*, Known>;

  StoredTensors(std::shared_ptr<const KeeperSetting> setting, std::shared_ptr<StoragePlace> place,
                std::shared_ptr<KnownStorages> known)
      : setting_(std::move(setting)), place_(std::move(place)), known_(std::move(known)) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override;

 private:
  std::shared_ptr<StoredStorage> stored(const at::Tensor& tensor);
  void forget_what_is_gone();

  std::shared_ptr<const KeeperSetting> setting_;
  std::shared_ptr<StoragePlace> place_;
  std::shared_ptr<KnownStorages> known_;
};

// Smaller storages cost more time than they give memory, so places do not take them.
inline constexpr int64_t kLeastMovedBytes = 64 << 10;

// Keeps float32 storages of at least `least_bytes` as bfloat16. Half of the memory, and 8 bits of
// the 24 of each value: the gradients are close to those without it, and not the same.
std::shared_ptr<StoragePlace> make_bfloat16_place(int64_t least_bytes,
                                                  std::shared_ptr<ActivationBytes> bytes);

}  // namespace trireme
