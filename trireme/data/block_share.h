// The memory of this process for unpacked files and row groups (records/block_memory.h): a share
// of what the input of its host may take. No torch.
#pragma once
#include <trireme/records/block_memory.h>
#include <cstdint>
#include <memory>

namespace trireme::data {

// The memory that all readers of this process have together. As long as no loader has a share, its
// limit is `of_host`: the blocks' part of the host's memory.
std::shared_ptr<records::BlockMemory> blocks_of_process(int64_t of_host);

// The bytes of batches that are ready, beside caches of so many bytes and beside the blocks that
// readers of this process may have.
int64_t memory_beside_blocks(int64_t asked, int64_t caches);
// Whether a reader of this process may have blocks.
bool process_has_blocks();

// The share of a loader, one of `loaders` on the host. Those of a process add up. Any thread.
class BlockShare {
 public:
  BlockShare(int64_t of_host, int loaders);
  ~BlockShare();
  BlockShare(const BlockShare&) = delete;

 private:
  const int64_t of_host_, own_;
};

}  // namespace trireme::data
