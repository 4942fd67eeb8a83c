#include <trireme/data/announcements.h>

#include <algorithm>
#include <utility>

namespace trireme::data {

Announcements::~Announcements() {
  while (!batches_.empty()) release_first();
}

void Announcements::add(plan::DataPosition at, int64_t samples, std::optional<Draws> draws) {
  if (draws) source_->announce(*draws);
  samples_ += samples;
  const std::lock_guard lock(mutex_);
  batches_.push_back({at, samples, std::move(draws)});
}

void Announcements::end(plan::DataPosition at) {
  std::optional<Draws> draws;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(batches_, at, &Announced::at);
    if (found == batches_.end()) return;
    draws = std::exchange(found->draws, std::nullopt);
  }
  if (draws) source_->release(*draws);
}

bool Announcements::skip_to(plan::DataPosition to) {
  const auto is_left = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(batches_, to, &Announced::at) != batches_.end();
  };
  const bool was_added = is_left();
  while (!batches_.empty() && batches_.front().at != to) release_first();
  return was_added;
}

// Only the adding thread changes the number of batches.
void Announcements::release_first() {
  end(batches_.front().at);
  samples_ -= batches_.front().samples;
  const std::lock_guard lock(mutex_);
  batches_.pop_front();
}

}  // namespace trireme::data
