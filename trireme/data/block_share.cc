#include <trireme/data/block_share.h>
#include <trireme/data/input_memory.h>
#include <algorithm>
#include <mutex>
#include <set>

namespace trireme::data {
namespace {

struct BlocksOfProcess {
  std::mutex mutex;
  const std::shared_ptr<records::BlockMemory> memory = std::make_shared<records::BlockMemory>(0);
  int64_t of_host = 0;
  std::multiset<int64_t> hosts;  // The memory of the host, as each loader knows it.
  int64_t shares = 0;

  // The caller holds the mutex.
  void update() { memory->set_limit(hosts.empty() ? of_host : std::min(shares, *hosts.rbegin())); }
};
BlocksOfProcess& own_blocks() {
  static BlocksOfProcess only;
  return only;
}

}  // namespace

std::shared_ptr<records::BlockMemory> blocks_of_process(int64_t of_host) {
  BlocksOfProcess& own = own_blocks();
  const std::lock_guard lock(own.mutex);
  own.of_host = of_host;
  own.update();
  return own.memory;
}

bool process_has_blocks() { return own_blocks().memory->has_readers(); }

int64_t memory_beside_blocks(int64_t asked, int64_t caches) {
  const int64_t batches = memory_of_batches(asked, caches);
  return process_has_blocks() ? batches - part_of_blocks(batches) : batches;
}

BlockShare::BlockShare(int64_t of_host, int loaders) : of_host_(of_host), own_(of_host / loaders) {
  BlocksOfProcess& own = own_blocks();
  const std::lock_guard lock(own.mutex);
  own.hosts.insert(of_host_);
  own.shares += own_;
  own.update();
}

BlockShare::~BlockShare() {
  BlocksOfProcess& own = own_blocks();
  const std::lock_guard lock(own.mutex);
  own.hosts.erase(own.hosts.find(of_host_));
  own.shares -= own_;
  own.update();
}

}  // namespace trireme::data
