// The gradients of all ranks of a host, read where they lie in shared memory and added up in the
// order of ranks.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/shared/between_hosts.h>
#include <trireme/parallel/shared/gradient_files.h>
#include <trireme/parallel/shared/gradient_slots.h>
#include <trireme/parallel/shared/shared_parameters.h>
#include <trireme/parallel/shared/step_table.h>
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::shared {

// One rank's view; one thread uses it. It keeps references to its arguments.
class GradientSums {
 public:
  // COLLECTIVE over the team. `table` has the place of each rank's gradients. `folder` is that of
  // the file in which gradients lie; empty: in memory.
  GradientSums(std::shared_ptr<comm::HostTeam> team, SharedParameters& parameters,
               const plan::SharedLayout& layout, const StepTable& table,
               const std::string& folder);
  // From now on reduced gradients lie in the buckets that travel to the other hosts.
  void reduce_into(BetweenHosts& between) { between_ = &between; }

  const std::shared_ptr<GradientSlots>& slots() const { return slots_; }
  // Null if gradients are in memory.
  GradientFiles* files() const { return files_.get(); }
  // Lets the other ranks read this rank's gradient of parameter p. In backward the shape may be
  // one that the exchange does not know yet; then it is found before the step.
  void publish(int p);
  // The existing gradients of parameter p, in the order of ranks.
  void sources_of(int p, std::vector<const std::byte*>& sources) const;
  // The place of the reduced gradient of parameter p. On a single host it overwrites the first
  // replica's own gradient, which no other rank reads in this shard. Between hosts it is the
  // bucket that travels.
  std::byte* reduced(int p) const;
  // Adds up a slice of the gradients of all ranks.
  void reduce(const plan::Slice& slice) const;

  // Calls visit(range, scaled gradient of the range) for the runs of a shard whose parameters are
  // in `wanted`; some replica of the job must have a gradient for these. `sources_for` fills in
  // the gradients to add up for a parameter, in the order of ranks.
  template <typename SourcesFor, typename Visit>
  void for_runs(const std::vector<plan::Slice>& shard, const std::vector<bool>& wanted,
                double factor, SourcesFor sources_for, Visit visit) const {
    std::vector<const std::byte*> whole;
    for (const plan::Slice& slice : shard) {
      if (!wanted[static_cast<size_t>(slice.parameter)]) continue;
      sources_for(slice.parameter, whole);
      with_type(slice.parameter, [&](auto type) {
        using T = decltype(type);
        T scaled[kRun];
        std::vector<const T*> sources(whole.size());
        for (int64_t from = slice.from; from < slice.to; from += kRun) {
          const fused::Range range{slice.parameter, from, std::min(kRun, slice.to - from)};
          for (size_t k = 0; k < whole.size(); ++k)
            sources[k] = reinterpret_cast<const T*>(whole[k]) + from;
          if (sources.size() == 1 && factor == 1) {
            visit(range, sources[0]);
          } else {
            fused::sum_scaled(std::span<const T* const>(sources), factor, scaled, range.count);
            visit(range, static_cast<const T*>(scaled));
          }
          for (size_t k = 0; files_ && k < sources.size(); ++k)
            files_->used_in_order(k, sources[k], static_cast<size_t>(range.count) * sizeof(T));
        }
      });
    }
  }
  // The same for the reduced gradients of this rank's shard.
  template <typename Visit>
  void for_reduced(const std::vector<bool>& wanted, double factor, Visit visit) const {
    for_runs(
        parameters_.shard(), wanted, factor,
        [this](int p, std::vector<const std::byte*>& sources) { sources = {reduced(p)}; }, visit);
  }

 private:
  // Calls visit(T{}) with the element type of parameter p.
  template <typename Visit>
  void with_type(int p, Visit visit) const {
    if (parameters_.type_of(p) == at::kDouble)
      visit(double{});
    else
      visit(float{});
  }

  std::shared_ptr<comm::HostTeam> team_;
  SharedParameters& parameters_;
  const StepTable& table_;
  std::shared_ptr<net::SharedMemory> memory_;
  std::shared_ptr<GradientSlots> slots_;
  std::unique_ptr<GradientFiles> files_;
  BetweenHosts* between_ = nullptr;  // Null if there is no other host.
};

}  // namespace trireme::shared
