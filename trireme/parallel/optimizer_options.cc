#include <trireme/base/error.h>
#include <trireme/config/value.h>
#include <trireme/parallel/optimizer_options.h>

namespace trireme {

config::Rows rows_of(const OptimizerOptions*) {
  const config::OnlyFor adam{"optimizer.name", {"adam", "adamw", "lamb"}};
  using O = OptimizerOptions;
  return config::all_of<O>(
      {config::row(&O::name, {.name = "optimizer.name",
                              .meaning = "The update rule, as torch::optim or its paper has it.",
                              .choices = config::one_of({"sgd", "adam", "adamw", "rmsprop",
                                                         "adagrad", "lars", "lamb"})}),
       config::row(&O::lr, {.name = "optimizer.lr",
                            .meaning = "Learning rate, before the schedule.",
                            .range = config::at_least(0)}),
       config::row(&O::momentum,
                   {.name = "optimizer.momentum",
                    .meaning = "sgd, rmsprop, lars: fraction of the last update that continues.",
                    .range = config::from_below(0, 1),
                    .only_for = {"optimizer.name", {"sgd", "rmsprop", "lars"}}}),
       config::row(&O::weight_decay, {.name = "optimizer.weight_decay",
                                      .meaning = "Pull of the weights towards 0.",
                                      .range = config::at_least(0)}),
       config::row(&O::beta1, {.name = "optimizer.beta1",
                               .meaning = "adam, adamw, lamb: decay of the mean gradient.",
                               .range = config::from_below(0, 1),
                               .only_for = adam}),
       config::row(&O::beta2, {.name = "optimizer.beta2",
                               .meaning = "adam, adamw, lamb: decay of the mean squared gradient.",
                               .range = config::from_below(0, 1),
                               .only_for = adam}),
       config::row(&O::eps, {.name = "optimizer.eps",
                             .meaning = "All but sgd and lars: added to the divisor.",
                             .range = config::above(0),
                             .only_for = {"optimizer.name",
                                          {"adam", "adamw", "rmsprop", "adagrad", "lamb"}}}),
       config::row(&O::alpha, {.name = "optimizer.alpha",
                               .meaning = "rmsprop: decay of the mean squared gradient.",
                               .range = config::from_below(0, 1),
                               .only_for = {"optimizer.name", {"rmsprop"}}}),
       config::row(&O::trust,
                   {.name = "optimizer.trust",
                    .meaning = "lars: the fraction of a layer's norm by which a step may move it.",
                    .range = config::above(0),
                    .only_for = {"optimizer.name", {"lars"}}}),
       config::row(&O::nesterov, {.name = "optimizer.nesterov",
                                  .meaning = "sgd: Nesterov's momentum.",
                                  .only_for = {"optimizer.name", {"sgd"}}})});
}

void check(const OptimizerOptions& options) {
  config::check_values(options);
  if (options.nesterov && options.momentum == 0)
    throw Error(ErrorCode::invalid_argument, "parallel",
                "optimizer.nesterov is true, but optimizer.momentum is 0: it needs momentum",
                "optimizer.momentum=0.9");
}

int state_tensors_of(const OptimizerOptions& options) {
  if (options.name == "sgd") return options.momentum != 0 ? 1 : 0;
  if (options.name == "rmsprop") return options.momentum > 0 ? 2 : 1;
  if (options.name == "adagrad" || options.name == "lars") return 1;
  return 2;
}

bool is_layerwise(const OptimizerOptions& options) {
  return options.name == "lars" || options.name == "lamb";
}

}  // namespace trireme
