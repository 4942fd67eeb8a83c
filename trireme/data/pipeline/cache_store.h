// Keeps what the first stages of a pipeline have made, for later epochs, for all processes of a
// host and, on a disk, for later jobs.
//
// Samples are added one by one until the space is used up. What does not fit stays out: under a
// random order, throwing out older samples would lose as many hits as it gains. A process that is
// killed while it adds a sample leaves the others whole.
#pragma once
#include <trireme/data/pipeline/cache_budget.h>
#include <trireme/data/pipeline/cache_head.h>
#include <trireme/net/shared_memory.h>
#include <trireme/records/page_guard.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

// An image and the bytes of its target. Tensors (kept_tensors.h) are an image of one row and one
// channel, without a target.
struct CachedSample {
  int64_t height = 0, width = 0, channels = 0;
  std::span<const std::byte> pixels, target;
};

// Any thread of any process.
class CacheStore {
 public:
  // `key` is a digest of everything that decides about the samples. The memory is that which the
  // launcher or another worker made for this host (HostCaches), or else belongs to this process.
  // The samples of all caches with this budget have its bytes together. Throws Error(io).
  static std::shared_ptr<CacheStore> in_memory(const std::string& key, int64_t samples,
                                               std::shared_ptr<CacheBudget> budget);
  // The file is `folder`/KEY.cache. A damaged one is made anew. All caches of the folder may have
  // `limit_bytes` together (-1: CacheFolder::usual_limit()), and this one needs `wanted_bytes` for
  // all samples. A limit that is larger than that of an earlier job holds from now on. Throws
  // Error(io) naming the file.
  static std::shared_ptr<CacheStore> on_disk(const std::filesystem::path& folder,
                                             const std::string& key, int64_t samples,
                                             int64_t wanted_bytes, int64_t limit_bytes);
  // The bytes that a sample of this content takes.
  static int64_t bytes_of(const CachedSample& sample);

  // False: the sample is not there, or was made when its file had another stamp. Otherwise the
  // views live as long as the store. They are right if is_whole() is true behind the last use.
  bool find(int64_t index, int64_t stamp, CachedSample& sample) const;
  // False: somebody has cut the file, so there are no samples any more, and what find() has given
  // may be zeros.
  bool is_whole() const;
  // Adds the sample, unless it is there or does not fit.
  void add(int64_t index, int64_t stamp, const CachedSample& sample);

  // Nothing is in one that is not whole.
  int64_t stored() const;  // Samples, by all processes.
  int64_t bytes() const;   // In use, by all processes.
  bool is_full() const;    // Some sample did not fit.
  int64_t limit() const;   // The most that bytes() may become.

 private:
  struct EntryHead;
  CacheStore(net::SharedMemory memory, int64_t samples, std::shared_ptr<CacheBudget> budget);
  static size_t table_bytes(int64_t samples);
  CacheHead& header() const;
  uint64_t end_of_space() const;
  std::atomic<uint64_t>& slot(int64_t index) const;
  bool begin(const std::string& key, int64_t samples, int64_t limit_bytes);
  bool provide(uint64_t from, uint64_t end);
  void open_again(uint64_t limit, bool is_shared);
  uint64_t end_of_samples() const;

  net::SharedMemory memory_;
  const std::shared_ptr<CacheBudget> budget_;  // Null for a file.
  const bool is_file_;
  const int64_t samples_;
  std::optional<records::PageGuard> guard_;  // Memory has none, because nobody can cut it.
};

}  // namespace trireme::data
