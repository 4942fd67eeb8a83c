#include <trireme/tensor/activation_bytes.h>
#include <algorithm>
#include <utility>

namespace trireme {

ActivationBytes::Hold& ActivationBytes::Hold::operator=(Hold&& other) noexcept {
  release();
  owner_ = std::move(other.owner_);
  key_ = std::exchange(other.key_, nullptr);
  return *this;
}

void ActivationBytes::Hold::release() {
  if (owner_) std::exchange(owner_, nullptr)->release(key_);
}

ActivationBytes::Hold ActivationBytes::hold(const c10::Storage& storage) {
  return hold(storage.unsafeGetStorageImpl(), static_cast<int64_t>(storage.nbytes()));
}

void ActivationBytes::set_limit(int64_t limit, std::function<bool()> make_room) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  make_room_ = std::move(make_room);
}

ActivationBytes::Hold ActivationBytes::hold(const void* key, int64_t bytes) {
  for (bool is_freed = true;;) {
    std::function<bool()> make_room;
    {
      const std::lock_guard lock(mutex_);
      if (!is_freed || fits(key, bytes)) return count(key, bytes);
      make_room = make_room_;
    }
    is_freed = make_room();
  }
}

ActivationBytes::Hold ActivationBytes::try_hold(const c10::Storage& storage) {
  const void* const key = storage.unsafeGetStorageImpl();
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  const std::lock_guard lock(mutex_);
  return fits(key, bytes) ? count(key, bytes) : Hold();
}

// The caller of the next two holds the mutex.
bool ActivationBytes::fits(const void* key, int64_t bytes) const {
  return !make_room_ || current_ + bytes <= limit_ || held_.contains(key);
}

ActivationBytes::Hold ActivationBytes::count(const void* key, int64_t bytes) {
  Entry& entry = held_[key];
  if (entry.holds++ == 0) {
    entry.bytes = bytes;
    current_ += bytes;
    peak_ = std::max(peak_, current_);
  }
  Hold made;
  made.owner_ = shared_from_this();
  made.key_ = key;
  return made;
}

void ActivationBytes::release(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(key);
  if (--found->second.holds > 0) return;
  current_ -= found->second.bytes;
  held_.erase(found);
}

bool ActivationBytes::is_held(const void* key) const {
  const std::lock_guard lock(mutex_);
  return held_.contains(key);
}

int64_t ActivationBytes::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

int64_t ActivationBytes::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace trireme
