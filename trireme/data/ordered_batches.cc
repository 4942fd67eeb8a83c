#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/ordered_batches.h>
#include <trireme/data/prefetch.h>
#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::data {

OrderedBatches::OrderedBatches(std::shared_ptr<const Source> source, Part part, ReadAhead ahead,
                               Read read)
    : source_(std::move(source)),
      part_(part),
      ahead_(ahead),
      read_(std::move(read)),
      next_(part.first),
      scheduled_(part.first),
      announced_(part.first),
      announcements_(source_) {}

OrderedBatches::~OrderedBatches() = default;

Draws OrderedBatches::draws_at(int64_t first) const {
  std::vector<int64_t> samples(static_cast<size_t>(std::min(part_.batch, part_.last - first)));
  std::iota(samples.begin(), samples.end(), first);
  return {std::move(samples)};
}

// Any thread.
Batch OrderedBatches::read_now(int64_t first) {
  const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { announcements_.end({0, first}); });
  return read_(draws_at(first));
}

void OrderedBatches::announce_ahead() {
  const int64_t worth = source_->reads_ahead();
  while (announced_ < part_.last &&
         (announcements_.samples() < worth || (worth > 0 && announced_ < scheduled_))) {
    Draws draws = draws_at(announced_);
    const int64_t samples = std::ssize(draws.indices);
    announcements_.add({0, announced_}, samples, std::move(draws));
    announced_ += samples;
  }
}

// The first batch, which the caller reads, tells how much memory one takes.
void OrderedBatches::fill() {
  if (ahead_.threads <= 0 || largest_ == 0) return;
  const int64_t fitting = ahead_.memory_bytes / largest_;
  const auto threads = static_cast<int>(std::min<int64_t>(ahead_.threads, fitting / 2));
  if (threads == 0) return;
  const auto batches =
      std::min<int64_t>(std::max(ahead_.threads, ahead_.batches), fitting - threads);
  if (!prefetch_) prefetch_ = std::make_unique<Prefetch>(0, ahead_.rank, ahead_.world_size);
  prefetch_->set_threads(threads);
  while (scheduled_ < part_.last && std::ssize(*prefetch_) < batches) {
    const int64_t first = scheduled_;
    scheduled_ = std::min(part_.last, scheduled_ + part_.batch);
    announce_ahead();
    prefetch_->add(Prefetch::Task([this, first] { return read_now(first); }));
  }
}

Batch OrderedBatches::take() {
  if (!prefetch_ || prefetch_->size() == 0) {
    const int64_t first = std::exchange(scheduled_, std::min(part_.last, next_ + part_.batch));
    announce_ahead();
    return read_now(first);
  }
  if (!prefetch_->wait(ahead_.timeout))
    throw Error(ErrorCode::timeout, "data",
                fmt::format("the samples from {} on were not read within {} ms", next_,
                            ahead_.timeout.count()),
                "a faster source, or more data.threads");
  return prefetch_->take();
}

Batch OrderedBatches::next() {
  Batch batch = take();
  largest_ = std::max(largest_, bytes_of(batch));
  next_ = std::min(part_.last, next_ + part_.batch);
  announcements_.skip_to({0, next_});
  fill();
  return batch;
}

}  // namespace trireme::data
