#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>
#include <trireme/base/error_parts.h>
#include <trireme/comm/dtype.h>
#include <trireme/membership/protocol.h>
#include <trireme/plan/slice_plan.h>
#include <trireme/train/saver_places.h>
#include <trireme/train/saver_slices.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>

namespace trireme {
namespace {

// A slice of the state as its rank tells the others.
struct ToldSlice {
  int rank = 0;
  size_t entry = 0;  // An index in that rank's view.
  bool of_model = false;
};

[[noreturn]] void refuse_state(const std::string& what) {
  throw Error(ErrorCode::internal, "train", what,
              "a strategy whose ranks together have each element of its state");
}

void require_sound(const StateEntry& entry) {
  check(entry.slice);
  if (is_of_one_rank(entry.kind) && !entry.slice.is_whole())
    refuse_state(fmt::format("{} is of one rank and not whole", entry.slice.describe()));
  if (entry.tensor.numel() != entry.slice.elements())
    refuse_state(fmt::format("the tensor of {} has {} elements", entry.slice.describe(),
                             entry.tensor.numel()));
}

Json told_of(const StateView& view, int rank) {
  Json told = Json::array();
  for (size_t i = 0; i < view.size(); ++i) {
    const StateEntry& entry = view[i];
    // Archives of the other ranks do not count, because their number may differ.
    if (is_of_one_rank(entry.kind) || (entry.kind == StateKind::archive && rank > 0)) continue;
    told.push_back({i, is_of_model(entry.kind), name_in_file(entry, 0), entry.slice.shape,
                    entry.slice.from, entry.slice.sizes});
  }
  return told;
}

// The tensor's own name, or one that is not taken in the file if it has two slices there.
std::string free_name(const plan::TensorSlice& slice, const std::set<std::string>& taken) {
  std::string name = slice.tensor;
  for (int number = 2; taken.contains(name); ++number)
    name = fmt::format("{}#{}", slice.tensor, number);
  return name;
}

}  // namespace

StateSlices slices_of(const StateView& view, Group& group) {
  bool has_parts = false;
  std::optional<Error> unsound;
  try {
    for (const StateEntry& entry : view) require_sound(entry);
  } catch (const Error& error) {
    unsound = error;
  }
  for (const StateEntry& entry : view) has_parts = has_parts || !entry.slice.is_whole();
  // If one rank has an error, the others must not wait for its slices.
  const at::Tensor facts = at::zeros({2}, at::kLong);
  facts[0] = has_parts ? 1 : 0;
  facts[1] = unsound ? 1 : 0;
  group.all_reduce(facts);
  if (facts[1].item<int64_t>() > 0)
    if (const auto error = error_of_any(unsound, group)) throw *error;
  StateSlices result;
  if (facts[0].item<int64_t>() == 0) return result;

  std::vector<ToldSlice> told;
  std::vector<plan::TensorSlice> slices;
  std::vector<std::string> holders;
  const std::vector<Json> lists = gather_values(group, told_of(view, group.rank()));
  for (int rank = 0; rank < group.size(); ++rank)
    for (const Json& each : lists[static_cast<size_t>(rank)]) {
      using Numbers = std::vector<int64_t>;
      told.push_back({rank, each[0].get<size_t>(), each[1].get<bool>()});
      slices.push_back({each[2].get<std::string>(), each[3].get<Numbers>(), each[4].get<Numbers>(),
                        each[5].get<Numbers>()});
      holders.push_back(fmt::format("rank {}", rank));
      if (!slices.back().is_whole()) result.tensors.insert(slices.back().tensor);
    }
  const plan::Cover cover = plan::check_cover(slices, holders);
  result.flaw = cover.flaw;
  for (const StateEntry& entry : view)
    if (entry.kind == StateKind::archive && result.flaw.empty())
      result.flaw = "each rank has an optimizer without names for its state";
  std::map<std::string, std::set<std::string>> taken;
  for (size_t i = 0; i < slices.size(); ++i) {
    const bool is_empty = slices[i].elements() == 0 && !slices[i].is_whole();
    if (cover.first[i] != i || is_empty) continue;
    const std::string file = checkpoint::file_of_part(
        told[i].of_model ? checkpoint::kModelFile : checkpoint::kOptimizerFile, told[i].rank);
    const std::string name = free_name(slices[i], taken[file]);
    taken[file].insert(name);
    if (!slices[i].is_whole())
      result.in_files[file][name] = {slices[i].tensor, slices[i].shape, slices[i].from};
    if (told[i].rank == group.rank()) result.written.emplace_back(told[i].entry, name);
  }
  return result;
}

Error as_error(const std::exception& error) {
  if (const auto* const known = dynamic_cast<const Error*>(&error)) return *known;
  return Error(ErrorCode::internal, "train", error.what());
}

std::optional<Error> error_of_any(const std::optional<Error>& mine, Group& group) {
  Json told;
  if (mine) {
    const auto [what, remedy] = parts_of(*mine);
    told = membership::refusal({mine->code(), what, remedy});
  }
  for (const Json& each : gather_values(group, told))
    if (each.is_object())
      if (const auto failure = membership::failure_in(each))
        return Error(failure->code, "train", failure->what, failure->remedy);
  return {};
}

std::optional<Error> attempt_on_all(Group& group, const std::function<void()>& action) {
  std::optional<Error> mine;
  try {
    action();
  } catch (const std::exception& error) {
    mine = as_error(error);
  }
  return error_of_any(mine, group);
}

void SlicePlaces::add(const StateEntry& entry, const checkpoint::SliceReader& reader) {
  plan::TensorSlice slice = entry.slice;
  slice.tensor = name_in_file(entry, 0);
  const checkpoint::StoredTensor* const stored = reader.find(slice.tensor);
  if (stored == nullptr)
    refuse_checkpoint(fmt::format("{} has no tensor '{}' of this model",
                                  reader.saved().path.string(), slice.tensor));
  const at::ScalarType type = to_torch(stored->spec.dtype);
  const bool fits = !is_of_model(entry.kind) || fits_model(entry.tensor, stored->spec.dtype);
  if (stored->spec.shape != slice.shape || !fits)
    refuse_checkpoint(fmt::format("{} holds '{}' as {}, this run has {} of {}",
                                  reader.saved().path.string(), slice.tensor,
                                  stored->spec.describe(), slice.describe(),
                                  plan::to_string(to_stored(entry.tensor.scalar_type()))));
  if (slice.elements() == 0) return;
  const bool direct =
      entry.tensor.is_cpu() && entry.tensor.is_contiguous() && entry.tensor.scalar_type() == type;
  places_.push_back(
      {entry.tensor,
       direct ? entry.tensor : at::empty(slice.sizes, at::TensorOptions().dtype(type)),
       std::move(slice)});
}

void SlicePlaces::read(checkpoint::SliceReader& reader) {
  const at::NoGradGuard no_grad;
  std::vector<checkpoint::SliceDestination> destinations;
  for (const Place& place : places_)
    destinations.push_back(
        {place.slice,
         {static_cast<std::byte*>(place.read_into.mutable_data_ptr()), place.read_into.nbytes()}});
  reader.read(destinations);
  for (const auto& [tensor, read_into, slice] : places_) {
    if (!read_into.is_same(tensor)) tensor.copy_(read_into.view(tensor.sizes()));
    tensor.unsafeGetTensorImpl()->bump_version();  // Autograd did not see the write.
  }
}

}  // namespace trireme
