// A strategy of your own, trained, saved and resumed by the Trainer: replicas send one byte for
// each element, and the majority decides (Bernstein et al. 2019, "signSGD with Majority Vote").
//
//   trireme launch --workers 3 -- ./own_strategy digits.csv.gz checkpoints 5      trains 5 epochs
//   trireme launch --workers 3 -- ./own_strategy digits.csv.gz checkpoints 10     goes on to 10
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
  if (argc != 4) {
    std::cerr << "usage: own_strategy digits.csv.gz CHECKPOINTS EPOCHS\n";
    return 2;
  }
  trireme::register_strategy("majority_vote", {trireme::make_engine<MajorityVote>});
  trireme::TrainerOptions options;
  options.strategy = "majority_vote";
  options.checkpoint.dir = argv[2];
  options.epochs = std::atoll(argv[3]);
  trireme::Job job{.model = trireme::model_factory<Net>(),
                   .optimizer = trireme::SGD{.lr = 0.001}};  // The votes use its learning rate.

  auto digits = std::make_shared<trireme::ImageSource>(trireme::data::read_digits(argv[1]));
  auto world = trireme::World::join();
  const trireme::Report report = trireme::Trainer(world, options).fit(job, digits, digits);
  if (world.worker() == 0)
    std::cout << "resumed from step " << report.resumed_from_step << ", parameters "
              << report.parameters_sha256 << ", accuracy " << report.eval->accuracy << std::endl;
  world.leave();
  return report.stopped ? trireme::kExitStopped : trireme::kExitOk;
} catch (const trireme::Error& error) {
  std::cerr << error.what() << "\n";
  return trireme::exit_code_of(error);
}
