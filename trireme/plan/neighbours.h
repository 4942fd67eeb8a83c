// Decides which rank keeps a copy of another one's part of a state. Pure.
#pragma once
#include <span>

namespace trireme::plan {

// The distance in ranks, modulo their number, from a rank to its neighbour, the same for all: as
// many as the largest host has, so that a host and its neighbours are not lost together where the
// hosts have the same number of ranks; 1 on a single host. `hosts` are those of the ranks, in a
// row. 0 for a single rank, which has no neighbour.
int distance_of_neighbours(std::span<const int> hosts);

}  // namespace trireme::plan
