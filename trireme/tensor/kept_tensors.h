// Keeps saved tensors as autograd does, and counts them.
#pragma once
#include <trireme/tensor/activation_bytes.h>
#include <trireme/tensor/saved_tensors.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme {

// The facts that a keeper and the tensors that it kept share.
struct KeeperSetting {
  // The place in messages: "the block 'layer1'".
  std::string place;
  std::shared_ptr<ActivationBytes> bytes;
  // Storages that are neither counted nor moved, besides those of is_parameter_or_view(): those of
  // a model and those of a batch. Each may be null.
  std::shared_ptr<const StorageSet> of_model, of_batch;
  // Backward calls it before it uses a tensor that was saved here. May be empty.
  std::function<void()> on_use;

  bool is_exempt(const at::Tensor& tensor) const;
  void tell_use() const {
    if (on_use) on_use();
  }
};

// A saved tensor that stays where it is. get() throws Error(invalid_argument) if it has been
// changed in place. `is_counted`: its bytes count as activations.
std::unique_ptr<SavedTensor> keep_in_place(const at::Tensor& tensor,
                                           const std::shared_ptr<const KeeperSetting>& setting,
                                           bool is_counted);

class KeptTensors : public SavedTensorKeeper {
 public:
  explicit KeptTensors(std::shared_ptr<const KeeperSetting> setting)
      : setting_(std::move(setting)) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    return keep_in_place(tensor, setting_, !setting_->is_exempt(tensor));
  }

 private:
  std::shared_ptr<const KeeperSetting> setting_;
};

}  // namespace trireme
