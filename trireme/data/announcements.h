// The batches that a loader has announced to its source: each announcement is taken back once.
#pragma once
#include <trireme/data/source.h>
#include <trireme/plan/data_position.h>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace trireme::data {

// One thread adds and skips; any thread ends. The destructor takes back what is left.
class Announcements {
 public:
  explicit Announcements(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  ~Announcements();
  Announcements(const Announcements&) = delete;

  // Announces the draws of a batch, if there are any. Batches are added in their order; `samples`
  // is the size of the global one.
  void add(plan::DataPosition at, int64_t samples, std::optional<Draws> draws);
  // The batch at this position was loaded, or could not be. Another call does nothing.
  void end(plan::DataPosition at);
  // Forgets the batches in front of `to`. If `to` was not added, these are all: it returns false.
  bool skip_to(plan::DataPosition to);
  // The samples of the batches that were added and not skipped.
  int64_t samples() const { return samples_; }

 private:
  struct Announced {
    plan::DataPosition at;
    int64_t samples = 0;
    std::optional<Draws> draws;  // Nothing: there is nothing to take back.
  };
  void release_first();

  const std::shared_ptr<const Source> source_;
  std::mutex mutex_;  // Guards the batches.
  std::deque<Announced> batches_;
  int64_t samples_ = 0;  // The adding thread's own.
};

}  // namespace trireme::data
