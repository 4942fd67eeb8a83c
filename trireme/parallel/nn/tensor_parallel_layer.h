// Layers that the ranks of a tensor axis divide among them (Shoeybi et al. 2019, "Megatron-LM",
// arXiv 1909.08053, section 3; Korthikanti et al. 2022, "Reducing Activation Recomputation in
// Large Transformer Models", arXiv 2205.05198, section 4.2).
//
// Each layer is an ordinary torch::nn module. Its constructor registers whole parameters, with the
// names, shapes and initial values of torch's own layer, and alone it computes torch's bits. So a
// model made of these layers is trained, saved and loaded like any other. An engine with a tensor
// axis calls divide_layers(); from then on each rank has its part of each parameter, and forward
// and backward are COLLECTIVE over the axis: its ranks run the same layers in the same order, with
// the same data.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/nn/parameter_parts.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme::nn {

// The base of these layers, besides torch::nn::Module.
class TensorParallelLayer {
 public:
  virtual ~TensorParallelLayer() = default;

  // All parameters of the layer itself, by their names in it, as the rank keeps them. Pure: it
  // depends on the layer's options alone. Throws Error(invalid_argument) naming `layer` (the name
  // in the model), the size and the number of ranks if the layer cannot be divided so.
  virtual std::vector<ParameterParts> parts(const std::string& layer, int rank,
                                            int ranks) const = 0;

  // The tensor axis. Null while the layer is whole.
  const std::shared_ptr<Group>& ranks() const { return ranks_; }
  // From now on forward() works with the ranks of the axis, on parameters that have been divided.
  // An axis of one rank leaves the layer whole. divide_layers() calls it.
  void join(std::shared_ptr<Group> ranks);

 private:
  std::shared_ptr<Group> ranks_;
};

// Makes a rank's part of a whole parameter.
using PartMaker = std::function<at::Tensor(const at::Tensor& whole, const ParameterParts& parts)>;

// Every parameter of the module, in the order and by the names of state_of(module), as a rank of
// the tensor axis keeps it. Pure. Throws Error(invalid_argument) as divide_layers() does.
std::vector<ParameterParts> parts_of(torch::nn::Module& module, int rank, int ranks);

// Divides all layers of the module, and their submodules, among the ranks of the tensor axis.
// Communicates nothing. Returns parts_of(). Parameters keep their identity (set_data), so that a
// tied tensor stays tied; gradients are dropped. Nothing has changed if it throws
// Error(invalid_argument): a layer cannot be divided by so many ranks, or two layers divide a tied
// tensor in different ways.
//
// `make` is part_of() unless values or memory are to come later: then it returns a tensor of
// parts.sizes() of any content. A module that was divided before may be divided again, by the
// ranks of another generation. A parameter whose part has other sizes then is made anew: it has no
// values before state is loaded.
std::vector<ParameterParts> divide_layers(torch::nn::Module& module,
                                          const std::shared_ptr<Group>& ranks,
                                          const PartMaker& make = part_of);

// Throws Error(invalid_argument) naming the model unless one of its layers can be divided.
void require_layers_to_divide(torch::nn::Module& module, const std::string& model);

}  // namespace trireme::nn
