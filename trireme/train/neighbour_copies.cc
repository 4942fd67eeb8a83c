#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/module_state.h>
#include <trireme/plan/neighbours.h>
#include <trireme/train/neighbour_copies.h>
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace trireme {
namespace {

constexpr int kTag = 200;  // Other messages of the group of all ranks have tag 0.
constexpr int64_t kAlignment = 64;
constexpr int64_t kMostBytes = int64_t{256} << 20;  // Of a message.

using Numbers = std::vector<int64_t>;

// The places of the tensors of a part in one block of bytes.
struct Packing {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;

  void add(int64_t tensor_bytes) {
    offsets.push_back(bytes);
    bytes += (tensor_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

at::Tensor block_of(int64_t bytes) { return at::empty({bytes}, at::TensorOptions(at::kByte)); }

// A tensor in the block.
at::Tensor place_in(const at::Tensor& block, int64_t offset, const Numbers& sizes,
                    at::ScalarType type) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) bytes *= size;
  return block.narrow(0, offset, bytes).view(type).view(sizes);
}

// The entries of the part that have values of this step, copied into one block.
std::pair<RunState, at::Tensor> copy_of(const RunState& part) {
  const at::NoGradGuard no_grad;
  RunState copy;
  copy.progress = part.progress;
  copy.counters = part.counters;
  copy.in_slices = true;
  copy.part = part.part;
  copy.rank = part.rank;
  Packing packing;
  for (const StateEntry& entry : part.held) {
    if (entry.is_foreign || entry.slice.elements() == 0) continue;
    copy.held.push_back(entry);
    packing.add(static_cast<int64_t>(entry.tensor.nbytes()));
  }
  const at::Tensor block = block_of(packing.bytes);
  for (size_t i = 0; i < copy.held.size(); ++i) {
    at::Tensor& tensor = copy.held[i].tensor;
    const at::Tensor place =
        place_in(block, packing.offsets[i], tensor.sizes().vec(), tensor.scalar_type());
    place.copy_(tensor);
    tensor = place;
  }
  return {std::move(copy), block};
}

// The part without the values of its tensors. The progress is the same on all ranks.
Json letter_of(const RunState& part) {
  Json tensors = Json::array();
  for (const StateEntry& entry : part.held)
    tensors.push_back({static_cast<int>(entry.kind), entry.slice.tensor, entry.slice.shape,
                       entry.slice.from, entry.slice.sizes, entry.tensor.sizes().vec(),
                       plan::to_string(to_stored(entry.tensor.scalar_type()))});
  return {{"index", part.part.index},
          {"count", part.part.count},
          {"rank", part.rank},
          {"counters", part.counters},
          {"tensors", std::move(tensors)}};
}

// The part in a letter; its tensors lie in `block`, which is made for them.
RunState part_in(const Json& letter, const Progress& progress, at::Tensor& block) {
  RunState part;
  part.progress = progress;
  part.counters = letter["counters"];
  part.in_slices = true;
  part.part = {letter["index"], letter["count"]};
  part.rank = letter["rank"];
  Packing packing;
  std::vector<at::ScalarType> types;
  for (const Json& each : letter["tensors"]) {
    types.push_back(to_torch(plan::dtype_from_string(each[6].get<std::string>())));
    int64_t bytes = static_cast<int64_t>(c10::elementSize(types.back()));
    for (const int64_t size : each[5].get<Numbers>()) bytes *= size;
    packing.add(bytes);
  }
  block = block_of(packing.bytes);
  for (size_t i = 0; i < types.size(); ++i) {
    const Json& each = letter["tensors"][i];
    StateEntry entry;
    entry.kind = static_cast<StateKind>(each[0].get<int>());
    entry.slice = {each[1].get<std::string>(), each[2].get<Numbers>(), each[3].get<Numbers>(),
                   each[4].get<Numbers>()};
    entry.tensor = place_in(block, packing.offsets[i], each[5].get<Numbers>(), types[i]);
    part.held.push_back(std::move(entry));
  }
  return part;
}

// The neighbour to which this rank sends, and the rank whose neighbour it is.
struct Neighbours {
  int to, from;
};
Neighbours neighbours_of(const Group& group, int unit) {
  const int size = group.size(),
            away = plan::distance_of_neighbours(group.placement().hosts, unit);
  return {(group.rank() + away) % size, (group.rank() + size - away) % size};
}

// COLLECTIVE. Sends a letter and returns the one that comes.
Json exchanged(const Json& letter, const Neighbours& with, Group& group) {
  const std::string text = letter.dump();
  const at::Tensor own = block_of(static_cast<int64_t>(text.size()));
  std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor sizes = at::zeros({group.size()}, at::kLong);
  group.all_gather(at::full({1}, own.numel(), at::kLong), sizes);
  const at::Tensor other = block_of(sizes[with.from].item<int64_t>());
  const WorkPtr sending = group.send_async(own, with.to, kTag);
  group.recv(other, with.from, kTag);
  sending->wait();
  const auto* const begin = static_cast<const char*>(other.const_data_ptr());
  return Json::parse(begin, begin + other.numel());
}

}  // namespace

void NeighbourCopies::begin(const RunState& part, int generation, Group& group, int unit) {
  auto [own, block] = copy_of(part);
  own.generation = generation;
  copies_.push_front({std::move(own), {}});
  if (group.size() == 1) return;
  const Neighbours with = neighbours_of(group, unit);
  const Json letter = exchanged(letter_of(copies_.front().own), with, group);
  at::Tensor coming;
  arriving_ = part_in(letter, part.progress, coming);
  arriving_->generation = generation;
  const auto for_messages = [](const at::Tensor& bytes, auto call) {
    for (int64_t from = 0; from < bytes.numel(); from += kMostBytes)
      call(bytes.narrow(0, from, std::min(kMostBytes, bytes.numel() - from)));
  };
  for_messages(coming, [&](const at::Tensor& bytes) {
    receives_.push_back(group.recv_async(bytes, with.from, kTag));
  });
  for_messages(block, [&](const at::Tensor& bytes) {
    sends_.push_back(group.send_async(bytes, with.to, kTag));
  });
  is_under_way_ = true;
}

void NeighbourCopies::finish(Group& group, Milliseconds at_once) {
  // Other ranks may have more to receive, and none of them waits longer than a time-out at once.
  const at::Tensor waiting = at::zeros({1}, at::kLong);
  do {
    waiting[0] = are_done_within(at_once) ? 0 : 1;
    group.all_reduce(waiting);
  } while (waiting.item<int64_t>() > 0);
  is_under_way_ = false;
  copies_.front().others = std::exchange(arriving_, std::nullopt);
  copies_.resize(1);
}

bool NeighbourCopies::are_done_within(Milliseconds time) {
  const Deadline deadline = Deadline::after(time);
  for (auto* const works : {&receives_, &sends_})
    while (!works->empty()) {
      if (!works->front()->wait_for(deadline.remaining())) return false;
      works->erase(works->begin());
    }
  return true;
}

void NeighbourCopies::leave_generation() {
  // Errors are those that ended the generation. What this rank got is whole without what it sent.
  const auto all_end = [](std::vector<WorkPtr>& works) {
    bool well = true;
    for (const WorkPtr& work : std::exchange(works, {})) {
      try {
        work->wait();
      } catch (const Error&) {
        well = false;
      }
    }
    return well;
  };
  const bool has_come = all_end(receives_) && std::exchange(is_under_way_, false);
  is_under_way_ = false;
  all_end(sends_);
  auto part = std::exchange(arriving_, std::nullopt);
  if (has_come && part) copies_.front().others = std::move(part);
}

std::vector<const RunState*> NeighbourCopies::parts() const {
  std::vector<const RunState*> all;
  for (const Copy& copy : copies_) {
    all.push_back(&copy.own);
    if (copy.others) all.push_back(&*copy.others);
  }
  return all;
}

}  // namespace trireme
