// Gradients in a file: each moves to its place as soon as backward has completed it, and leaves
// memory behind it.
#pragma once
#include <trireme/net/file_pages.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/module_state.h>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace trireme::shared {

// One rank's view; one thread uses it.
class GradientFiles {
 public:
  // `offsets` are the beginnings of the trainable parameters' places in `memory`, counted from
  // `begin`. `sources` is the number of ranks whose gradients this rank reads at once. Unless it
  // `watches` backward, the caller says with keep() that a gradient is complete.
  GradientFiles(std::vector<NamedTensor> parameters, std::shared_ptr<net::SharedMemory> memory,
                size_t begin, std::vector<size_t> offsets, size_t sources, bool watches = true);

  // Moves the gradient of a parameter, if it has one.
  void keep(int index);
  // Moves the gradients that lie elsewhere, such as those of masters.
  void keep_all();
  // The whole gradient at `data` was read or written, and leaves memory.
  void used(const void* data, size_t bytes);
  // The update has read a range of the gradient of a source. Ranges of a source come in order.
  void used_in_order(size_t source, const void* data, size_t bytes);
  // The gradients are needed no more in this step.
  void leave();

 private:
  size_t offset_of(const void* data) const;

  const std::vector<NamedTensor> parameters_;
  const std::shared_ptr<net::SharedMemory> memory_;
  const size_t begin_;
  const std::vector<size_t> offsets_;
  net::PageTrail trail_;
  std::vector<net::PageWalk> walks_;  // By source.
  std::optional<GradientWatch> watch_;
};

}  // namespace trireme::shared
