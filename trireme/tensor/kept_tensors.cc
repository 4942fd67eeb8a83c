#include <ATen/core/Tensor.h>

#include <trireme/tensor/kept_tensors.h>

namespace trireme {
namespace {

class InPlace : public SavedTensor {
 public:
  InPlace(const at::Tensor& tensor, std::shared_ptr<const KeeperSetting> setting, bool is_counted)
      : setting_(std::move(setting)), tensor_(tensor.tensor_data()), version_(tensor) {
    if (is_counted && tensor_.has_storage()) hold_ = setting_->bytes->hold(tensor_.storage());
  }
  at::Tensor get() override {
    version_.check(setting_->place);
    setting_->tell_use();
    return tensor_;
  }

 private:
  std::shared_ptr<const KeeperSetting> setting_;
  at::Tensor tensor_;
  TensorVersion version_;
  ActivationBytes::Hold hold_;  // Ends before the tensor does.
};

}  // namespace

bool KeeperSetting::is_exempt(const at::Tensor& tensor) const {
  if (!tensor.has_storage() || is_parameter_or_view(tensor)) return true;
  const void* const storage = tensor.storage().unsafeGetStorageImpl();
  return (of_model && of_model->contains(storage)) || (of_batch && of_batch->contains(storage));
}

std::unique_ptr<SavedTensor> keep_in_place(const at::Tensor& tensor,
                                           const std::shared_ptr<const KeeperSetting>& setting,
                                           bool is_counted) {
  return std::make_unique<InPlace>(tensor, setting, is_counted);
}

}  // namespace trireme
