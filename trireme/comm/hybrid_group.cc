#include <fmt/format.h>
#include <torch/torch.h>
#include <trireme/base/error.h>
#include <trireme/comm/hybrid_group.h>

namespace trireme::comm {
namespace {

class HybridGroup : public Group {
 public:
  HybridGroup(std::shared_ptr<Group> local, std::shared_ptr<Group> leaders)
      : Group(leaders->rank() * local->size() + local->rank(), leaders->size() * local->size()),
        local_(std::move(local)),
        leaders_(std::move(leaders)) {}

  std::string_view backend() const override { return "hybrid"; }
  void abort(const std::string& reason) override { local_->abort(reason); }

 private:
  bool leads() const { return local_->rank() == 0; }

  // What only the leader does; if it fails, the other threads must not wait for it.
  template <typename Action>
  void lead(Action action) {
    if (!leads()) return;
    try {
      action();
    } catch (const std::exception& error) {
      local_->abort(error.what());
      throw;
    }
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const ReduceOp partial = op == ReduceOp::mean ? ReduceOp::sum : op;
    local_->all_reduce(tensor, partial);
    lead([&] { leaders_->all_reduce(tensor, partial); });
    local_->broadcast(tensor, 0);
    if (op == ReduceOp::mean) tensor.div_(size());
    return finished_work();
  }
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    at::Tensor whole = input.clone();
    all_reduce(whole, op);
    output.copy_(whole.view({-1}).narrow(0, rank() * output.numel(), output.numel()).view(output.sizes()));
    return finished_work();
  }
  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    // The process's ranks are neighbours, so its part of the output is one block.
    at::Tensor mine = at::empty({local_->size() * input.numel()}, input.options());
    local_->all_gather(input, mine);
    lead([&] { leaders_->all_gather(mine, output); });
    local_->broadcast(output, 0);
    return finished_work();
  }
  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    const int process = root / local_->size();
    if (process == leaders_->rank()) local_->broadcast(tensor, root % local_->size());
    lead([&] { leaders_->broadcast(tensor, process); });
    local_->broadcast(tensor, 0);
    return finished_work();
  }
  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    at::Tensor all = at::empty({size() * input.numel()}, input.options());
    all_gather(input, all);
    if (rank() == root) output.copy_(all.view(output.sizes()));
  }
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    const auto [process, thread] = place_of(to);
    if (process == leaders_->rank()) return local_->send_async(tensor, thread, tag);
    return leaders_->send_async(tensor, process, pair_tag(local_->rank(), thread, tag));
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    const auto [process, thread] = place_of(from);
    if (process == leaders_->rank()) return local_->recv_async(tensor, thread, tag);
    return leaders_->recv_async(tensor, process, pair_tag(thread, local_->rank(), tag));
  }
  void do_barrier() override {
    local_->barrier();
    lead([&] { leaders_->barrier(); });
    local_->barrier();
  }

  std::pair<int, int> place_of(int rank) const { return {rank / local_->size(), rank % local_->size()}; }
  // Between two processes the leaders' tags must tell pairs of threads apart.
  int pair_tag(int sender, int receiver, int tag) const {
    const int pairs = local_->size() * local_->size();
    const int combined = tag * pairs + sender * local_->size() + receiver;
    if (combined > 255)
      throw Error(ErrorCode::unsupported, "comm", fmt::format("tag {} between {} threads a process", tag, local_->size()),
                  fmt::format("a tag below {}", 256 / pairs));
    return combined;
  }

  std::shared_ptr<Group> local_;
  std::shared_ptr<Group> leaders_;
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_hybrid_groups(std::vector<std::shared_ptr<Group>> threads, std::shared_ptr<Group> leaders) {
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& local : threads) groups.push_back(std::make_shared<HybridGroup>(std::move(local), leaders));
  return groups;
}

}  // namespace trireme::comm
