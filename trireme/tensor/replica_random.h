// The random numbers of one replica. LibTorch has one default CPU generator for each process. The
// threads of `mirrored` would share it, and their order of use would depend on timing.
//
// While a ReplicaRandom lives, every random operation of the calling thread that names no
// generator (dropout, initialisation, randn, ...) draws from this object's generator instead. This
// holds in backward too, which runs on the same thread on CPU.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <trireme/tensor/interception.h>
#include <cstdint>

namespace trireme {

class ReplicaRandom {
 public:
  explicit ReplicaRandom(uint64_t seed);
  ~ReplicaRandom();  // Runs on the thread that made the object. Objects nest.
  ReplicaRandom(const ReplicaRandom&) = delete;
  ReplicaRandom& operator=(const ReplicaRandom&) = delete;

  // Restarts the sequence. The Trainer reseeds before each step from (seed, step, rank): no
  // generator state has to be saved, and a resumed run draws the same numbers.
  void reseed(uint64_t seed);
  // From now on reseed() restarts the default generator of this device too. Operations on a device
  // draw from that one: the replica is the only one on it.
  void draw_on(at::Device device);

  // A place in the sequence. A computation that is repeated from the same mark (recomputed
  // activations) draws the same numbers.
  using Mark = at::Tensor;
  Mark mark() const;
  void restore(const Mark& mark);

 private:
  Interception interception_;
  at::Generator generator_;
  at::Generator of_device_;  // Undefined on the CPU.
  at::Generator* previous_;
};

}  // namespace trireme
