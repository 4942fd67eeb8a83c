// The traffic of operations, as a group's placement foresees it. The plans are made anew from
// the table, so nothing is asked of the group itself.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <trireme/base/log.h>
#include <trireme/plan/collective_scatter.h>
#include <trireme/plan/placement.h>
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>
#include "ranks.h"

namespace trireme::tests {

enum class Act {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  all_to_all_by_counts,
  gather,
  ring_of_messages
};

// The elements that one rank sends another in an all_to_all of blocks that differ.
inline int64_t length_between(int from, int to, int64_t count) {
  return (from + 2 * to) % 3 * count;
}
inline std::pair<std::vector<int64_t>, std::vector<int64_t>> lengths_of(int rank, int size,
                                                                        int64_t count) {
  std::vector<int64_t> sent, received;
  for (int other = 0; other < size; ++other) {
    sent.push_back(length_between(rank, other, count));
    received.push_back(length_between(other, rank, count));
  }
  return {sent, received};
}
inline int64_t sum_of(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

struct Call {
  Act act = Act::all_reduce;
  int64_t count = 0;  // The elements of the tensor, or of a block of it.
  at::ScalarType type = at::kFloat;
  int root = 0;

  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(type)); }
};

// Sizes on both sides of the table's thresholds, and sizes that no number of chunks divides.
inline std::vector<Call> some_calls(int size) {
  std::vector<Call> calls;
  for (const int64_t count : {0, 1, 7, 1000, 10007, 60000}) {
    for (const at::ScalarType type : {at::kFloat, at::kByte}) {
      calls.push_back({Act::all_reduce, count, type});
      calls.push_back({Act::reduce_scatter, count, type});
      calls.push_back({Act::all_gather, count, type});
      calls.push_back({Act::all_to_all, count, type});
      calls.push_back({Act::all_to_all_by_counts, count, type});
      calls.push_back({Act::broadcast, count, type, 0});
      calls.push_back({Act::broadcast, count, type, size - 1});
    }
    calls.push_back({Act::gather, count, at::kHalf, size / 2});
    if (size > 1 && count > 0) calls.push_back({Act::ring_of_messages, count, at::kDouble});
  }
  return calls;
}

// COLLECTIVE.
inline void perform(Group& group, const Call& call) {
  const int rank = group.rank(), size = group.size();
  const at::Tensor one = at::zeros({call.count}, call.type);
  const at::Tensor all = at::zeros({call.count * size}, call.type);
  switch (call.act) {
    case Act::all_reduce: return group.all_reduce(one);
    case Act::reduce_scatter: return group.reduce_scatter(all, one);
    case Act::all_gather: return group.all_gather(one, all);
    case Act::broadcast: return group.broadcast(one, call.root);
    case Act::all_to_all: return group.all_to_all(all, at::empty_like(all));
    case Act::all_to_all_by_counts: {
      const auto [sent, received] = lengths_of(rank, size, call.count);
      return group.all_to_all(at::zeros({sum_of(sent)}, call.type),
                              at::zeros({sum_of(received)}, call.type), sent, received);
    }
    case Act::gather: return group.gather(one, rank == call.root ? all : at::Tensor(), call.root);
    case Act::ring_of_messages: {
      const at::Tensor other = at::zeros_like(one);
      const WorkPtr receiving = group.recv_async(other, (rank + size - 1) % size, 3),
                    sending = group.send_async(one, (rank + 1) % size, 3);
      receiving->wait();
      return sending->wait();
    }
  }
}

class Forecast {
 public:
  explicit Forecast(plan::Placement placement)
      : placement_(std::move(placement)), ranks_(static_cast<size_t>(placement_.ranks())) {}

  void add(const Call& call) {
    const int ranks = placement_.ranks();
    const int64_t whole = call.count * ranks, each = call.element_bytes();
    switch (call.act) {
      case Act::all_reduce: return all_reduce(call.count, each);
      case Act::reduce_scatter:
        if (!in_two_levels()) return carry(only(), Kind::reduce_scatter, whole, each);
        return reduce_scatter(call.count, each);
      case Act::all_gather: return all_gather(call.count, each);
      case Act::broadcast: return broadcast(call.count, each, call.root);
      case Act::all_to_all: return all_to_all(call.count, each);
      case Act::all_to_all_by_counts: return all_to_all_by_counts(call.count, each);
      case Act::gather:
        if (in_two_levels()) return all_gather(call.count, each);
        for (int rank = 0; ranks > 1 && rank < ranks; ++rank)
          count(rank, rank == call.root ? 0 : call.count * each);
        return;
      case Act::ring_of_messages:
        for (int rank = 0; rank < ranks; ++rank) count(rank, call.count * each);
    }
  }

  // Compares it with what the ranks' groups counted.
  void expect_of(const Groups& groups) const {
    for (const auto& group : groups) {
      const Traffic expected = ranks_[static_cast<size_t>(group->rank())];
      EXPECT_EQ(group->traffic().operations, expected.operations) << "rank " << group->rank();
      EXPECT_EQ(group->traffic().bytes_sent, expected.bytes_sent) << "rank " << group->rank();
    }
  }

 private:
  using Kind = plan::Collective;

  bool in_two_levels() const {
    return placement_.between && placement_.between->size() < placement_.ranks();
  }
  const plan::Carrier& only() const {
    return placement_.between ? *placement_.between : placement_.inside.front();
  }

