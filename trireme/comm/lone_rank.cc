#include <trireme/comm/lone_rank.h>
#include <trireme/comm/splits.h>
#include <trireme/plan/placement.h>

namespace trireme::comm {
namespace {

class LoneRank : public Group {
 public:
  explicit LoneRank(int size) : Group(0, size) {}
  std::string_view backend() const override { return "threads"; }
  plan::Placement placement() const override { return plan::on_one_host(size(), "threads"); }

 private:
  // [rank]: a block of the tensor.
  at::Tensor blocks_of(const at::Tensor& tensor) const { return tensor.view({size(), -1}); }

  void do_abort(const std::string&) override {}
  WorkPtr do_all_reduce(at::Tensor, ReduceOp) override { return finished_work(); }
  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp) override {
    output.view({-1}).copy_(blocks_of(input)[0]);
    return finished_work();
  }
  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    do_gather(input, output, 0);
    return finished_work();
  }
  WorkPtr do_broadcast(at::Tensor, int) override { return finished_work(); }
  WorkPtr do_all_to_all(at::Tensor, at::Tensor output, Splits) override {
    output.zero_();
    return finished_work();
  }
  void do_gather(at::Tensor input, at::Tensor output, int) override {
    if (output.defined()) blocks_of(output).copy_(input.view({1, -1}).expand({size(), -1}));
  }
  WorkPtr do_send(at::Tensor, int, int) override { return finished_work(); }
  WorkPtr do_recv(at::Tensor tensor, int, int) override {
    tensor.zero_();
    return finished_work();
  }
  void do_barrier() override {}
};

}  // namespace

std::shared_ptr<Group> make_lone_rank(int size) { return std::make_shared<LoneRank>(size); }

}  // namespace trireme::comm
