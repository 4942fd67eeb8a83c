#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/hybrid_group.h>
#include <trireme/plan/placement.h>
#include <algorithm>

namespace trireme::comm {
namespace {

int count_ranks(const std::vector<std::vector<int>>& hosts) {
  size_t ranks = 0;
  for (const auto& host : hosts) ranks += host.size();
  return static_cast<int>(ranks);
}

class HybridGroup : public Group {
 public:
  HybridGroup(std::shared_ptr<const HybridParts> parts, std::shared_ptr<Group> local)
      : Group(parts->ranks[static_cast<size_t>(parts->host)][static_cast<size_t>(local->rank())],
              count_ranks(parts->ranks)),
        parts_(std::move(parts)),
        local_(std::move(local)) {
    for (const auto& host : parts_->ranks)
      largest_host_ = std::max(largest_host_, static_cast<int64_t>(host.size()));
  }

  std::string_view backend() const override { return "hybrid"; }
  void abort(const std::string& reason) override { local_->abort(reason); }
  std::shared_ptr<HostTeam> host_team() const override { return local_->host_team(); }
  int hosts() const override { return static_cast<int>(parts_->ranks.size()); }
  std::shared_ptr<Group> between_hosts() const override {
    return leads() ? parts_->leaders : nullptr;
  }

  plan::Placement placement() const override {
    plan::Placement all;
    all.hosts.resize(static_cast<size_t>(size()));
    all.table = local_->placement().table;
    plan::Carrier between{std::string(parts_->processes->backend()), {}, hosts_of_leaders()};
    for (const auto& ranks : parts_->ranks) {
      for (const int rank : ranks) all.hosts[static_cast<size_t>(rank)] = all.host_count();
      const bool several_processes = static_cast<int>(ranks.size()) > each();
      all.inside.push_back({several_processes ? "shm" : "threads", ranks, {}});
      between.ranks.push_back(ranks.front());
    }
    all.between = std::move(between);
    return all;
  }

  // Collectives consist of those of the other groups, which count them. The messages of all
  // threads of a process go to other hosts through one group, so they count here.
  Traffic traffic() const override {
    const Traffic own = traffic_of_messages() + local_->traffic_of_collectives();
    return leads() ? own + parts_->leaders->traffic() : own;
  }

 private:
  bool leads() const { return local_->rank() == 0; }

  // Runs a step that only the leader takes. If it fails, the other ranks of the host must not wait
  // for the leader.
  template <typename Action>
  void lead(Action action) {
    if (!leads()) return;
    try {
      action();
    } catch (const std::exception& error) {
      local_->abort(parts_of(error).what);  // Each rank adds its own number to the text.
      throw;
    }
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const ReduceOp partial = op == ReduceOp::mean ? ReduceOp::sum : op;
    local_->all_reduce(tensor, partial);
    lead([&] { parts_->leaders->all_reduce(tensor, partial); });
    local_->broadcast(tensor, 0);
    if (op == ReduceOp::mean) tensor.div_(size());
    return finished_work();
  }
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    at::Tensor whole = input.clone();
    all_reduce(whole, op);
    take_block(output, whole, rank());
    return finished_work();
  }
  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    // Hosts may have different numbers of ranks, and their ranks need not be neighbours. So blocks
    // of equal size travel, and each is then copied to its place.
    const int64_t block = input.numel();
    at::Tensor mine = at::empty({largest_host_ * block}, input.options());
    local_->all_gather(input, mine.narrow(0, 0, local_->size() * block));
    lead([&] {
      at::Tensor all = at::empty({hosts() * largest_host_ * block}, input.options());
      parts_->leaders->all_gather(mine, all);
      const at::Tensor flat = output.view({-1});
      for (size_t host = 0; host < parts_->ranks.size(); ++host)
        for (size_t place = 0; place < parts_->ranks[host].size(); ++place)
          flat.narrow(0, parts_->ranks[host][place] * block, block)
              .copy_(all.narrow(
                  0,
                  (static_cast<int64_t>(host) * largest_host_ + static_cast<int64_t>(place)) *
                      block,
                  block));
    });
    local_->broadcast(output, 0);
    return finished_work();
  }
  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    const auto [host, place] = place_of(root);
    if (host == parts_->host) local_->broadcast(tensor, place);
    lead([&] { parts_->leaders->broadcast(tensor, host); });
    local_->broadcast(tensor, 0);
    return finished_work();
  }
  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    at::Tensor all = at::empty({size() * input.numel()}, input.options());
    all_gather(input, all);
    if (rank() == root) output.copy_(all.view(output.sizes()));
  }
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    const auto [host, place] = place_of(to);
    if (host == parts_->host) return local_->send_async(tensor, place, tag);
    return parts_->processes->relay_async(tensor, to / each(), pair_tag(rank(), to, tag));
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    const auto [host, place] = place_of(from);
    if (host == parts_->host) return local_->recv_async(tensor, place, tag);
    return parts_->processes->recv_async(tensor, from / each(), pair_tag(from, rank(), tag));
  }
  void do_barrier() override {
    local_->barrier();
    lead([&] { parts_->leaders->barrier(); });
    local_->barrier();
  }

  // Returns (host, rank inside it).
  std::pair<int, int> place_of(int rank) const {
    for (size_t host = 0; host < parts_->ranks.size(); ++host) {
      const auto& here = parts_->ranks[host];
      if (const auto found = std::find(here.begin(), here.end(), rank); found != here.end())
        return {static_cast<int>(host), static_cast<int>(found - here.begin())};
    }
    throw Error(ErrorCode::internal, "comm", fmt::format("rank {} is on no host", rank));
  }
  int each() const { return parts_->ranks_per_process; }
  // [host]: the number by which the carrier between hosts knows the host of its leader. The
  // numbers are in the order of the leaders, as if these were a group of their own.
  std::vector<int> hosts_of_leaders() const {
    const std::vector<int> of_processes = parts_->processes->placement().between.value().hosts;
    std::vector<int> known, hosts;
    for (const auto& ranks : parts_->ranks) {
      const int theirs = of_processes.at(static_cast<size_t>(ranks.front() / each()));
      const auto found = std::find(known.begin(), known.end(), theirs);
      hosts.push_back(static_cast<int>(found - known.begin()));
      if (found == known.end()) known.push_back(theirs);
    }
    return hosts;
  }
  // Between two processes the tag must also distinguish the pairs of threads.
  int pair_tag(int sender, int receiver, int tag) const {
    const int pairs = each() * each();
    const int combined = tag * pairs + sender % each() * each() + receiver % each();
    if (combined > 255)
      throw Error(
          ErrorCode::unsupported, "comm",
          fmt::format("tag {} is too large between processes with {} threads each", tag, each()),
          fmt::format("a tag below {}", 256 / pairs));
    return combined;
  }

  std::shared_ptr<const HybridParts> parts_;
  std::shared_ptr<Group> local_;
  int64_t largest_host_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_hybrid_groups(HybridParts parts) {
  auto common = std::make_shared<const HybridParts>(std::move(parts));
  std::vector<std::shared_ptr<Group>> groups;
  for (const auto& local : common->local)
    groups.push_back(std::make_shared<HybridGroup>(common, local));
  return groups;
}

}  // namespace trireme::comm
