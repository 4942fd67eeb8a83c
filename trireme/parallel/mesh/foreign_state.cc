#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/mesh/foreign_state.h>
#include <set>
#include <utility>

namespace trireme {
namespace {

// The members of `from` that `to` lacks; objects inside are merged likewise.
void add_missing(Json& to, const Json& from) {
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key))
      to[key] = value;
    else if (to[key].is_object() && value.is_object())
      add_missing(to[key], value);
  }
}

at::Tensor scalar_of(at::ScalarType type) {
  return at::zeros({}, at::TensorOptions().dtype(type));
}

}  // namespace

StateEntry entry_without_values(const std::string& name, const std::vector<int64_t>& shape,
                                at::ScalarType type, StateKind kind) {
  plan::TensorSlice slice = plan::TensorSlice::whole(name, shape);
  slice.sizes[0] = 0;
  const at::Tensor nothing = at::empty(slice.sizes, at::TensorOptions().dtype(type));
  return {std::move(slice), nothing, kind};
}

void add_model_tensors(StateView& view, const StateView& own,
                       const std::vector<NamedTensor>& tensors,
                       const std::vector<plan::TensorSpec>& forms, StateKind kind) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    bool is_own = false;
    for (const StateEntry& entry : own)
      if (entry.kind == kind && entry.slice.tensor == name) {
        view.push_back(entry);
        is_own = true;
      }
    if (is_own) continue;
    view.push_back(tensor.dim() == 0
                       ? whole(name, tensor, kind)
                       : entry_without_values(name, forms[i].shape, tensor.scalar_type(), kind));
    view.back().is_foreign = true;
  }
}

ForeignState::ForeignState(const std::vector<plan::TensorSpec>& parameters) {
  for (const plan::TensorSpec& spec : parameters) {
    parameters_.insert(spec.name);
    if (plan::bytes_of(spec.dtype) != 2) continue;
    Form form{spec.name, spec.shape, at::kFloat, StateKind::master};
    if (form.shape.empty()) form.copy = scalar_of(form.type);
    forms_.emplace("engine/master/" + spec.name, std::move(form));
  }
}

void ForeignState::learn(const EngineState& own, Group& group) {
  Json mine = {{"counters", own.counters.value("optimizer", Json::object())},
               {"tensors", Json::array()}};
  for (const StateEntry& entry : own.tensors)
    if (entry.kind == StateKind::optimizer || entry.kind == StateKind::master)
      mine["tensors"].push_back({name_in_file(entry, 0), entry.slice.tensor, entry.slice.shape,
                                 static_cast<int>(entry.tensor.scalar_type()),
                                 static_cast<int>(entry.kind)});
  counters_ = Json::object();
  std::set<std::string> seen;  // The lowest rank that has a tensor tells of it.
  for (int rank = 0; rank < group.size(); ++rank) {
    const Json told = Json::parse(broadcast_text(group, mine.dump(), rank));
    add_missing(counters_, told["counters"]);
    for (const Json& each : told["tensors"]) {
      Form form{each[1], each[2], static_cast<at::ScalarType>(each[3].get<int>()),
                static_cast<StateKind>(each[4].get<int>())};
      const std::string name = each[0];
      if (!seen.insert(name).second) continue;
      if (form.shape.empty()) {
        form.copy = scalar_of(form.type);
        if (rank == group.rank())
          for (const StateEntry& entry : own.tensors)
            if (name_in_file(entry, 0) == name) form.copy.copy_(entry.tensor.detach());
        group.broadcast(form.copy, rank);
      }
      forms_.insert_or_assign(name, std::move(form));
    }
  }
}

void ForeignState::learn(const IncomingState& incoming) {
  counters_ = incoming.counters.value("optimizer", Json::object());
  std::erase_if(forms_, [](const auto& each) { return each.second.kind != StateKind::master; });
  for (const plan::TensorSpec& spec : incoming.tensors) {
    if (!parameters_.contains(parameter_of(spec.name))) continue;
    Form form{spec.name, spec.shape, to_torch(spec.dtype), StateKind::optimizer};
    if (form.shape.empty()) form.copy = scalar_of(form.type);
    forms_.insert_or_assign(spec.name, std::move(form));
  }
}

EngineState ForeignState::complete(EngineState own) const {
  EngineState state;
  state.counters = std::move(own.counters);
  if (!counters_.is_null()) {
    Json& optimizer = state.counters["optimizer"];
    if (!optimizer.is_object()) optimizer = Json::object();
    add_missing(optimizer, counters_);
  }
  std::multimap<std::string, StateEntry> by_name;
  for (StateEntry& entry : own.tensors) {
    if (is_of_model(entry.kind))
      state.tensors.push_back(std::move(entry));
    else
      by_name.emplace(name_in_file(entry, 0), std::move(entry));
  }
  for (const auto& [name, form] : forms_) {
    const auto [first, last] = by_name.equal_range(name);
    if (first == last) {
      state.tensors.push_back(
          form.copy.defined() ? whole(form.name, form.copy, form.kind)
                              : entry_without_values(form.name, form.shape, form.type, form.kind));
      state.tensors.back().is_foreign = true;
      continue;
    }
    for (auto entry = first; entry != last; ++entry) state.tensors.push_back(entry->second);
    by_name.erase(first, last);
  }
  for (auto& [name, entry] : by_name) state.tensors.push_back(std::move(entry));
  return state;
}

}  // namespace trireme
