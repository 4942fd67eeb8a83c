// A place in the course of a training: an epoch, and the samples of it that are used.
#pragma once
#include <cstdint>

namespace trireme::plan {

struct DataPosition {
  int64_t epoch = 0;
  int64_t consumed = 0;  // The samples of this epoch that committed steps have used.
  bool operator==(const DataPosition&) const = default;
};

inline bool is_before(DataPosition a, DataPosition b) {
  return a.epoch != b.epoch ? a.epoch < b.epoch : a.consumed < b.consumed;
}

}  // namespace trireme::plan
