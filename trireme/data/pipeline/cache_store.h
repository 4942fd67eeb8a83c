// Keeps the images that the first stages of a pipeline have made, for later epochs, for all
// processes of a host and, on a disk, for later jobs.
//
// Samples are added one by one until the space is used up. What does not fit stays out: under a
// random order, throwing out older samples would lose as many hits as it gains. A process that is
// killed while it adds a sample leaves the others whole.
#pragma once
#include <trireme/net/shared_memory.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

// An image and the bytes of its target.
struct CachedSample {
  int64_t height = 0, width = 0, channels = 0;
  std::span<const std::byte> pixels, target;
};

// Any thread of any process.
class CacheStore {
 public:
  // `key` is a digest of everything that decides about the samples. The memory is that which the
  // launcher made for the workers of this host (TRIREME_CACHE), or else belongs to this process.
  // Throws Error(io).
  static std::shared_ptr<CacheStore> in_memory(const std::string& key, int64_t samples,
                                               int64_t limit_bytes);
  // The file is `folder`/KEY.cache. A damaged one is made anew. Throws Error(io) naming the file.
  static std::shared_ptr<CacheStore> on_disk(const std::filesystem::path& folder,
                                             const std::string& key, int64_t samples,
                                             int64_t limit_bytes);

  // False: the sample is not there, or was made when its file had another stamp. Otherwise the
  // views live as long as the store.
  bool find(int64_t index, int64_t stamp, CachedSample& sample) const;
  // Adds the sample, unless it is there or does not fit.
  void add(int64_t index, int64_t stamp, const CachedSample& sample);

  int64_t stored() const;                 // Samples, by all processes.
  int64_t bytes() const;                  // In use, by all processes.
  bool is_full() const;                   // Some sample did not fit.
  int64_t hits() const { return hits_; }  // In this process.

 private:
  struct Header;
  struct EntryHead;
  CacheStore(net::SharedMemory memory, int64_t samples, bool is_file);
  static size_t table_bytes(int64_t samples);
  Header& header() const;
  std::atomic<uint64_t>& slot(int64_t index) const;
  bool begin(const std::string& key, int64_t samples, int64_t limit_bytes);
  bool provide(uint64_t from, uint64_t end);
  uint64_t end_of_samples() const;
  bool is_intact() const;

  net::SharedMemory memory_;
  const bool is_file_;
  const int64_t samples_;
  mutable std::atomic<int64_t> hits_{0};
};

// The environment variable by which a launcher tells its workers of memory for caches:
// "PID:DESCRIPTOR,DESCRIPTOR".
inline constexpr const char* kCacheVariable = "TRIREME_CACHE";

// Made by a launcher before it starts workers; lives as long as the launcher.
class HostCaches {
 public:
  // Memory without content for `count` caches of at most so many bytes. None is taken before a
  // sample is added. Throws Error(io).
  HostCaches(int count, int64_t bytes_of_each);
  std::string variable() const;  // The value of kCacheVariable.

 private:
  std::vector<net::SharedMemory> memories_;
};

}  // namespace trireme::data
