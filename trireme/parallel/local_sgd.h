// Local SGD: replicas take several steps apart, then average their parameters. This divides the
// bytes sent by the number of steps (Stich 2018, "Local SGD converges fast and communicates
// little"). Post-local SGD (Lin et al. 2018, "Don't use large mini-batches, use local SGD") begins
// it later, when parameters change less.
#pragma once
#include <trireme/parallel/exchange.h>
#include <memory>

namespace torch::optim {
class Optimizer;
}

namespace trireme {

using LocalSgdOptions = plan::LocalSgdOptions;
// Throws Error(invalid_argument) naming option, value and rule.
void check(const LocalSgdOptions& options);

class LocalSgdExchange : public Exchange {
 public:
  // COLLECTIVE. Makes the parameters of all replicas equal.
  virtual void synchronise() = 0;
};

// Every replica updates its own parameters from the mean over its own samples, and clips by its
// own norm. The facts of each step (a few numbers) still travel: the reported loss is the mean
// over all replicas, a stop or a NaN takes effect on all of them in the same step, and a lost peer
// is noticed at once. `together` reduces gradients until options.after. Losses differ from those
// of one_device. Replicas are bit-identical only after an averaging, which synchronise() performs.
std::unique_ptr<LocalSgdExchange> make_local_sgd_exchange(
    std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
    std::shared_ptr<torch::optim::Optimizer> optimizer, std::unique_ptr<Exchange> together,
    const ExchangeOptions& exchange_options, LocalSgdOptions options);

}  // namespace trireme
