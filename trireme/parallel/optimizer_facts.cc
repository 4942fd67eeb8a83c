#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <trireme/parallel/layerwise.h>
#include <trireme/parallel/optimizer.h>

namespace trireme {
namespace {

template <typename AdamOptions>
Json facts_of_adam(const AdamOptions& o) {
  return {{"lr", o.lr()},
          {"betas", {std::get<0>(o.betas()), std::get<1>(o.betas())}},
          {"eps", o.eps()},
          {"weight_decay", o.weight_decay()},
          {"amsgrad", o.amsgrad()}};
}

Json facts_of(const torch::optim::OptimizerOptions& options) {
  if (const auto* o = dynamic_cast<const torch::optim::SGDOptions*>(&options))
    return {{"lr", o->lr()},
            {"momentum", o->momentum()},
            {"dampening", o->dampening()},
            {"weight_decay", o->weight_decay()},
            {"nesterov", o->nesterov()}};
  if (const auto* o = dynamic_cast<const torch::optim::AdamOptions*>(&options))
    return facts_of_adam(*o);
  if (const auto* o = dynamic_cast<const torch::optim::AdamWOptions*>(&options))
    return facts_of_adam(*o);
  if (const auto* o = dynamic_cast<const torch::optim::RMSpropOptions*>(&options))
    return {{"lr", o->lr()},
            {"alpha", o->alpha()},
            {"eps", o->eps()},
            {"weight_decay", o->weight_decay()},
            {"momentum", o->momentum()},
            {"centered", o->centered()}};
  if (const auto* o = dynamic_cast<const torch::optim::AdagradOptions*>(&options))
    return {{"lr", o->lr()},
            {"lr_decay", o->lr_decay()},
            {"weight_decay", o->weight_decay()},
            {"initial_accumulator_value", o->initial_accumulator_value()},
            {"eps", o->eps()}};
  if (const auto* o = dynamic_cast<const LarsOptions*>(&options))
    return {{"lr", o->lr()},
            {"momentum", o->momentum()},
            {"weight_decay", o->weight_decay()},
            {"trust", o->trust()},
            {"adapt_vectors", o->adapt_vectors()}};
  if (const auto* o = dynamic_cast<const LambOptions*>(&options))
    return {{"lr", o->lr()},
            {"betas", {o->beta1(), o->beta2()}},
            {"eps", o->eps()},
            {"weight_decay", o->weight_decay()},
            {"adapt_vectors", o->adapt_vectors()}};
  if (const auto* o = dynamic_cast<const torch::optim::LBFGSOptions*>(&options))
    return {{"lr", o->lr()},
            {"max_iter", o->max_iter()},
            {"max_eval", o->max_eval() ? Json(*o->max_eval()) : Json(nullptr)},
            {"tolerance_grad", o->tolerance_grad()},
            {"tolerance_change", o->tolerance_change()},
            {"history_size", o->history_size()},
            {"line_search_fn", o->line_search_fn() ? Json(*o->line_search_fn()) : Json(nullptr)}};
  try {
    return {{"lr", options.get_lr()}};
  } catch (const c10::Error&) {  // An optimizer of the user's own may have none.
    return Json::object();
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
    Json facts = facts_of(group.options());
    facts["parameters"] = group.params().size();
    groups.push_back(std::move(facts));
  }
  return {{"kind", c10::demangle(class_of(optimizer).name())}, {"groups", std::move(groups)}};
}

}  // namespace trireme
