#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/hybrid_group.h>
#include <trireme/comm/message_form.h>
#include <trireme/comm/splits.h>
#include <trireme/plan/collective_scatter.h>
#include <trireme/plan/placement.h>
#include <algorithm>
#include <numeric>

namespace trireme::comm {
namespace {

int count_ranks(const std::vector<std::vector<int>>& hosts) {
  size_t ranks = 0;
  for (const auto& host : hosts) ranks += host.size();
  return static_cast<int>(ranks);
}

// A receive in another group, where its sender and its tag have other numbers.
class Receive : public Work {
 public:
  Receive(WorkPtr work, int from, int tag) : work_(std::move(work)), from_(from), tag_(tag) {}
  void start() override { work_->start(); }
  void wait() override {
    named([&] {
      work_->wait();
      return true;
    });
  }
  bool wait_for(Milliseconds patience) override {
    return named([&] { return work_->wait_for(patience); });
  }

 private:
  template <typename Wait>
  bool named(Wait wait) {
    try {
      return wait();
    } catch (const MessageDiffers& error) {
      const MessageDifference& theirs = error.difference();
      throw MessageDiffers({theirs.sent, theirs.expected, from_, tag_});
    }
  }

  WorkPtr work_;
  int from_, tag_;
};

class HybridGroup : public Group {
 public:
  HybridGroup(std::shared_ptr<const HybridParts> parts, std::shared_ptr<Group> local)
      : Group(parts->ranks[static_cast<size_t>(parts->host)][static_cast<size_t>(local->rank())],
              count_ranks(parts->ranks)),
        parts_(std::move(parts)),
        local_(std::move(local)) {
    for (const auto& host : parts_->ranks)
      largest_host_ = std::max(largest_host_, static_cast<int64_t>(host.size()));
    most_threads_ = 1 + *std::max_element(parts_->thread_of.begin(), parts_->thread_of.end());
  }

