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

ActivationBytes::Hold ActivationBytes::hold(const void* key, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = held_[key];
    if (entry.holds++ == 0) {
      entry.bytes = bytes;
      current_ += bytes;
      peak_ = std::max(peak_, current_);
    }
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
