// Counts the updates of parameters that their engine did not make: values that differ from one
// backward() of the loop to the next, without a step of the engine between them.
#pragma once
#include <trireme/parallel/module_state.h>
#include <cstdint>
#include <vector>

namespace trireme {

// The thread of the loop uses it. Parameters that are not in the host's memory are not looked at.
class UpdatesPastEngine {
 public:
  // `parameters` outlive the object.
  explicit UpdatesPastEngine(const std::vector<NamedTensor>& parameters)
      : parameters_(parameters) {}

  void look();  // In each backward() of the loop.
  // The values may be other ones from now on: all ranks have got the same, or one has loaded some.
  void adopt() { is_known_ = false; }
  // The engine has made a step: what was written before it is forgiven.
  void forget();

  int count() const { return count_; }  // Since the engine's last step.
  bool are_too_many() const;
  // A hash of one value of each parameter at the last look.
  uint64_t sample() const { return sample_; }

 private:
  const std::vector<NamedTensor>& parameters_;
  uint64_t sample_ = 1;
  bool is_known_ = false;  // The next look compares its values with those of the last one.
  int count_ = 0;
};

}  // namespace trireme