  std::string_view backend() const override { return "hybrid"; }
  // The leader of the host may wait between hosts.
  void do_abort(const std::string& reason) override {
    local_->abort(reason);
    if (parts_->leaders) parts_->leaders->abort(reason);
    parts_->processes->abort(reason);
  }
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
      const bool several_processes = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
        return process_of(rank) != process_of(ranks.front());
      });
      all.inside.push_back({several_processes ? "shm" : "threads", ranks, {}});
      between.ranks.push_back(ranks.front());
    }
    all.between = std::move(between);
    return all;
  }

  // Collectives consist of those of the other groups, which count them. All messages between hosts
  // go through the group of a process, whatever their thread, so they count here.
  Traffic traffic() const override {
    const Traffic own = traffic_of_messages() + between_.read() + local_->traffic_of_collectives();
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
  // As ScatterOverHosts decides: inside the host first, then each rank sends the others' sums to
  // their owners. The hosts' sums are added in the order of the hosts.
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    const int64_t block = output.numel();
    const plan::ScatterOverHosts scatter(parts_->ranks, block);
    const int64_t portion = scatter.portion(parts_->host);
    const ReduceOp partial = op == ReduceOp::mean ? ReduceOp::sum : op;
    const at::Tensor sums = at::empty({block + portion}, input.options());
    local_->reduce_scatter(by_owner(input.view({-1}), scatter, block), sums, partial);

    std::vector<WorkPtr> messages = send_portion(scatter, sums.narrow(0, block, portion));
    const at::Tensor of_hosts = at::empty({hosts(), block}, input.options());
    std::vector<const void*> terms;
    for (int host = 0; host < hosts(); ++host) {
      const bool here = host == parts_->host;
      terms.push_back(here ? sums.const_data_ptr() : of_hosts[host].const_data_ptr());
      if (here) continue;
      const auto& theirs = parts_->ranks[static_cast<size_t>(host)];
      for (size_t place = 0; place < theirs.size(); ++place) {
        const auto [first, last] = scatter.part(host, static_cast<int>(place), rank());
        if (first < last)
          messages.push_back(
              receive_between(of_hosts[host].narrow(0, first, last - first), theirs[place]));
      }
    }
    for (const WorkPtr& message : messages) message->wait();
    fold_range(to_plan(output.scalar_type()), fold_of(op), output.mutable_data_ptr(), terms, 0,
               block);
    if (op == ReduceOp::mean) output.div_(size());
    return finished_work();
  }
  // The input of the reduction inside the host: for each of its ranks, the rank's own block and
  // its portion of the blocks of other hosts' ranks.
  at::Tensor by_owner(const at::Tensor& flat, const plan::ScatterOverHosts& scatter,
                      int64_t block) const {
    const auto& here = parts_->ranks[static_cast<size_t>(parts_->host)];
    const int64_t portion = scatter.portion(parts_->host);
    at::Tensor ordered = at::empty({local_->size(), block + portion}, flat.options());
    for (int place = 0; place < local_->size(); ++place) {
      const at::Tensor mine = ordered[place];
      mine.narrow(0, 0, block)
          .copy_(flat.narrow(0, here[static_cast<size_t>(place)] * block, block));
      int64_t filled = block;
      for (const int to : scatter.others_of(parts_->host)) {
        const auto [first, last] = scatter.part(parts_->host, place, to);
        mine.narrow(0, filled, last - first)
            .copy_(flat.narrow(0, to * block + first, last - first));
        filled += last - first;
      }
      mine.narrow(0, filled, block + portion - filled).zero_();
    }
    return ordered.view({-1});
  }
  std::vector<WorkPtr> send_portion(const plan::ScatterOverHosts& scatter,
                                    const at::Tensor& portion) {
    std::vector<WorkPtr> messages;
    for (const int to : scatter.others_of(parts_->host)) {
      const auto [first, last] = scatter.part(parts_->host, local_->rank(), to);
      if (first < last)
        messages.push_back(send_between(
            portion.narrow(0, scatter.offset(parts_->host, local_->rank(), to), last - first),
            to));
    }
    between_.add(scatter.sent_between_hosts(parts_->host, local_->rank()) *
                 static_cast<int64_t>(portion.element_size()));
    return messages;
  }
  // The messages of collectives between ranks on different hosts.
  WorkPtr send_between(const at::Tensor& tensor, int to) {
    return parts_->processes->relay_async(tensor, process_of(to), collective_tag(rank(), to));
  }
  WorkPtr receive_between(const at::Tensor& tensor, int from) {
    return parts_->processes->receive_relayed_async(tensor, process_of(from),
                                                    collective_tag(from, rank()));
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
  // Blocks go to other hosts directly, while the ranks of the host exchange theirs.
  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    const at::Tensor from = input.view({-1}), to = output.view({-1});
    std::vector<WorkPtr> messages;
    int64_t sent = 0;
    for (int other = 0; other < size(); ++other) {
      const auto at = static_cast<size_t>(other);
      if (place_of(other).first == parts_->host) continue;
      if (splits.received[at] > 0)
        messages.push_back(
            receive_between(to.narrow(0, splits.received_at[at], splits.received[at]), other));
      if (splits.sent[at] > 0)
        messages.push_back(
            send_between(from.narrow(0, splits.sent_at[at], splits.sent[at]), other));
      sent += splits.sent[at];
    }
    between_.add(sent * static_cast<int64_t>(input.element_size()));
    exchange_inside(from, to, splits);
    for (const WorkPtr& message : messages) message->wait();
    return finished_work();
  }
  void exchange_inside(const at::Tensor& from, const at::Tensor& to, const Splits& splits) {
    const std::vector<int>& here = parts_->ranks[static_cast<size_t>(parts_->host)];
    const Splits inside = splits.among(here, local_->rank());
    std::vector<at::Tensor> blocks;
    for (const int other : here) {
      const auto at = static_cast<size_t>(other);
      blocks.push_back(from.narrow(0, splits.sent_at[at], splits.sent[at]));
    }
    const int64_t arriving =
        std::accumulate(inside.received.begin(), inside.received.end(), int64_t{0});
    const at::Tensor output = at::empty({arriving}, to.options());
    local_->exchange(at::cat(blocks), output, inside);
    int64_t place = 0;
    for (const int other : here) {
      const auto at = static_cast<size_t>(other);
      to.narrow(0, splits.received_at[at], splits.received[at])
          .copy_(output.narrow(0, place, splits.received[at]));
      place += splits.received[at];
    }
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    at::Tensor all = at::empty({size() * input.numel()}, input.options());
    all_gather(input, all);
    if (rank() == root) output.copy_(all.view(output.sizes()));
  }
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    const auto [host, place] = place_of(to);
    if (host == parts_->host) return local_->send_async(tensor, place, tag);
    return parts_->processes->relay_async(tensor, process_of(to), pair_tag(rank(), to, tag));
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    const auto [host, place] = place_of(from);
    return std::make_unique<Receive>(
        host == parts_->host ? local_->recv_async(tensor, place, tag)
                             : parts_->processes->receive_relayed_async(
                                   tensor, process_of(from), pair_tag(from, rank(), tag)),
        from, tag);
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
  int process_of(int rank) const { return parts_->process_of[static_cast<size_t>(rank)]; }
  // The number of a pair of threads among those of two processes.
  int pair_of(int sender, int receiver) const {
    return parts_->thread_of[static_cast<size_t>(sender)] * most_threads_ +
           parts_->thread_of[static_cast<size_t>(receiver)];
  }
  // [host]: the number by which the carrier between hosts knows the host of its leader. The
  // numbers are in the order of the leaders, as if these were a group of their own.
  std::vector<int> hosts_of_leaders() const {
    const std::vector<int> of_processes = parts_->processes->placement().between.value().hosts;
    std::vector<int> known, hosts;
    for (const auto& ranks : parts_->ranks) {
      const int theirs = of_processes.at(static_cast<size_t>(process_of(ranks.front())));
      const auto found = std::find(known.begin(), known.end(), theirs);
      hosts.push_back(static_cast<int>(found - known.begin()));
      if (found == known.end()) known.push_back(theirs);
    }
    return hosts;
  }
  // Between two processes the tag must also distinguish the pairs of threads.
  int pair_tag(int sender, int receiver, int tag) const {
    const int pairs = most_threads_ * most_threads_;
    const int combined = tag * pairs + pair_of(sender, receiver);
    if (combined > 255)
      throw Error(ErrorCode::unsupported, "comm",
                  fmt::format("tag {} is too large between processes with {} threads each", tag,
                              most_threads_),
                  fmt::format("a tag below {}", 256 / pairs));
    return combined;
  }
  // No user's message has it.
  int collective_tag(int sender, int receiver) const { return 256 + pair_of(sender, receiver); }

  std::shared_ptr<const HybridParts> parts_;
  std::shared_ptr<Group> local_;
  Counter between_;  // The collectives that go from rank to rank between hosts.
  int64_t largest_host_ = 0;
  int most_threads_ = 1;  // The most ranks of a process.
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
