#include <trireme/plan/split.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/sample_order.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace trireme::plan {
namespace {

int64_t held_out(int64_t samples, double test_fraction) {
  if (!(test_fraction >= 0 && test_fraction <= 1))
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("test_fraction is {}, and must be between 0 and 1", test_fraction),
                "0.2");
  return std::llround(static_cast<double>(samples) * test_fraction);
}

// a * b / c without overflow, for numbers that are not negative.
int64_t part_of(int64_t a, int64_t b, int64_t c) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(static_cast<Wide>(a) * static_cast<Wide>(b) / static_cast<Wide>(c));
}

}  // namespace

int64_t Strata::begin_of(int64_t stretch) const { return part_of(stretch, total, chosen); }

int64_t Strata::at(int64_t i) const {
  const int64_t begin = begin_of(i);
  const auto size = static_cast<uint64_t>(begin_of(i + 1) - begin);
  return begin + static_cast<int64_t>(mix64(seed, static_cast<uint64_t>(i)) % size);
}

// In front of it lie as many chosen numbers as have less than i + 1 others in front of them. Those
// in front of chosen number k are at(k) - k, which never falls as k grows.
int64_t Strata::rest(int64_t i) const {
  int64_t before = part_of(i, chosen, total - chosen);  // A guess, off by one or two.
  before = std::min(before, chosen);
  while (before > 0 && at(before - 1) - (before - 1) > i) --before;
  while (before < chosen && at(before) - before <= i) ++before;
  return i + before;
}

Subset::Subset(std::vector<int64_t> ascending)
    : kind_(Kind::list),
      size_(std::ssize(ascending)),
      list_(std::make_shared<const std::vector<int64_t>>(std::move(ascending))) {}

Subset Subset::range(int64_t first, int64_t last) {
  Subset made;
  made.first_ = first;
  made.size_ = last - first;
  return made;
}

Subset Subset::chosen_of(Strata strata) {
  Subset made;
  made.kind_ = Kind::chosen;
  made.size_ = strata.chosen;
  made.strata_ = strata;
  return made;
}

Subset Subset::rest_of(Strata strata) {
  Subset made;
  made.kind_ = Kind::rest;
  made.size_ = strata.total - strata.chosen;
  made.strata_ = strata;
  return made;
}

int64_t Subset::operator[](int64_t i) const {
  switch (kind_) {
    case Kind::range: return first_ + i;
    case Kind::list: return (*list_)[static_cast<size_t>(i)];
    case Kind::chosen: return strata_.at(i);
    case Kind::rest: return strata_.rest(i);
  }
  return -1;
}

int64_t Subset::count_below(int64_t number) const {
  int64_t low = 0, high = size_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if ((*this)[middle] < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Subset Subset::first(int64_t count) const {
  Subset made = *this;
  made.size_ = std::min(count, size_);
  return made;
}

std::vector<int64_t> Subset::numbers() const {
  std::vector<int64_t> all(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) all[static_cast<size_t>(i)] = (*this)[i];
  return all;
}

std::string Subset::describe() const {
  switch (kind_) {
    case Kind::range: return fmt::format("{} from {} on", size_, first_);
    case Kind::list: {
      const std::string bytes(reinterpret_cast<const char*>(list_->data()),
                              static_cast<size_t>(size_) * sizeof(int64_t));
      return fmt::format("{} of them, {}", size_, sha256_hex(bytes).substr(0, 16));
    }
    case Kind::chosen:
    case Kind::rest:
      return fmt::format("{} {} {} of {}, seed {}", size_,
                         kind_ == Kind::chosen ? "among" : "not among", strata_.chosen,
                         strata_.total, strata_.seed);
  }
  return {};
}

bool Subset::operator==(const Subset& other) const {
  if (size_ != other.size_) return false;
  if (kind_ == other.kind_ && kind_ != Kind::list)
    return first_ == other.first_ && strata_ == other.strata_;
  for (int64_t i = 0; i < size_; ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

Split plan_split(int64_t samples, double test_fraction, uint64_t seed) {
  const int64_t test = held_out(samples, test_fraction);
  if (samples > kLargestOrderTable && test > 0 && test < samples) {
    if (test <= samples / 2) {
      const Strata strata{samples, test, seed};
      return {.train = Subset::rest_of(strata), .test = Subset::chosen_of(strata)};
    }
    const Strata strata{samples, samples - test, seed};
    return {.train = Subset::chosen_of(strata), .test = Subset::rest_of(strata)};
  }
  std::vector<int64_t> order = shuffled(samples, seed);
  const auto cut = order.begin() + test;
  std::sort(order.begin(), cut);
  std::sort(cut, order.end());
  return {.train = Subset({cut, order.end()}), .test = Subset({order.begin(), cut})};
}

Split split_at_end(int64_t samples, double test_fraction) {
  const int64_t train = samples - held_out(samples, test_fraction);
  return {.train = Subset::range(0, train), .test = Subset::range(train, samples)};
}

}  // namespace trireme::plan
