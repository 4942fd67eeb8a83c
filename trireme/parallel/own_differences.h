// Names what differs between the ranks of a loop that calls backward() and step() itself.
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <trireme/comm/group.h>
#include <trireme/comm/own_loop.h>
#include <trireme/parallel/module_state.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// A value that all ranks have in common.
struct OwnFact {
  const char* name;
  uint64_t value;
  const char* remedy;
};
// The same number for the same choice of train() or eval() in the module and in all below it.
uint64_t hash_of_modes(const torch::nn::Module& module);

std::vector<OwnFact> facts_of(const OwnLoop::BatchInHand& batch, const torch::nn::Module& module,
                              const torch::optim::Optimizer& optimizer,
                              const std::vector<NamedTensor>& parameters);

struct OwnPlace {
  int engine = 0;     // The number of the optimizer.
  int64_t steps = 0;  // The steps that this rank has finished.
  bool has_joined = false;
  int64_t alike_in = 0;  // The last step in which the parameters were found alike; 0: none.
  // What to do about parameters that differ.
  const char* remedy =
      "the same changes on all ranks (initialise, load, write), or sync() of Distributed or "
      "sync_state() of DataParallel afterwards";
};
// COLLECTIVE. Throws ErrorOfAllRanks(invalid_argument), naming two ranks, if they are in
// different steps or one of the facts differs. Ranks that have joined do not count.
void refuse_differences(Group& group, const OwnPlace& place, const std::vector<OwnFact>& facts);

// COLLECTIVE. Throws ErrorOfAllRanks(invalid_argument), naming ranks and a parameter, if the
// parameters differ. Ranks that have joined do not count.
void refuse_other_parameters(Group& group, const OwnPlace& place,
                             const std::vector<NamedTensor>& parameters);

// The parameters at the end of an engine, or of the loop, for OwnLoop::facts_at_the_end. `steps`
// were made, and `alike_in` is as in OwnPlace.
std::string parameters_at_the_end(const std::vector<NamedTensor>& parameters, int64_t steps,
                                  int64_t alike_in);

// COLLECTIVE. `gradients` is a digest of the first gradients that this rank has computed alone; 0:
// its samples are shared. Throws ErrorOfAllRanks(invalid_argument) if all ranks have the same, and
// warns if they have others: nothing tells then whether the loop gives each rank its part.
void refuse_same_samples(Group& group, const OwnPlace& place, int64_t gradients);

}  // namespace trireme
