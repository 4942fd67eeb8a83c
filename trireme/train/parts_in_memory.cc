#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <trireme/comm/dtype.h>
#include <trireme/train/parts_in_memory.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace trireme {
namespace {

using Numbers = std::vector<int64_t>;

bool is_held(const StateEntry& entry) { return !entry.is_foreign && entry.slice.elements() > 0; }

// The optimizer's counters of the parameters that this rank has: it learned those of others from
// an earlier step.
Json own_counters(const RunState& kept) {
  std::set<std::string> own;
  for (const StateEntry& entry : kept.held)
    if (entry.kind == StateKind::parameter && is_held(entry)) own.insert(entry.slice.tensor);
  const Json optimizer = kept.counters.value("optimizer", Json::object());
  const Json all = optimizer.value("counters", Json::object());
  Json counters = Json::object();
  for (const auto& [part, of_parameters] : all.items())
    for (const auto& [parameter, value] : of_parameters.items())
      if (own.contains(parameter)) counters[part][parameter] = value;
  return counters;
}

Json told_part(const RunState& kept) {
  Json tensors = Json::array();
  for (size_t i = 0; i < kept.held.size(); ++i) {
    const StateEntry& entry = kept.held[i];
    if (!is_held(entry)) continue;
    tensors.push_back({i, static_cast<int>(entry.kind), name_in_file(entry, 0), entry.slice.shape,
                       entry.slice.from, entry.slice.sizes,
                       plan::to_string(to_stored(entry.tensor.scalar_type()))});
  }
  const plan::DataPosition& position = kept.progress.position;
  return {{"step", kept.progress.step},
          {"position", {position.epoch, position.consumed}},
          {"index", kept.part.index},
          {"count", kept.part.count},
          {"rank", kept.rank},
          {"generation", kept.generation},
          {"counters", own_counters(kept)},
          {"tensors", std::move(tensors)}};
}

// A view of the box in a tensor that has the values of `slice`.
at::Tensor box_in(at::Tensor tensor, const plan::TensorSlice& slice,
                  const plan::TensorSlice& box) {
  for (size_t d = 0; d < box.from.size(); ++d)
    tensor = tensor.narrow(static_cast<int64_t>(d), box.from[d] - slice.from[d], box.sizes[d]);
  return tensor;
}

// The number of different parts. Replicas have the same ones.
template <typename Holders>
int64_t distinct_parts(const Holders& holders) {
  std::set<int> parts;
  for (const auto& holder : holders) parts.insert(holder.told["index"].template get<int>());
  return std::ssize(parts);
}

}  // namespace

PartsInMemory::PartsInMemory(std::vector<const RunState*> own, int64_t least_step, Group& group)
    : own_(std::move(own)), group_(group) {
  Json told = Json::array();
  for (const RunState* part : own_) told.push_back(told_part(*part));
  choose(gather_values(group, told), least_step);
  if (missing_.empty()) list_tensors();
}

void PartsInMemory::choose(const std::vector<Json>& told, int64_t least_step) {
  std::vector<Holder> kept, copies;
  for (size_t rank = 0; rank < told.size(); ++rank)
    for (size_t source = 0; source < told[rank].size(); ++source) {
      Holder holder{static_cast<int>(rank), source, told[rank][source]};
      const bool is_copy = holder.told["generation"].get<int>() >= 0;
      if (is_copy && holder.told["step"].get<int64_t>() < least_step) continue;
      (is_copy ? copies : kept).push_back(std::move(holder));
    }
  choose_kept(kept);
  if (!missing_.empty()) choose_copies(copies);
  // Running statistics are those of the first replica. If some ranks have left a batch behind that
  // updated nothing, the others know of it too.
  std::ranges::stable_sort(holders_, {}, [](const Holder& each) {
    const Json& position = each.told["position"];
    return std::tuple(-position[0].get<int64_t>(), -position[1].get<int64_t>(),
                      each.told["rank"].get<int>());
  });
}

void PartsInMemory::choose_kept(const std::vector<Holder>& kept) {
  using Layout = std::pair<int64_t, int>;  // The step, and the number of parts.
  std::map<Layout, std::vector<Holder>> layouts;
  for (const Holder& holder : kept)
    layouts[{holder.told["step"], holder.told["count"]}].push_back(holder);
  const int64_t newest = layouts.empty() ? 0 : layouts.rbegin()->first.first;
  missing_ = "no worker that is left has a part of the state";
  for (auto layout = layouts.rbegin(); layout != layouts.rend(); ++layout) {
    const auto [step, count] = layout->first;
    if (step < newest - 1) break;  // No two ranks differ by more than the step that was cut short.
    const auto lost = count - distinct_parts(layout->second);
    if (lost == 0) {
      holders_ = std::move(layout->second);
      missing_.clear();
      return;
    }
    if (layout == layouts.rbegin())
      missing_ = fmt::format("{} of the {} parts of the state after step {} {} lost with {}", lost,
                             count, step, lost == 1 ? "was" : "were",
                             lost == 1 ? "the workers that had it" : "the workers that had them");
  }
}

