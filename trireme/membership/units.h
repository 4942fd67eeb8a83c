// Members that come and go together: a unit is a whole copy of a model that is spread over several
// processes, such as 2 stages x 2 replicas. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::membership {

// A process that waits for the next generation.
struct UnitCandidate {
  int64_t process = 0;
  int worker = -1;    // Its number in the last generation; -1: it was not a member.
  int position = -1;  // The position in a unit that it had last; -1: it had none.
  int64_t step = -1;  // The committed steps of its state; -1: it has none.
};

struct UnitSeats {
  std::vector<int64_t> members;  // By worker number: worker u * unit + p has position p of unit u.
  std::vector<int64_t> left_over;  // The others, those that are wanted most first.
};

// Fills as many whole units of `unit` members as there are processes for, `most` members at most.
//   A unit of the last generation of which a member is left stays a unit, with each survivor at
//   its position, and the units keep their order. If there are more than can be filled, those with
//   the most holes are dissolved, of equal ones the last. A hole is filled by a process that had
//   this position last, else by any other: members of dissolved units, then spares and newcomers.
//   The newest state goes first, then the smaller process number. Processes that are left fill new
//   units.
UnitSeats fill_units(const std::vector<UnitCandidate>& waiting, int unit, int most);

// Throws Error(invalid_argument) unless minimum, maximum and target are multiples of `unit`.
// `shape` describes a unit in the message and may be empty.
void check_units(int unit, const std::string& shape, int minimum, int maximum, int target);

}  // namespace trireme::membership
