// The blocks of an all_to_all, as one rank sees them.
#pragma once
#include <cstdint>
#include <vector>

namespace trireme::comm {

// All numbers are elements.
struct Splits {
  std::vector<int64_t> sent, received;  // [rank]: the length of the block to it, and from it.
  // [rank]: the place of these blocks in the input and in the output.
  std::vector<int64_t> sent_at, received_at;
  // [rank]: the place of this rank's block in the input of that rank.
  std::vector<int64_t> at_source;
  int64_t total = 0;    // Of the input of a rank if all blocks are equal, or else of all ranks.
  int64_t largest = 0;  // The longest block of all ranks.
  bool equal = true;
  // [sender][receiver]: the lengths of all blocks. Empty if they are equal.
  std::vector<std::vector<int64_t>> all;

  static Splits of_equal_blocks(int size, int rank, int64_t block);
  // sent_of[r]: the lengths of the blocks that rank r sends.
  static Splits of(std::vector<std::vector<int64_t>> sent_of, int rank);
  // The blocks between some of the ranks, as if these were a group in which ranks[place] is this
  // rank.
  Splits among(const std::vector<int>& ranks, int place) const;
};

}  // namespace trireme::comm
