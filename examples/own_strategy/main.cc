// A strategy of your own, trained, saved and resumed by the Trainer: replicas send one byte for
// each element, and the majority decides (Bernstein et al. 2019, "signSGD with Majority Vote").
//
//   trireme launch --workers 3 -- ./own_strategy vote.yaml                      trains 5 epochs
//   trireme launch --workers 3 -- ./own_strategy vote.yaml train.epochs=10      goes on to 10
#include <torch/torch.h>
#include <trireme/parallel/replica_engine.h>
#include <trireme/trireme.h>

#include <iostream>

class MajorityVote : public trireme::ReplicaEngine {
 public:
  explicit MajorityVote(const trireme::EngineSetting& setting) : ReplicaEngine(setting) {
    for (const auto& [name, tensor] : parameters())
      momentum_.push_back({"momentum/" + name, torch::zeros_like(tensor)});
  }

 protected:
  void exchange() override {
    next_.clear(), votes_.clear();
    for (size_t i = 0; i < momentum_.size(); ++i) {
      const torch::Tensor old = momentum_[i].tensor, gradient = parameters()[i].tensor.grad();
      next_.push_back(gradient.defined() ? old * 0.9 + gradient * 0.1 : old);
      votes_.push_back(next_[i].sign().add(1).to(torch::kByte).contiguous());
      group().all_reduce(votes_[i]);  // Each rank adds 0, 1 or 2, so 127 ranks fit into a byte.
    }
  }
  void update() override {
    for (size_t i = 0; i < momentum_.size(); ++i) {
      momentum_[i].tensor.copy_(next_[i]);
      parameters()[i].tensor.sub_((votes_[i].to(torch::kInt) - group().size()).sign(), rates()[0]);
    }
  }
  // Checkpoints hold it, and it moves to the next generation of an elastic job.
  trireme::StateView own_state() override {
    trireme::StateView view;
    trireme::append(view, momentum_, trireme::StateKind::rank);
    return view;
  }

 private:
  std::vector<trireme::NamedTensor> momentum_;
  std::vector<torch::Tensor> next_, votes_;
};

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor images) {
    return output(torch::relu(hidden(images.flatten(1))));
  }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 128)),
                    output = register_module("output", torch::nn::Linear(128, 10));
};

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: own_strategy CONFIG.yaml [key=value...]\n";
    return 2;
  }
  trireme::register_strategy("majority_vote", {trireme::make_engine<MajorityVote>});
  trireme::models::register_model(
      "net", [](const auto&, const auto&) { return trireme::model_factory<Net>(); });
  const trireme::Config config = trireme::load_options(argv[1], {argv + 2, argv + argc});
  const auto [options, job, train, test] = trireme::training_of(config);
  auto world = trireme::World::join(config.world);
  const trireme::Report report = trireme::Trainer(world, options).fit(job, train, test);
  if (world.worker() == 0)
    std::cout << "resumed from step " << report.resumed_from_step << ", parameters "
              << report.parameters_sha256 << ", accuracy " << report.eval->accuracy << std::endl;
  world.leave();
  return report.stopped ? trireme::kExitStopped : trireme::kExitOk;
} catch (const trireme::Error& error) {
  std::cerr << error.what() << "\n";
  return trireme::exit_code_of(error);
}
