// Makes samples on threads of its own, and keeps those that were made last, so that each sample is
// made once for all who ask for it in time.
#pragma once
#include <trireme/data/source.h>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace trireme::data {

// A sample that was made. The first dimension of its tensors is 1.
struct MadeSample {
  Example row;
  bool is_left_out = false;
  int64_t bytes = 0;         // Those of its tensors.
  int64_t memory_bytes = 0;  // All that it takes while it is kept.
};

struct MakerUse {
  int64_t asked = 0;                 // Samples of all requests.
  int64_t made = 0;                  // Those that were not there.
  int64_t kept = 0, kept_bytes = 0;  // MadeSample::memory_bytes.
};

// Any thread.
class SampleMaker {
 public:
  struct Part {
    std::shared_ptr<const Source> source;
    bool is_fixed = false;  // See PartFacts.
  };
  // The bytes are those of the samples that are kept. A request holds its own beside them.
  SampleMaker(std::vector<Part> parts, int threads, int64_t bytes);
  // Requests that are not done are dropped.
  ~SampleMaker();

  using Samples = std::vector<std::shared_ptr<const MadeSample>>;
  // One of the two is called, once, on the calling thread or on one of the maker's. It must not
  // wait. `cancelled` tells whether the samples are wanted no more.
  struct Order {
    std::function<void(Samples)> done;
    std::function<void(std::exception_ptr)> failed;
    std::function<bool()> cancelled = [] { return false; };
  };
  // The indices lie in the part.
  void make(size_t part, const Draws& draws, Order order);

  MakerUse use() const;
  // The time of a part's source as a whole: a stage "load".
  StageUse load_of(size_t part) const;

 private:
  static constexpr int64_t kUnknownRow = int64_t{1} << 14;
  struct Key {
    size_t part;
    int64_t index, epoch;
    uint64_t seed;    // Of the sample.
    int64_t longest;  // In its batch, for a part that is padded.
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const;
  };
  struct Pending {
    Order order;
    Samples samples;
    size_t missing = 0;
    std::exception_ptr error;
  };
  struct Entry {
    std::shared_ptr<const MadeSample> sample;  // Null while it is made.
    std::vector<std::pair<std::shared_ptr<Pending>, size_t>> waiting;
    std::list<Key>::iterator recent;  // With a sample.
  };

  void work(const std::stop_token& stop);
  std::vector<Key> next_keys();
  static int64_t memory_of(const MadeSample& sample);
  Samples made(const std::vector<Key>& keys) const;
  void keep(const std::vector<Key>& keys, const Samples& samples, double seconds);
  void fail(const std::vector<Key>& keys, const std::exception_ptr& error);
  static void tell(const std::vector<std::shared_ptr<Pending>>& complete);

  const std::vector<Part> parts_;
  const int64_t limit_bytes_;
  mutable std::mutex mutex_;  // Guards all below but the threads.
  std::condition_variable_any changed_;
  std::unordered_map<Key, Entry, HashOfKey> entries_;
  std::list<Key> recent_;  // The samples that are kept; the one that was used last is in front.
  std::deque<Key> queue_;
  MakerUse use_;
  std::vector<StageUse> loads_;      // By part.
  int64_t row_bytes_ = kUnknownRow;  // Those of the largest sample so far.
  std::vector<std::jthread> threads_;
};

}  // namespace trireme::data
