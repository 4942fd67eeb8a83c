// Blocks of records that are made when one of their records is read, and kept for the next ones.
#pragma once
#include <trireme/records/block_memory.h>
#include <trireme/records/damage.h>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace trireme::records {

// Any number of threads. A block that several threads want is made once, and the others wait. The
// blocks that are kept share the memory with those of other readers (block_memory.h). Records keep
// the blocks that they view for themselves.
template <typename Key, typename Block>
class BlockCache {
 public:
  using SharedBlock = std::shared_ptr<const Block>;

  explicit BlockCache(std::shared_ptr<BlockMemory> memory) : memory_(std::move(memory)) {}
  ~BlockCache() {
    if (is_expected_) memory_->add_readers(-1);
    const std::lock_guard lock(memory_->mutex());
    for (const auto& [key, kept] : blocks_) memory_->remove(kept.place);
  }
  BlockCache(const BlockCache&) = delete;

  // Tells the memory that there will be blocks. Call it once at most, before get().
  void expect_blocks() {
    is_expected_ = true;
    memory_->add_readers(1);
  }

  // The block, which make() makes and whose memory is bytes_of(block). Throws what `make` throws.
  template <typename Make, typename BytesOf>
  SharedBlock get(const Key& key, Make make, BytesOf bytes_of) {
    std::optional<std::promise<SharedBlock>> promise;
    {
      std::unique_lock lock(memory_->mutex());
      if (const auto found = blocks_.find(key); found != blocks_.end()) {
        memory_->use(found->second.place);
        // A block that is there needs no shared state, which costs more than the lock.
        if (found->second.block) return found->second.block;
        const std::shared_future<SharedBlock> future = found->second.future;
        lock.unlock();
        // The thread that makes it always comes to an end, with a block or an exception.
        return future.get();
      }
      promise.emplace();
      const auto place =
          memory_->add({.owner = &owner_, .forget = [this, key] { erase(blocks_.find(key)); }});
      blocks_.emplace(key, Kept{promise->get_future().share(), nullptr, place});
    }
    try {
      SharedBlock made = make();
      promise->set_value(made);
      const std::lock_guard lock(memory_->mutex());
      if (const auto mine = blocks_.find(key); mine != blocks_.end()) {
        mine->second.block = made;
        memory_->set_bytes(mine->second.place, bytes_of(*made));
      }
      return made;
    } catch (...) {
      promise->set_exception(std::current_exception());
      if (!is_damaged(std::current_exception())) forget(key);
      throw;
    }
  }

  // The block is not kept any longer for later records.
  void forget(const Key& key) {
    const std::lock_guard lock(memory_->mutex());
    if (const auto found = blocks_.find(key); found != blocks_.end()) erase(found);
  }

  // The bytes of the blocks that may be kept.
  int64_t limit() const { return memory_->limit(); }

 private:
  struct Kept {
    std::shared_future<SharedBlock> future;
    SharedBlock block;  // Null until it is made.
    BlockMemory::Place place;
  };
  using Blocks = std::map<Key, Kept>;

  void erase(typename Blocks::iterator block) {
    memory_->remove(block->second.place);
    blocks_.erase(block);
  }

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

  const std::shared_ptr<BlockMemory> memory_;
  bool is_expected_ = false;
  BlockMemory::Owner owner_;
  Blocks blocks_;  // Guarded by the memory's mutex.
};

}  // namespace trireme::records