// Copies of one step that different generations made never make up a state.
void PartsInMemory::choose_copies(const std::vector<Holder>& copies) {
  using Layout = std::tuple<int64_t, int, int>;  // The step, the generation, the number of parts.
  std::map<Layout, std::vector<Holder>> layouts;
  for (const Holder& holder : copies)
    layouts[{holder.told["step"], holder.told["generation"], holder.told["count"]}].push_back(
        holder);
  for (auto layout = layouts.rbegin(); layout != layouts.rend(); ++layout) {
    if (distinct_parts(layout->second) < std::get<2>(layout->first)) continue;
    holders_ = std::move(layout->second);
    lost_ = std::exchange(missing_, std::string());
    are_copies_ = true;
    return;
  }
}

void PartsInMemory::list_tensors() {
  for (const auto& [rank, source, told] : holders_)
    for (const Json& each : told["tensors"]) {
      slices_.push_back({rank,
                         {each[2].get<std::string>(), each[3].get<Numbers>(),
                          each[4].get<Numbers>(), each[5].get<Numbers>()}});
      held_.push_back({source, each[0].get<size_t>(), static_cast<StateKind>(each[1].get<int>()),
                       plan::dtype_from_string(each[6].get<std::string>())});
      if (held_.back().kind == StateKind::archive)
        missing_ = "each rank has an optimizer without names for its state";
    }
}

void PartsInMemory::complete(Json& counters) const {
  for (const auto& [rank, source, told] : holders_)
    for (const auto& [part, of_parameters] : told["counters"].items())
      for (const auto& [parameter, value] : of_parameters.items())
        counters["optimizer"]["counters"][part][parameter] = value;
}

std::vector<plan::TensorSpec> PartsInMemory::others() const {
  std::map<std::string, plan::TensorSpec> by_name;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const plan::TensorSlice& slice = slices_[i].slice;
    if (!is_of_model(held_[i].kind))
      by_name.try_emplace(slice.tensor,
                          plan::TensorSpec{slice.tensor, slice.shape, held_[i].dtype, true});
  }
  std::vector<plan::TensorSpec> specs;
  for (auto& [name, spec] : by_name) specs.push_back(std::move(spec));
  return specs;
}

std::set<std::string> PartsInMemory::fill(const StateView& wanted) const {
  const at::NoGradGuard no_grad;
  std::set<std::string> known, found;
  for (const plan::PlacedSlice& held : slices_) known.insert(held.slice.tensor);
  Json mine = Json::array();
  std::vector<const StateEntry*> own;
  std::vector<at::Tensor> places;
  for (const StateEntry& entry : wanted) {
    const std::string name = name_in_file(entry, 0);
    if (known.contains(name)) found.insert(name);
    if (!known.contains(name) && !is_of_model(entry.kind)) continue;
    mine.push_back({entry.kind == StateKind::buffer, name, entry.slice.shape, entry.slice.from,
                    entry.slice.sizes});
    own.push_back(&entry);
    const bool is_box = entry.tensor.sizes() == at::IntArrayRef(entry.slice.sizes);
    places.push_back(is_box ? entry.tensor.detach()
                            : at::empty(entry.slice.sizes, entry.tensor.options()));
  }
  const std::vector<Json> lists = gather_values(group_, mine);
  for (const bool is_buffer : {true, false}) {
    std::vector<plan::PlacedSlice> slices;
    std::vector<at::Tensor> targets;  // By index of the slice; undefined on other ranks.
    for (int rank = 0; rank < group_.size(); ++rank)
      for (size_t i = 0; i < lists[static_cast<size_t>(rank)].size(); ++i) {
        const Json& each = lists[static_cast<size_t>(rank)][i];
        if (each[0].get<bool>() != is_buffer) continue;
        slices.push_back({rank,
                          {each[1].get<std::string>(), each[2].get<Numbers>(),
                           each[3].get<Numbers>(), each[4].get<Numbers>()}});
        targets.push_back(rank == group_.rank() ? places[i] : at::Tensor());
      }
    // Running statistics differ between replicas.
    move(slices, targets, is_buffer ? plan::Prefer::first : plan::Prefer::own);
  }
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i]->tensor.sizes() != places[i].sizes())
      own[i]->tensor.copy_(places[i].reshape(own[i]->tensor.sizes()));
  return found;
}

void PartsInMemory::move(const std::vector<plan::PlacedSlice>& wanted,
                         const std::vector<at::Tensor>& targets, plan::Prefer prefer) const {
  for (const plan::SliceMove& next : plan::plan_moves(wanted, slices_, prefer)) {
    const auto& [from, source] = slices_[next.from];
    const auto& [to, target] = wanted[next.to];
    at::Tensor value;
    if (from == group_.rank()) {
      const at::Tensor held =
          own_[held_[next.from].source]->held[held_[next.from].entry].tensor.detach();
      value = box_in(held.reshape(source.sizes), source, next.box).contiguous();
      if (to != from) group_.send(as_bytes(value), to);
    } else if (to == group_.rank()) {
      value =
          at::empty(next.box.sizes, at::TensorOptions().dtype(to_torch(held_[next.from].dtype)));
      group_.recv(as_bytes(value), from);
    }
    if (to == group_.rank()) box_in(targets[next.to], target, next.box).copy_(value);
  }
}

}  // namespace trireme
