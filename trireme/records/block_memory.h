// The memory of the blocks that readers keep together: those of one reader, or of all readers of a
// process.
#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>

namespace trireme::records {

// Any thread. If the blocks have more bytes than the limit, those that were used the longest time
// ago are forgotten. But a reader that is in use keeps its last block: a limit slows reading down,
// and does not prevent it.
class BlockMemory {
 public:
  struct Owner;
  struct Kept {
    Owner* owner;
    std::function<void()> forget;  // Frees the block; its place is gone then.
    int64_t bytes = 0;             // 0 until the block is made.
  };
  using Place = std::list<Kept>::iterator;
  // The blocks of one reader.
  struct Owner {
    const Kept* newest = nullptr;
    int64_t used = 0;  // The number of its last use, among those of all readers.
  };
  // A reader that was not used for so many uses of the others is not in use.
  static constexpr int64_t kRecentUses = 4096;

  explicit BlockMemory(int64_t limit) : limit_(limit) {}

  int64_t limit() const;
  void set_limit(int64_t bytes);
  int64_t kept_bytes() const;
  // The readers that will have blocks. If there is one, others leave the blocks their memory.
  void add_readers(int more);
  bool has_readers() const;

  // The caller holds this mutex when it calls one of the functions below, which forget() needs
  // too.
  std::mutex& mutex() const { return mutex_; }
  Place add(Kept block);
  void use(Place block);
  // The block is made. May forget other blocks.
  void set_bytes(Place block, int64_t bytes);
  void remove(Place block);

 private:
  bool must_stay(const Kept& block) const;
  void forget_old();

  mutable std::mutex mutex_;  // Guards all below.
  int64_t limit_, kept_ = 0, uses_ = 0;
  int readers_ = 0;
  std::list<Kept> blocks_;  // The last used last.
};

}  // namespace trireme::records
