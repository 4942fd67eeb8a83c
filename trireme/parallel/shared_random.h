// Random draws that are the same on all ranks, for the samplers of data_loader.h, and draws that
// differ.
#pragma once
#include <c10/core/Device.h>
#include <trireme/comm/world.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme {

// Throws Error(invalid_argument) if some ranks would get no sample of such a batch.
void check_batch(const World& world, int64_t batch);

// From now on rank 0 draws what a process alone would draw, and each other rank other numbers:
// dropout and noise differ. This holds for the default generators of the host and of `device`.
// `number` is the engine's, among those of the process.
void draw_other_numbers(at::Device device, int rank, int number);

class SharedRandom {
 public:
  explicit SharedRandom(World& world);
  int number() const { return number_; }  // The loader's, among those of this process.
  World& world() const { return *loop_->world; }
  // COLLECTIVE. Runs `draws` with the default generator as rank 0 has it.
  // Afterwards rank 0's has moved on, as it does in a process alone, and the other ranks have
  // theirs as it was. Returns the state of the generator before, as text.
  std::string run(const std::function<void()>& draws);
  // Runs `draws` with the generator in that state, and puts it back.
  static void run_as(const std::string& numbers, const std::function<void()>& draws);
  // Warns once, on rank 0, that the last `samples` of an epoch are fewer than the ranks.
  void tell_left_out(int64_t samples);

 private:
  const std::shared_ptr<World::OwnLoop> loop_;
  const int number_;
  // The runs in this generation of an elastic job: newcomers count from 0 too.
  int generation_ = 0;
  int64_t runs_ = 0;
  bool told_ = false;
};

}  // namespace trireme
