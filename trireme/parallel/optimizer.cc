#include <torch/optim.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/layerwise.h>
#include <trireme/parallel/optimizer.h>
#include <cstring>
#include <sstream>

namespace trireme {
namespace {

std::vector<at::Tensor> trainable(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters)
    if (tensor.requires_grad()) tensors.push_back(tensor);
  if (tensors.empty())
    throw Error(ErrorCode::invalid_argument, "parallel", "the model has no trainable parameter",
                "requires_grad(true) on the parameters to train");
  return tensors;
}

}  // namespace

SGD::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::SGD>(trainable(parameters),
                                               torch::optim::SGDOptions(o.lr)
                                                   .momentum(o.momentum)
                                                   .dampening(o.dampening)
                                                   .weight_decay(o.weight_decay)
                                                   .nesterov(o.nesterov));
  };
}
Adam::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::Adam>(trainable(parameters),
                                                torch::optim::AdamOptions(o.lr)
                                                    .betas({o.beta1, o.beta2})
                                                    .eps(o.eps)
                                                    .weight_decay(o.weight_decay)
                                                    .amsgrad(o.amsgrad));
  };
}
AdamW::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::AdamW>(trainable(parameters),
                                                 torch::optim::AdamWOptions(o.lr)
                                                     .betas({o.beta1, o.beta2})
                                                     .eps(o.eps)
                                                     .weight_decay(o.weight_decay)
                                                     .amsgrad(o.amsgrad));
  };
}
RMSprop::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::RMSprop>(trainable(parameters),
                                                   torch::optim::RMSpropOptions(o.lr)
                                                       .alpha(o.alpha)
                                                       .eps(o.eps)
                                                       .weight_decay(o.weight_decay)
                                                       .momentum(o.momentum)
                                                       .centered(o.centered));
  };
}
Adagrad::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::Adagrad>(trainable(parameters),
                                                   torch::optim::AdagradOptions(o.lr)
                                                       .lr_decay(o.lr_decay)
                                                       .weight_decay(o.weight_decay)
                                                       .eps(o.eps));
  };
}

Lars::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<LarsOptimizer>(
        trainable(parameters),
        LarsOptions(o.lr).momentum(o.momentum).weight_decay(o.weight_decay).trust(o.trust));
  };
}
Lamb::operator OptimizerFactory() const {
  return [o = *this](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<LambOptimizer>(
        trainable(parameters),
        LambOptions(o.lr).beta1(o.beta1).beta2(o.beta2).eps(o.eps).weight_decay(o.weight_decay));
  };
}

}  // namespace trireme
