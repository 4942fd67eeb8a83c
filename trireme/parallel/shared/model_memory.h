// The memory of parameters and optimizer state at the places of a SharedLayout: ordinary memory,
// or files in a folder, of which a step has only a part in memory at a time (Ren et al. 2021,
// "ZeRO-Offload", and Rajbhandari et al. 2021, "ZeRO-Infinity", section 5, keep optimizer state
// and parameters outside the device's memory too).
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/net/file_pages.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/mesh/block_visits.h>
#include <trireme/parallel/model.h>
#include <trireme/plan/shared_layout.h>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::shared {

// The bytes of a window of a walk through a file of so many bytes: five of them are a small part.
size_t window_of(size_t file_bytes);

// One rank's view; one thread uses it.
class ModelMemory {
 public:
  // Returns memory of which all bytes are reserved: a file in `folder`, or memory if that is
  // empty. Throws Error(io).
  using Allocate = std::function<std::shared_ptr<net::SharedMemory>(
      size_t bytes, const char* purpose, const std::string& folder)>;

  // `layout` outlives the object. Without `has_parameters` only the state has memory.
  ModelMemory(const plan::SharedLayout& layout, const OffloadOptions& offload,
              const Allocate& allocate, bool has_parameters = true);

  // The place of parameters and state, by their offset in the layout.
  std::byte* at(size_t offset) const;
  // A tensor there, of the form of `like`. It keeps the memory.
  at::Tensor view(size_t offset, const at::Tensor& like) const;

  // The update has used a range of a parameter and of its state, whose elements have so many
  // bytes. Ranges come in the order of the layout. If only a part of the parameter is updated, the
  // range counts from its beginning, `first` elements behind that of the parameter.
  void used(const fused::Range& range, size_t element_bytes, size_t first = 0);
  // A parameter of so many bytes is about to be read as a whole. And: it was read or written, and
  // is not needed soon.
  void read_ahead(size_t parameter, size_t bytes) const;
  void passed(size_t parameter, size_t bytes);
  // Nothing of the files needs to be in memory until the next use.
  void leave();

  // The blocks, whose parameters come ahead of their forward and backward and leave behind them.
  // The blocks themselves if no parameters are in a file.
  std::vector<Block> paged(const std::vector<Block>& blocks);

 private:
  struct Part {
    std::shared_ptr<net::SharedMemory> memory;  // Null: there is none.
    size_t begin = 0;                           // In the layout.
    bool is_file = false;
    std::vector<net::PageWalk> walks;  // One for each tensor of a parameter that the update uses.
    std::optional<net::PageTrail> trail;  // Of parameters that were passed.
  };
  const Part& part_of(size_t offset) const { return offset < state_.begin ? parameters_ : state_; }

  const plan::SharedLayout& layout_;
  Part parameters_, state_;
  std::shared_ptr<BlockVisitor> visitor_;
};

}  // namespace trireme::shared