  void all_reduce(int64_t elements, int64_t each) {
    if (!in_two_levels()) return carry(only(), Kind::all_reduce, elements, each);
    for (const plan::Carrier& host : placement_.inside)
      carry(host, Kind::all_reduce, elements, each);
    carry(*placement_.between, Kind::all_reduce, elements, each);
    hand_out_inside(elements, each);
  }
  // Inside each host, then from rank to rank between hosts.
  void reduce_scatter(int64_t block, int64_t each) {
    std::vector<std::vector<int>> hosts;
    for (const plan::Carrier& host : placement_.inside) hosts.push_back(host.ranks);
    const plan::ScatterOverHosts scatter(hosts, block);
    for (size_t host = 0; host < hosts.size(); ++host) {
      const int number = static_cast<int>(host), size = static_cast<int>(hosts[host].size());
      carry(placement_.inside[host], Kind::reduce_scatter,
            size * (block + scatter.portion(number)), each);
      for (int place = 0; place < size; ++place)
        count(hosts[host][static_cast<size_t>(place)],
              scatter.sent_between_hosts(number, place) * each);
    }
  }
  void all_to_all(int64_t block, int64_t each) {
    const int64_t ranks = placement_.ranks();
    if (!in_two_levels()) return carry(only(), Kind::all_to_all, block * ranks * ranks, each);
    for (const plan::Carrier& host : placement_.inside) {
      const int64_t here = host.size();
      carry(host, Kind::all_to_all, block * here * here, each);
      for (const int rank : host.ranks) count(rank, (ranks - here) * block * each);
    }
  }
  // The lengths travel first.
  void all_to_all_by_counts(int64_t count_of_elements, int64_t each) {
    const auto send = [&](const std::vector<int>& to, int rank) {
      int64_t sent = 0;
      for (const int other : to)
        if (other != rank) sent += length_between(rank, other, count_of_elements);
      count(rank, sent * each);
    };
    std::vector<int> all(static_cast<size_t>(placement_.ranks()));
    std::iota(all.begin(), all.end(), 0);
    all_gather(2 * placement_.ranks() + 1, 8);
    if (!in_two_levels()) {
      for (const int rank : all)
        if (all.size() > 1) send(all, rank);
      return;
    }
    for (const plan::Carrier& host : placement_.inside) {
      for (const int rank : host.ranks) {
        if (host.size() > 1) send(host.ranks, rank);
        std::vector<int> others;
        for (const int other : all)
          if (std::find(host.ranks.begin(), host.ranks.end(), other) == host.ranks.end())
            others.push_back(other);
        send(others, rank);
      }
    }
  }
  // Between hosts a block has room for the ranks of the largest host.
  void all_gather(int64_t block, int64_t each) {
    const int64_t whole = block * placement_.ranks();
    if (!in_two_levels()) return carry(only(), Kind::all_gather, whole, each);
    int64_t largest = 0;
    for (const plan::Carrier& host : placement_.inside) {
      carry(host, Kind::all_gather, block * host.size(), each);
      largest = std::max<int64_t>(largest, host.size());
    }
    carry(*placement_.between, Kind::all_gather, block * largest * placement_.host_count(), each);
    hand_out_inside(whole, each);
  }
  void broadcast(int64_t elements, int64_t each, int root) {
    if (!in_two_levels()) return carry(only(), Kind::broadcast, elements, each, root);
    const int host = placement_.hosts[static_cast<size_t>(root)];
    const plan::Carrier& first = placement_.inside[static_cast<size_t>(host)];
    const auto place = std::find(first.ranks.begin(), first.ranks.end(), root);
    carry(first, Kind::broadcast, elements, each, static_cast<int>(place - first.ranks.begin()));
    carry(*placement_.between, Kind::broadcast, elements, each, host);
    hand_out_inside(elements, each);
  }
  void hand_out_inside(int64_t elements, int64_t each) {
    for (const plan::Carrier& host : placement_.inside)
      carry(host, Kind::broadcast, elements, each);
  }

  // `root` is a place in the carrier.
  void carry(const plan::Carrier& carrier, Kind kind, int64_t elements, int64_t each,
             int root = 0) {
    const int size = carrier.size();
    if (size == 1) return;
    const int64_t bytes = elements * each;
    for (int place = 0; place < size; ++place) {
      const int rank = carrier.ranks[static_cast<size_t>(place)];
      if (carrier.runs_plans())
        count(rank, plan_of(carrier, kind, bytes, root).bytes_sent(place, elements, each));
      else
        count(rank, usual_bytes(kind, bytes, size, place == root));
    }
  }
  plan::CollectivePlan plan_of(const plan::Carrier& carrier, Kind kind, int64_t bytes,
                               int root) const {
    const plan::SizeChoices choices =
        placement_.table.choices(carrier.path, kind, carrier.size(), carrier.hosts);
    const plan::Algorithm algorithm = choices[plan::choose(choices, bytes)].algorithm;
    return plan::plan_collective(kind, algorithm, carrier.size(), root, carrier.hosts);
  }
  // This is for backends that have algorithms of their own.
  static int64_t usual_bytes(Kind kind, int64_t bytes, int size, bool is_root) {
    if (kind == Kind::broadcast) return is_root ? bytes : 0;
    if (kind == Kind::all_to_all) return (size - 1) * (bytes / size / size);
    if (kind != Kind::all_reduce) return (size - 1) * (bytes / size);
    return 2 * (size - 1) * bytes / size;
  }

  void count(int rank, int64_t bytes) {
    Traffic& traffic = ranks_[static_cast<size_t>(rank)];
    ++traffic.operations;
    traffic.bytes_sent += bytes;
  }

  plan::Placement placement_;
  std::vector<Traffic> ranks_;
};

}  // namespace trireme::tests
