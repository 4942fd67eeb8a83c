#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/layerwise.h>
#include <trireme/parallel/optimizer.h>
#include <bit>

namespace trireme {
namespace {

template <typename AdamOptions, typename Visit>
void visit_adam(const AdamOptions& o, const Visit& visit) {
  visit("lr", o.lr());
  visit("beta1", std::get<0>(o.betas()));
  visit("beta2", std::get<1>(o.betas()));
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}

// Calls visit(name, value) for each option. It knows the options of LibTorch's and Trireme's
// optimizers, and no more than the rate of another one, if that has a rate.
template <typename Visit>
void visit_options(const torch::optim::OptimizerOptions& options, const Visit& visit) {
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) {
    visit("lr", sgd->lr());
    visit("momentum", sgd->momentum());
    visit("dampening", sgd->dampening());
    visit("weight_decay", sgd->weight_decay());
    visit("nesterov", sgd->nesterov());
  } else if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) {
    visit_adam(*adam, visit);
  } else if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) {
    visit_adam(*adamw, visit);
  } else if (const auto* rms = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) {
    visit("lr", rms->lr());
    visit("alpha", rms->alpha());
    visit("eps", rms->eps());
    visit("weight_decay", rms->weight_decay());
    visit("momentum", rms->momentum());
    visit("centered", rms->centered());
  } else if (const auto* adagrad = dynamic_cast<const torch::optim::AdagradOptions*>(&options)) {
    visit("lr", adagrad->lr());
    visit("lr_decay", adagrad->lr_decay());
    visit("weight_decay", adagrad->weight_decay());
    visit("initial_accumulator_value", adagrad->initial_accumulator_value());
    visit("eps", adagrad->eps());
  } else if (const auto* lars = dynamic_cast<const LarsOptions*>(&options)) {
    visit("lr", lars->lr());
    visit("momentum", lars->momentum());
    visit("weight_decay", lars->weight_decay());
    visit("trust", lars->trust());
    visit("adapt_vectors", lars->adapt_vectors());
  } else if (const auto* lamb = dynamic_cast<const LambOptions*>(&options)) {
    visit("lr", lamb->lr());
    visit("beta1", lamb->beta1());
    visit("beta2", lamb->beta2());
    visit("eps", lamb->eps());
    visit("weight_decay", lamb->weight_decay());
    visit("adapt_vectors", lamb->adapt_vectors());
  } else if (const auto* lbfgs = dynamic_cast<const torch::optim::LBFGSOptions*>(&options)) {
    visit("lr", lbfgs->lr());
    visit("max_iter", lbfgs->max_iter());
    visit("max_eval", lbfgs->max_eval().value_or(-1));
    visit("tolerance_grad", lbfgs->tolerance_grad());
    visit("tolerance_change", lbfgs->tolerance_change());
    visit("history_size", lbfgs->history_size());
    // The only one that there is.
    visit("strong_wolfe", lbfgs->line_search_fn().has_value());
  } else {
    try {
      visit("lr", options.get_lr());
    } catch (const c10::Error&) {  // An optimizer of the user's own may have none.
    }
  }
}

}  // namespace

const std::type_info& class_of(torch::optim::Optimizer& optimizer) {
  const auto* stepping = dynamic_cast<const SteppingAs*>(&optimizer);
  return stepping ? stepping->kind() : typeid(optimizer);
}

Json facts_of(torch::optim::Optimizer& optimizer) {
  Json groups = Json::array();
  for (const auto& group : optimizer.param_groups()) {
    Json facts = Json::object();
    visit_options(group.options(), [&](const char* name, auto value) { facts[name] = value; });
    facts["parameters"] = group.params().size();
    groups.push_back(std::move(facts));
  }
  return {{"kind", c10::demangle(class_of(optimizer).name())}, {"groups", std::move(groups)}};
}

std::vector<OptionHash> hashes_of_options(const torch::optim::Optimizer& optimizer) {
  std::vector<OptionHash> hashes;
  for (const auto& group : optimizer.param_groups()) {
    size_t at = 0;  // Groups of one class have their options in the same places.
    visit_options(group.options(), [&](const char* name, auto value) {
      const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(value));
      if (at == hashes.size()) hashes.push_back({name, 1});
      hashes[at].value = mix64(hashes[at].value, bits);
      ++at;
    });
  }
  return hashes;
}

}  // namespace trireme
