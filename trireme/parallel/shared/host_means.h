// The means of gradients over the ranks of one host, for loops that update themselves
// (Exchange::leave_means()). Backward leaves gradients in memory that all ranks see. Each rank
// then computes the means of its shard of all elements, and writes them into the gradients of
// every rank: memory is read and written once, and no gradient is copied. Every rank has the same
// bits. Nothing travels while backward runs, as in all groups whose ranks share memory.
#pragma once
#include <trireme/parallel/exchange.h>
#include <trireme/plan/engine_plan.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// COLLECTIVE. `group` has a host_team() of all its ranks, and `plan` a layout. From now on a
// backward() of the calling thread puts gradients into the shared memory where it can; those that
// lie elsewhere are copied. `weight` is that of ExchangeOptions. Throws Error(io) on all ranks if
// there is too little memory.
std::unique_ptr<Exchange> make_host_means(std::shared_ptr<Group> group,
                                          std::vector<NamedTensor> parameters,
                                          plan::EnginePlan plan, std::function<double()> weight);

}  // namespace trireme
