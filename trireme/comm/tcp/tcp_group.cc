#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <trireme/base/cores.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/breakable.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/operation_queue.h>
#include <trireme/comm/prepared_plan.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/tcp/mesh.h>
#include <trireme/comm/tcp/messages.h>
#include <trireme/comm/tcp/round_runner.h>
#include <trireme/comm/tcp/tcp_group.h>
#include <trireme/comm/wait_limits.h>
#include <trireme/membership/member.h>
#include <trireme/plan/placement.h>
#include <algorithm>
#include <cstring>
#include <map>

namespace trireme::comm {
namespace {

// The time after which a peer that acknowledges nothing is given up, however long
// an operation takes.
constexpr Milliseconds kSilence{10000};

// [rank]: the number of its host, in the order of first ranks. Hosts are told apart by address,
// since the traffic over the network is what counts.
std::vector<int> hosts_of(const membership::Member& member, const std::vector<int>& workers) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const int worker : workers)
    hosts.push_back(numbers
                        .try_emplace(member.peers()[static_cast<size_t>(worker)].address,
                                     static_cast<int>(numbers.size()))
                        .first->second);
  return hosts;
}

// With more ranks than cores, a rank that waits without sleeping delays the rank for
// which it waits.
bool has_a_core_for_each_rank(const membership::Member& member, const std::vector<int>& workers,
                              int rank) {
  const auto host_of = [&](int worker) {
    return member.peers()[static_cast<size_t>(worker)].host;
  };
  const std::string host = host_of(workers[static_cast<size_t>(rank)]);
  const auto here = std::count_if(workers.begin(), workers.end(),
                                  [&](int worker) { return host_of(worker) == host; });
  return here <= usable_cores();
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

class TcpGroup : public Group, public Breakable {
 public:
  TcpGroup(std::shared_ptr<WaitLimits> limits, int rank, const std::vector<int>& hosts, bool spin,
           Mesh mesh, const plan::CollectiveTable& plans)
      : Group(rank, static_cast<int>(hosts.size())),
        limits_(std::move(limits)),
        spin_(spin),
        plans_("tcp", size(), hosts, plans),
        messages_(std::move(mesh.messages), limits_) {
    for (Descriptor& socket : mesh.collectives) links_.emplace_back(std::move(socket));
  }
  ~TcpGroup() override { TcpGroup::do_abort("its group was destroyed"); }

  std::string_view backend() const override { return "tcp"; }
  bool runs_in_background() const override { return true; }
  plan::Placement placement() const override {
    plan::Placement processes = plan::each_alone(size(), "tcp", plans_.table());
    if (processes.between) processes.between->hosts = plans_.hosts();
    return processes;
  }

  // Closed connections end this rank's own wait and those of the others. The coordinator tells the
  // others which rank it was.
  void do_abort(const std::string& reason) override {
    limits_->give_up(reason);
    for (int peer = 0; peer < size(); ++peer) drop_link(peer);
  }

  void drop_link(int peer) override {
    links_.at(static_cast<size_t>(peer)).drop();
    messages_.drop(peer);
  }

 private:
  int64_t bytes_sent_in(plan::Collective collective, int64_t elements, int64_t element_bytes,
                        int root) const override {
    return plans_.bytes_sent(rank(), collective, elements, element_bytes, root);
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    return queue_.add([this, tensor, op] {
      const PreparedPlan& plan =
          plans_.choose(plan::Collective::all_reduce, static_cast<int64_t>(tensor.nbytes()));
      perform(call_of(Operation::all_reduce, tensor, static_cast<int32_t>(op), &plan),
              [&](RoundRunner& runner) { follow(runner, plan, tensor, fold_of(op)); });
      if (op == ReduceOp::mean) tensor.div_(size());
    });
  }

  // `input` is only read: sums on their way to other ranks have memory of their own, and this
  // rank's block is added up in the output.
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    return queue_.add([this, input, output, op] {
      const PreparedPlan& plan =
          plans_.choose(plan::Collective::reduce_scatter, static_cast<int64_t>(input.nbytes()));
      const at::Tensor sum = output.is_alias_of(input) ? at::empty_like(output) : output;
      const at::Tensor sums = plan.plan.rounds.size() > 1 ? at::empty_like(input) : input;
      Chunks chunks{bytes_of(input), std::vector<std::byte*>(static_cast<size_t>(size()))};
      for (int chunk = 0; chunk < size(); ++chunk)
        chunks.sums[static_cast<size_t>(chunk)] =
            chunk == rank() ? bytes_of(sum)
                            : bytes_of(sums) + static_cast<size_t>(chunk) * output.nbytes();
      perform(call_of(Operation::reduce_scatter, input, static_cast<int32_t>(op), &plan),
              [&](RoundRunner& runner) {
                follow(runner, plan, input.numel(), to_plan(input.scalar_type()), fold_of(op),
                       chunks);
              });
      if (size() == 1) sum.copy_(input.view(sum.sizes()));
      if (!sum.is_same(output)) output.copy_(sum);
      if (op == ReduceOp::mean) output.div_(size());
    });
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    return queue_.add([this, input, output] {
      put_block(output, input, rank());
      const PreparedPlan& plan =
          plans_.choose(plan::Collective::all_gather, static_cast<int64_t>(output.nbytes()));
      perform(call_of(Operation::all_gather, output, 0, &plan),
              [&](RoundRunner& runner) { follow(runner, plan, output, Fold::sum); });
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    return queue_.add([this, tensor, root] {
      // A call for root 0 chooses the same algorithm. The ranks compare their calls before the
      // root matters.
      const PreparedPlan& plan =
          plans_.choose(plan::Collective::broadcast, static_cast<int64_t>(tensor.nbytes()), root);
      perform(call_of(Operation::broadcast, tensor, root, &plan),
              [&](RoundRunner& runner) { follow(runner, plan, tensor, Fold::sum); });
    });
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    return queue_.add([this, input, output, splits = std::move(splits)] {
      Call call = call_of(Operation::all_to_all, input, splits.equal, nullptr);
      call.elements = splits.total;
      perform(call, [&](RoundRunner& runner) {
        Round round(rank(), to_plan(input.scalar_type()), Fold::sum);
        const auto size_of_element = static_cast<int64_t>(input.element_size());
        for (int other = 0; other < size(); ++other) {
          const auto at = static_cast<size_t>(other);
          std::byte* const from = bytes_of(input) + splits.sent_at[at] * size_of_element;
          std::byte* const to = bytes_of(output) + splits.received_at[at] * size_of_element;
          if (other != rank()) {
            round.send(other, from, splits.sent[at]);
            round.receive({other}, to, to, splits.received[at]);
          } else if (splits.sent[at] > 0) {
            std::memcpy(to, from, static_cast<size_t>(splits.sent[at] * size_of_element));
          }
        }
        runner.run(round);
      });
    });
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    queue_
        .add([&] {
          perform(call_of(Operation::gather, input, root, nullptr), [&](RoundRunner& runner) {
            Round round(rank(), to_plan(input.scalar_type()), Fold::sum);
            const size_t block = input.nbytes();
            if (rank() != root) round.send(root, bytes_of(input), input.numel());
            for (int source = 0; rank() == root && source < size(); ++source) {
              std::byte* const place = bytes_of(output) + static_cast<size_t>(source) * block;
              if (source != rank())
                round.receive({source}, place, place, input.numel());
              else if (block > 0)
                std::memmove(place, input.const_data_ptr(), block);
            }
            runner.run(round);
          });
        })
        ->wait();
  }

  // No operation ends before the calls of all ranks have arrived, so nothing more is needed.
  void do_barrier() override {
    queue_.add([this] { perform({.operation = Operation::barrier}, [](RoundRunner&) {}); })
        ->wait();
  }

  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    return messages_.send(std::move(tensor), to, tag);
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return messages_.receive(std::move(tensor), from, tag);
  }

  static Call call_of(Operation operation, const at::Tensor& tensor, int32_t detail,
                      const PreparedPlan* plan) {
    return {.elements = tensor.numel(),
            .operation = operation,
            .type = static_cast<int32_t>(tensor.scalar_type()),
            .detail = detail,
            .algorithm = plan ? static_cast<int32_t>(plan->plan.algorithm) : 0};
  }

  // The queue runs one operation at a time. After a failure the state of the
  // connections is unknown.
  template <typename Body>
  void perform(Call call, Body body) {
    limits_->throw_if_lost();
    if (failure_) std::rethrow_exception(failure_);
    call.sequence = sequence_++;
    try {
      RoundRunner runner(links_, rank(), *limits_, spin_, call);
      body(runner);
      runner.finish();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  // The memory of a plan's chunks. A chunk lies in the tensor until this rank receives it. Then it
  // lies at its place in `sums`, or still in the tensor if `sums` is empty.
  struct Chunks {
    std::byte* tensor;
    std::vector<std::byte*> sums;  // [chunk]
    std::vector<bool> received = std::vector<bool>(sums.size(), false);
  };

  void follow(RoundRunner& runner, const PreparedPlan& prepared, const at::Tensor& tensor,
              Fold fold) {
    Chunks in_place{bytes_of(tensor), {}};
    follow(runner, prepared, tensor.numel(), to_plan(tensor.scalar_type()), fold, in_place);
  }
  void follow(RoundRunner& runner, const PreparedPlan& prepared, int64_t elements,
              plan::DType dtype, Fold fold, Chunks& chunks) {
    const plan::CollectivePlan& plan = prepared.plan;
    const auto place = [&](int chunk, bool received) {
      return received
                 ? chunks.sums[static_cast<size_t>(chunk)]
                 : chunks.tensor + plan.chunk_range(chunk, elements).first * plan::bytes_of(dtype);
    };
    const auto present = [&](int chunk) {
      return place(chunk, !chunks.sums.empty() && chunks.received[static_cast<size_t>(chunk)]);
    };
    const auto length = [&](int chunk) {
      const auto [first, end] = plan.chunk_range(chunk, elements);
      return end - first;
    };
    for (const plan::RankRound& mine : own_rounds(prepared)) {
      Round round(rank(), dtype, fold);
      for (const auto& [chunk, to] : mine.sends) round.send(to, present(chunk), length(chunk));
      for (const plan::Transfer& receive : mine.receives)
        round.receive(receive.sources, place(receive.chunk, !chunks.sums.empty()),
                      present(receive.chunk), length(receive.chunk));
      runner.run(round);
      for (const plan::Transfer& receive : mine.receives)
        if (!chunks.sums.empty()) chunks.received[static_cast<size_t>(receive.chunk)] = true;
    }
  }

  // This rank's part of a plan, with its chunks in ascending order, as they travel
  // on a connection.
  const std::vector<plan::RankRound>& own_rounds(const PreparedPlan& prepared) {
    const auto [found, is_new] = own_rounds_.try_emplace(&prepared);
    if (is_new) {
      for (const auto& ranks : prepared.plan.rounds) {
        plan::RankRound& mine = found->second.emplace_back(ranks[static_cast<size_t>(rank())]);
        std::sort(mine.sends.begin(), mine.sends.end());
        std::sort(
            mine.receives.begin(), mine.receives.end(),
            [](const plan::Transfer& a, const plan::Transfer& b) { return a.chunk < b.chunk; });
      }
    }
    return found->second;
  }

  const std::shared_ptr<WaitLimits> limits_;
  const bool spin_;
  const PlanChoice plans_;
  std::map<const PreparedPlan*, std::vector<plan::RankRound>> own_rounds_;
  std::vector<Link> links_;  // By rank.
  uint64_t sequence_ = 0;
  std::exception_ptr failure_;
  Messages messages_;
  OperationQueue queue_;  // The last member: its thread uses the members above.
};

}  // namespace

std::shared_ptr<Group> make_tcp_group(std::shared_ptr<membership::Member> member, int rank,
                                      std::vector<int> workers, const TcpOptions& options) {
  Mesh mesh = connect_mesh(*member, rank, static_cast<int>(workers.size()),
                           {.name = options.name,
                            .address = options.address,
                            .token = options.token,
                            .timeout = options.timeout,
                            .silence = std::min(kSilence, options.timeout)});
  const std::vector<int> hosts = hosts_of(*member, workers);
  const bool spin = has_a_core_for_each_rank(*member, workers, rank);
  auto limits =
      std::make_shared<WaitLimits>(std::move(member), options.timeout, std::move(workers));
  return std::make_shared<TcpGroup>(std::move(limits), rank, hosts, spin, std::move(mesh),
                                    options.plans);
}

}  // namespace trireme::comm
