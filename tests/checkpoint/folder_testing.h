// A folder of checkpoints whose content follows from the step, so that a test can
// recognise a checkpoint.
#pragma once
#include <trireme/checkpoint/folder.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint {

class CheckpointFolder : public TemporaryFolder {
 protected:
  using TemporaryFolder::TemporaryFolder;
  static std::filesystem::path save(Folder& folder, int64_t step, int start = -1) {
    Manifest manifest;
    manifest.step = step;
    manifest.loss_history.assign(static_cast<size_t>(step), 0.5);
    const OwnedTensor weight("w", {64}, plan::DType::float32,
                             start < 0 ? static_cast<int>(step) : start);
    const OwnedTensor moment("w.exp_avg", {64}, plan::DType::float32, 2);
    return folder.save(manifest, {weight.view()}, {moment.view()});
  }
  static float first_weight(const Saved& saved) {
    float value = 0;
    std::memcpy(&value, saved.model->find("w")->bytes.data(), sizeof value);
    return value;
  }
  // The step of the newest checkpoint, or -1.
  static int64_t newest_step(const Folder& folder) {
    const auto saved = folder.newest();
    return saved ? saved->manifest.step : -1;
  }

  std::filesystem::path runs_ = folder_ / "runs" / "digits";
};

}  // namespace trireme::checkpoint
