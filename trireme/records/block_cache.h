// Blocks of records that are made when one of their records is read, and kept for the next ones.
#pragma once
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace trireme::records {

// Any number of threads. A block that several threads want is made once, and the others wait. The
// memory of all blocks that are kept is that of one block at its largest: `memory_bytes`. Records
// keep the blocks that they view for themselves.
template <typename Key, typename Block>
class BlockCache {
 public:
  using SharedBlock = std::shared_ptr<const Block>;

  explicit BlockCache(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // The block, which make() makes and whose memory is bytes_of(block). Throws what `make` throws.
  template <typename Make, typename BytesOf>
  SharedBlock get(const Key& key, Make make, BytesOf bytes_of) {
    std::optional<std::promise<SharedBlock>> promise;
    {
      std::unique_lock lock(mutex_);
      if (const auto found = blocks_.find(key); found != blocks_.end()) {
        if (used_.back() != key) used_.splice(used_.end(), used_, std::ranges::find(used_, key));
        // A block that is there needs no shared state, which costs more than the lock.
        if (found->second.block) return found->second.block;
        const std::shared_future<SharedBlock> future = found->second.future;
        lock.unlock();
        // The thread that makes it always comes to an end, with a block or an exception.
        return future.get();
      }
      promise.emplace();
      blocks_[key].future = promise->get_future().share();
      used_.push_back(key);
    }
    try {
      SharedBlock made = make();
      promise->set_value(made);
      const std::lock_guard lock(mutex_);
      if (const auto mine = blocks_.find(key); mine != blocks_.end()) {
        mine->second.bytes = bytes_of(*made);
        mine->second.block = made;
      }
      forget_old_blocks();
      return made;
    } catch (...) {
      promise->set_exception(std::current_exception());
      if (!is_damaged(std::current_exception())) {
        const std::lock_guard lock(mutex_);
        blocks_.erase(key);
        used_.remove(key);
      }
      throw;
    }
  }

  // The block is not kept any longer for later records.
  void forget(const Key& key) {
    const std::lock_guard lock(mutex_);
    if (blocks_.erase(key) > 0) used_.remove(key);
  }

 private:
  struct Kept {
    std::shared_future<SharedBlock> future;
    SharedBlock block;  // Null until it is made.
    int64_t bytes = 0;
  };

  // A damaged file stays so, and is not read again for each of its records. Another failure, such
  // as a disk's, may be over at the next record.
  static bool is_damaged(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Damage& damage) {
      return damage.code == ErrorCode::corrupt;
    } catch (...) {
      return false;
    }
  }

  void forget_old_blocks() {
    int64_t bytes = 0;
    size_t kept = 0;
    for (auto each = used_.rbegin(); each != used_.rend(); ++each) {
      bytes += blocks_.at(*each).bytes;
      if (kept > 0 && bytes > memory_bytes_) break;
      ++kept;
    }
    while (used_.size() > kept) {
      blocks_.erase(used_.front());
      used_.pop_front();
    }
  }

  int64_t memory_bytes_;
  std::mutex mutex_;
  std::map<Key, Kept> blocks_;
  std::list<Key> used_;  // The last used last.
};

}  // namespace trireme::records
