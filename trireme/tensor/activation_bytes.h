// Counts the bytes of activations that are held for backward. A storage counts once, however many
// tensors and holders it has.
#pragma once
#include <c10/core/Storage.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace trireme {

// The storages of parameters, buffers and a batch. They are no activations.
using StorageSet = std::unordered_set<const void*>;

// Any thread.
class ActivationBytes : public std::enable_shared_from_this<ActivationBytes> {
 public:
  // The bytes count while it lives. It may outlive its owner's other users.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { release(); }
    void release();

   private:
    friend class ActivationBytes;
    std::shared_ptr<ActivationBytes> owner_;
    const void* key_ = nullptr;
  };

  // The storage must live as long as the hold. The object is in a shared_ptr.
  Hold hold(const c10::Storage& storage);
  // Counts other memory, which begins at `key`.
  Hold hold(const void* key, int64_t bytes);

  bool is_held(const void* key) const;
  int64_t current() const;
  int64_t peak() const;  // The largest value of current() so far.

 private:
  struct Entry {
    int64_t bytes = 0, holds = 0;
  };
  void release(const void* key);

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> held_;
  int64_t current_ = 0, peak_ = 0;
};

}  // namespace trireme
