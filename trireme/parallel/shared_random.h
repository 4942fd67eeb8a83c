// Random draws that are the same on all ranks, for the samplers of data_loader.h.
#pragma once
#include <trireme/comm/world.h>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme {

class SharedRandom {
 public:
  explicit SharedRandom(World& world);
  // COLLECTIVE, once for each epoch. Runs `draws` with the default generator as rank 0 has it.
  // Afterwards rank 0's has moved on, as it does in a process alone, and the other ranks have
  // theirs as it was. Returns the state of the generator before, as text.
  std::string run(int64_t epoch, const std::function<void()>& draws);
  // Runs `draws` with the generator in that state, and puts it back.
  static void run_as(const std::string& numbers, const std::function<void()>& draws);
  // Warns once, on rank 0, that the last `samples` of an epoch are fewer than the ranks.
  void tell_left_out(int64_t samples);

 private:
  World& world_;
  int number_;
  bool told_ = false;
};

}  // namespace trireme
