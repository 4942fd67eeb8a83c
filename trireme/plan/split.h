// Some of the samples of a data set, and the split into those that train and those that are held
// out. Data of any size needs no table of its samples.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::plan {

// So many of the numbers 0..total-1, one in each stretch of about total / chosen numbers, at a
// place that is drawn by the seed. At most every second number is chosen.
struct Strata {
  int64_t total = 0, chosen = 0;
  uint64_t seed = 0;
  bool operator==(const Strata&) const = default;

  int64_t at(int64_t i) const;    // The i-th that is chosen.
  int64_t rest(int64_t i) const;  // The i-th of the others.
 private:
  int64_t begin_of(int64_t stretch) const;
};

// Numbers in ascending order. Copies share what they hold. Any thread reads it.
class Subset {
 public:
  Subset() = default;  // None.
  Subset(std::vector<int64_t> ascending);
  static Subset range(int64_t first, int64_t last);  // [first, last)
  static Subset chosen_of(Strata strata);
  static Subset rest_of(Strata strata);

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int64_t i) const;  // 0 <= i < size()
  int64_t count_below(int64_t number) const;
  Subset first(int64_t count) const;  // At most size().
  // All of them: 8 bytes each.
  std::vector<int64_t> numbers() const;
  // A text that differs if the numbers do.
  std::string describe() const;
  bool operator==(const Subset& other) const;

 private:
  enum class Kind { range, list, chosen, rest };

  Kind kind_ = Kind::range;
  int64_t size_ = 0, first_ = 0;
  std::shared_ptr<const std::vector<int64_t>> list_;
  Strata strata_;
};

struct Split {
  Subset train, test;
};
// Holds out `round(samples * test_fraction)` samples, drawn by `seed` alone. Of more than
// kLargestOrderTable samples they are Strata. Throws Error(invalid_argument) for a fraction
// outside 0..1.
Split plan_split(int64_t samples, double test_fraction, uint64_t seed);
// Holds out as many at the end: neighbours such as the blocks of a text have much in common.
Split split_at_end(int64_t samples, double test_fraction);

}  // namespace trireme::plan
