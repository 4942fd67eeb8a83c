// Counts the bytes of activations that are held for backward. A storage counts once, however many
// tensors and holders it has.
#pragma once
#include <c10/core/Storage.h>
#include <cstdint>
#include <functional>
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
    explicit operator bool() const { return owner_ != nullptr; }

   private:
    friend class ActivationBytes;
    std::shared_ptr<ActivationBytes> owner_;
    const void* key_ = nullptr;
  };

  // From now on hold() calls `make_room`, again and again, as long as the sum would exceed `limit`
  // and `make_room` returns true: it has freed something. What cannot be freed exceeds the limit.
  void set_limit(int64_t limit, std::function<bool()> make_room);

  // The storage must live as long as the hold. The object is in a shared_ptr. Lets exceptions of
  // `make_room` through.
  Hold hold(const c10::Storage& storage);
  // Counts other memory, which begins at `key`.
  Hold hold(const void* key, int64_t bytes);
  // Returns an empty hold if the sum would exceed the limit. Calls nothing.
  Hold try_hold(const c10::Storage& storage);

  bool is_held(const void* key) const;
  int64_t current() const;
  int64_t peak() const;  // The largest value of current() so far.

 private:
  struct Entry {
    int64_t bytes = 0, holds = 0;
  };
  bool fits(const void* key, int64_t bytes) const;
  Hold count(const void* key, int64_t bytes);
  void release(const void* key);

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> held_;
  int64_t current_ = 0, peak_ = 0;
  int64_t limit_ = 0;                // Used if there is make_room_.
  std::function<bool()> make_room_;  // Empty: there is no limit.
};

}  // namespace trireme
