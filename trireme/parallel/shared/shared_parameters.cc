#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/parallel/shared/shared_parameters.h>
#include <algorithm>

namespace trireme::shared {
namespace {

constexpr int kTurns = 8;  // See content_watch.h.

}  // namespace

SharedParameters::SharedParameters(std::shared_ptr<comm::HostTeam> team,
                                   std::vector<NamedTensor>& parameters,
                                   fused::FusedOptimizer& optimizer, const plan::EnginePlan& plan,
                                   const OffloadOptions& offload, int rank)
    : team_(std::move(team)),
      parameters_(parameters),
      optimizer_(optimizer),
      plan_(plan),
      layout_(plan_.layout.value()),
      team_ranks_(
          plan_.shards
              .teams[static_cast<size_t>(plan_.placement.hosts[static_cast<size_t>(rank)])]),
      memory_(layout_, offload,
              [this](size_t bytes, const char* purpose, const std::string& folder) {
                return team_->allocate(bytes, bytes, purpose, folder);
              }) {}

void SharedParameters::move_in() {
  const at::NoGradGuard no_grad;
  if (team_->rank() == 0)
    for (int p = 0; p < count(); ++p) shared_view(p).copy_(tensor(p));
  place_state(team_->rank() == 0);
  team_->barrier("shared parameters");
  for (int p = 0; p < count(); ++p) tensor(p).set_data(shared_view(p));
  remember_versions();
  remember_contents();
  team_->barrier("shared parameters");
}

void SharedParameters::place_state(bool copy) {
  for (int p = 0; p < count(); ++p) {
    std::vector<at::Tensor> places;
    for (const size_t offset : layout_.states[static_cast<size_t>(p)])
      places.push_back(memory_.view(offset, tensor(p)));
    optimizer_.place_state(p, std::move(places), copy);
  }
}

void SharedParameters::adopt_state() {
  if (team_->rank() == 0) place_state(true);
  team_->barrier("optimizer state");
  if (team_->rank() != 0) place_state(false);
  team_->barrier("optimizer state");
}

void SharedParameters::take_values() {
  if (team_->rank() != 0) return;
  for (int p = 0; p < count(); ++p)  // Loading may have given a parameter its own storage.
    if (!is_at_home(p)) shared_view(p).copy_(tensor(p));
}

void SharedParameters::come_home() {
  for (int p = 0; p < count(); ++p)
    if (!is_at_home(p)) tensor(p).set_data(shared_view(p));
  remember_versions();
  remember_contents();
}

std::span<const std::span<std::byte>> SharedParameters::written_by(
    const fused::Range& range, std::span<std::span<std::byte>> regions) const {
  const auto p = static_cast<size_t>(range.parameter);
  const auto element = static_cast<size_t>(tensor(range.parameter).element_size());
  const auto region = [&](size_t offset) {
    return std::span(memory_.at(offset) + static_cast<size_t>(range.from) * element,
                     static_cast<size_t>(range.count) * element);
  };
  size_t written = 0;
  regions[written++] = region(layout_.parameters[p]);
  for (const size_t offset : layout_.states[p]) regions[written++] = region(offset);
  return regions.first(written);
}

void SharedParameters::watch_contents() {
  const auto bytes_of = [this](const plan::Slice& run) {
    const auto element = static_cast<size_t>(plan::bytes_of(spec(run.parameter).dtype));
    return std::span<const std::byte>(
        memory_.at(layout_.parameters[static_cast<size_t>(run.parameter)]) +
            static_cast<size_t>(run.from) * element,
        static_cast<size_t>(run.to - run.from) * element);
  };
  const auto may_be_updated = [this](int p) { return spec(p).trainable && optimizer_.has(p); };
  std::vector<plan::Slice> updated, resting;
  for (const plan::Slice& slice : shard())
    if (may_be_updated(slice.parameter)) updated.push_back(slice);
  for (int p = 0; p < count(); ++p) {
    const int64_t elements = may_be_updated(p) ? 0 : spec(p).elements();
    const int64_t from = elements * team_->rank() / team_->size(),
                  to = elements * (team_->rank() + 1) / team_->size();
    if (from < to) resting.push_back({p, from, to});
  }
  contents_ = std::make_unique<ContentWatch>(updated, kRun, kTurns, bytes_of);
  resting_contents_ = std::make_unique<ContentWatch>(resting, kRun, 1, bytes_of);
}

void SharedParameters::remember_contents() {
  contents_->remember_all();
  resting_contents_->remember_all();
}

void SharedParameters::remember_versions() {
  versions_.clear();
  for (int p = 0; p < count(); ++p)
    versions_.push_back(static_cast<int64_t>(tensor(p)._version()));
}

bool SharedParameters::is_at_home(int p) const {
  return spec(p).elements() == 0 ||
         tensor(p).const_data_ptr() == memory_.at(layout_.parameters[static_cast<size_t>(p)]);
}

ParameterChange SharedParameters::find_change() const {
  if (const ParameterChange found = find_visible_change(); found.change != Change::none)
    return found;
  for (const auto* const watch : {contents_.get(), resting_contents_.get()})
    if (const int p = watch->look(); p >= 0) return {Change::rewritten, p};
  return {};
}

ParameterChange SharedParameters::find_change_of_step() {
  // The contents are watched anew after a change of the groups.
  if (optimizer_.has_new_groups()) return find_change();
  if (const ParameterChange found = find_visible_change(); found.change != Change::none)
    return found;
  if (const int p = resting_contents_->look_at_next(); p >= 0) return {Change::rewritten, p};
  return {};
}

ParameterChange SharedParameters::find_visible_change() const {
  for (int p = 0; p < count(); ++p) {
    if (!is_at_home(p)) return {Change::moved, p};
    if (static_cast<int64_t>(tensor(p)._version()) != versions_[static_cast<size_t>(p)])
      return {Change::rewritten, p};
  }
  return {};
}

}  // namespace trireme::shared
