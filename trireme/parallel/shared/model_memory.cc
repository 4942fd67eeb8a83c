#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>

#include <trireme/parallel/mesh/block_visits.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/shared/model_memory.h>
#include <algorithm>
#include <utility>

namespace trireme::shared {
namespace {

constexpr size_t kMostWindow = 8 << 20, kLeastWindow = 256 << 10;
constexpr size_t kWindows = 128;
constexpr size_t kMostStateTensors = 3;

struct FileRange {
  size_t from = 0, bytes = 0;
};

// The parameters of one block after the other come into memory and leave it.
class BlockPages : public BlockVisitor {
 public:
  BlockPages(std::shared_ptr<net::SharedMemory> memory, std::vector<std::vector<FileRange>> ranges)
      : memory_(std::move(memory)), ranges_(std::move(ranges)) {}

  void before_forward(size_t block) override {
    if (is_in_backward()) {
      // It is computed again, for its own backward or for that of a block behind it.
      if (block < backward_) come(block);
      return;
    }
    if (block == 0) net::bring_neighbours(*memory_, false);  // Each block says what it needs.
    if (block == 0 || block != ahead_) come(block);  // Forward begins, or a part of a stage does.
    ahead_ = block + 1;
    if (ahead_ < ranges_.size()) come(ahead_);
  }
  void after_forward(size_t block) override {
    if (is_in_backward()) {
      if (block < backward_) go(block);
      return;
    }
    go(block);
    // A checkpoint may read all parameters in their order.
    if (block + 1 == ranges_.size() && !at::GradMode::is_enabled())
      net::bring_neighbours(*memory_, true);
  }
  void before_backward(size_t block) override {
    backward_ = block;
    if (block + 1 < ranges_.size()) go(block + 1);
    come(block);  // It may have gone since the block behind it began.
    if (block > 0) come(block - 1);
  }

 private:
  void come(size_t block) const {
    for (const FileRange& range : ranges_[block])
      net::read_ahead(*memory_, range.from, range.bytes);
  }
  // Nothing writes parameters while blocks run.
  void go(size_t block) const {
    for (const FileRange& range : ranges_[block])
      net::drop(*memory_, range.from, range.bytes, /*is_written=*/false);
  }

  std::shared_ptr<net::SharedMemory> memory_;
  std::vector<std::vector<FileRange>> ranges_;  // [block]
  size_t ahead_ = 0;                            // The block that forward asked for last.
  size_t backward_ = 0;                         // The block whose backward began last.
};

}  // namespace

size_t window_of(size_t file_bytes) {
  return std::clamp(file_bytes / kWindows, kLeastWindow, kMostWindow);
}

ModelMemory::ModelMemory(const plan::SharedLayout& layout, const OffloadOptions& offload,
                         const Allocate& allocate, bool has_parameters)
    : layout_(layout) {
  state_.begin = layout.model_bytes;
  for (const auto& states : layout.states)
    if (!states.empty()) state_.begin = std::min(state_.begin, states.front());
  const auto take = [&](Part& part, size_t end, const char* purpose, bool is_file, size_t walks) {
    part.is_file = is_file;
    const size_t bytes = end - part.begin;
    part.memory =
        allocate(std::max<size_t>(64, bytes), purpose, is_file ? offload.folder : std::string());
    if (!is_file) return;
    part.walks.assign(walks, net::PageWalk(part.memory, window_of(bytes)));
    part.trail.emplace(part.memory, window_of(bytes));
  };
  if (has_parameters) take(parameters_, state_.begin, "parameters", offload.parameters, 1);
  take(state_, layout.model_bytes, "optimizer state", offload.optimizer, kMostStateTensors);
}

std::byte* ModelMemory::at(size_t offset) const {
  const Part& part = part_of(offset);
  return part.memory->data() + (offset - part.begin);
}

at::Tensor ModelMemory::view(size_t offset, const at::Tensor& like) const {
  return at::from_blob(
      at(offset), like.sizes(), [memory = part_of(offset).memory](void*) {},
      like.options().requires_grad(false));
}

void ModelMemory::used(const fused::Range& range, size_t element_bytes, size_t first) {
  const auto p = static_cast<size_t>(range.parameter);
  const size_t from = static_cast<size_t>(range.from) * element_bytes,
               bytes = static_cast<size_t>(range.count) * element_bytes;
  if (parameters_.is_file)
    parameters_.walks[0].use(layout_.parameters[p] + first * element_bytes + from, bytes);
  if (!state_.is_file) return;
  for (size_t i = 0; i < layout_.states[p].size(); ++i)
    state_.walks[i].use(layout_.states[p][i] - state_.begin + from, bytes);
}

void ModelMemory::read_ahead(size_t parameter, size_t bytes) const {
  if (parameters_.is_file)
    net::read_ahead(*parameters_.memory, layout_.parameters[parameter], bytes);
}

void ModelMemory::passed(size_t parameter, size_t bytes) {
  if (parameters_.is_file) parameters_.trail->wrote(layout_.parameters[parameter], bytes);
}

void ModelMemory::leave() {
  for (Part* const part : {&parameters_, &state_}) {
    if (!part->is_file) continue;
    for (net::PageWalk& walk : part->walks) walk.end();
    part->trail->end();
    net::bring_neighbours(*part->memory, true);
    net::drop(*part->memory, 0, part->memory->bytes(), /*is_written=*/true);
  }
}

std::vector<Block> ModelMemory::paged(const std::vector<Block>& blocks) {
  if (!parameters_.is_file) return blocks;
  const net::SharedMemory& memory = *parameters_.memory;
  std::vector<std::vector<FileRange>> ranges(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    for (const auto& module : blocks[i].modules)
      for (const auto& [name, tensor] : state_of(*module).parameters) {
        const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
        if (data >= memory.data() && data < memory.data() + memory.bytes())
          ranges[i].push_back({static_cast<size_t>(data - memory.data()), tensor.nbytes()});
      }
  visitor_ = std::make_shared<BlockPages>(parameters_.memory, std::move(ranges));
  return visited(blocks, visitor_);
}

}  // namespace trireme::shared
