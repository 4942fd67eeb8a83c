// Decides which rank keeps a copy of another one's part of a state. Pure.
#pragma once
#include <span>

namespace trireme::plan {

// The distance in ranks, modulo their number, from a rank to its neighbour, the same for all. The
// neighbour is in another unit, if there is one: an elastic job that has lost a rank goes on
// without the rest of its unit. Of such distances it takes the one at which the fewest ranks have
// a neighbour on their own host, and of these the shortest. `hosts` are those of the ranks, in a
// row, and each `unit` of ranks has the model once. 0 for a single rank, which has no neighbour.
int distance_of_neighbours(std::span<const int> hosts, int unit = 1);

}  // namespace trireme::plan
