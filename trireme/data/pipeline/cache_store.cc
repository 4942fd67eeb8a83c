// The memory of a cache: a head, a table with the place of each sample, and the samples.
//
// A thread takes space by adding to `Header::next`, writes the sample there, and then stores its
// place in the table. So a reader sees a whole sample or none, and a sample that a killed process
// left half written only costs its space. A power cut may keep a place on the disk and lose the
// sample, so samples in files have a digest.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/data/pipeline/cache_folder.h>
#include <trireme/data/pipeline/cache_store.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeadBytes = kCacheHeadBytes, kAlign = 16;
// Memory is provided in pieces: a part of the whole limit, but not more than kMostChunk.
constexpr uint64_t kLeastChunk = 4096, kMostChunk = uint64_t{16} << 20, kChunks = 64;
// Memory of a launcher that is larger than the table by less is of no use.
constexpr uint64_t kLeastSpace = uint64_t{16} << 20;

net::MemoryUse use_of_memory() { return {"the cache of samples", kRemedyOfCaches}; }
net::MemoryUse use_of_disk() {
  return {"the cache of samples",
          "a folder of a disk with more space (data.cache_dir), or a smaller data.cache_bytes",
          "data.cache_dir"};
}

uint64_t chunk_of(uint64_t bytes) {
  return std::clamp(bytes / kChunks / kLeastChunk * kLeastChunk, kLeastChunk, kMostChunk);
}

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// The bytes that the file must have by its head; 0 if it has none. It becomes larger before its
// head says so.
uint64_t bytes_by_head(int file) {
  uint64_t limit = 0;
  const ssize_t read = ::pread(file, &limit, sizeof limit, offsetof(CacheHead, limit));
  return read == sizeof limit ? limit : 0;
}

// The lock lasts as long as the object, also if the process dies.
class FileLock {
 public:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~FileLock() { ::flock(descriptor_, LOCK_UN); }

 private:
  const int descriptor_;
};

}  // namespace

struct CacheStore::EntryHead {
  uint32_t height, width, channels, target_bytes;
  int64_t index, stamp;
  uint64_t digest;  // Covers the numbers above, pixels and target; only in files.

  uint64_t digest_with(const std::byte* content, size_t bytes) const {
    const uint64_t seed = XXH3_64bits(this, offsetof(EntryHead, digest));
    return XXH3_64bits_withSeed(content, bytes, seed);
  }
};

size_t CacheStore::table_bytes(int64_t samples) {
  return aligned(static_cast<uint64_t>(samples) * sizeof(uint64_t));
}

CacheHead& CacheStore::header() const { return *reinterpret_cast<CacheHead*>(memory_.data()); }

std::atomic<uint64_t>& CacheStore::slot(int64_t index) const {
  return reinterpret_cast<std::atomic<uint64_t>*>(memory_.data() + kHeadBytes)[index];
}

CacheStore::CacheStore(net::SharedMemory memory, int64_t samples,
                       std::shared_ptr<CacheBudget> budget)
    : memory_(std::move(memory)),
      budget_(std::move(budget)),
      is_file_(!budget_),
      samples_(samples) {
  if (is_file_)
    guard_.emplace(std::span(memory_.data(), memory_.bytes()), records::PageGuard::Access::write);
}

int64_t CacheStore::bytes_of(const CachedSample& sample) {
  return static_cast<int64_t>(
      aligned(sizeof(EntryHead) + sample.pixels.size() + sample.target.size()));
}

// Another process may have made the file larger after this one mapped it.
uint64_t CacheStore::end_of_space() const {
  return std::min<uint64_t>(header().limit.load(), memory_.bytes());
}

// Writes the head, or compares it. False: this memory has other content.
bool CacheStore::begin(const std::string& key, int64_t samples, int64_t limit_bytes) {
  CacheHead& head = header();
  char name[kCacheKeyBytes] = {};
  std::memcpy(name, key.data(), std::min(key.size(), kCacheKeyBytes));
  if (std::memcmp(head.magic, kCacheMagic, sizeof kCacheMagic) == 0) {
    return std::memcmp(head.key, name, kCacheKeyBytes) == 0 &&
           head.samples == static_cast<uint64_t>(samples) &&
           head.limit >= kHeadBytes + table_bytes(samples) &&
           head.next >= kHeadBytes + table_bytes(samples);
  }
  if (std::any_of(memory_.data(), memory_.data() + sizeof(CacheHead),
                  [](std::byte byte) { return byte != std::byte{0}; }))
    return false;
  std::memcpy(head.key, name, kCacheKeyBytes);
  head.samples = static_cast<uint64_t>(samples);
  const uint64_t begin = kHeadBytes + table_bytes(samples);
  head.limit = std::min<uint64_t>(memory_.bytes(), begin + static_cast<uint64_t>(limit_bytes));
  head.next = begin;
  head.provided = begin;
  std::memcpy(head.magic, kCacheMagic, sizeof kCacheMagic);
  return true;
}

std::shared_ptr<CacheStore> CacheStore::in_memory(const std::string& key, int64_t samples,
                                                  std::shared_ptr<CacheBudget> budget) {
  budget->find_host();
  const int64_t limit_bytes = budget->limit();
  const auto make = [&](net::SharedMemory memory) {
    std::shared_ptr<CacheStore> store(new CacheStore(std::move(memory), samples, budget));
    store->memory_.reserve(0, kHeadBytes + table_bytes(samples));
    if (store->memory_.descriptor() < 0)  // Nobody else has it.
      return store->begin(key, samples, limit_bytes) ? store : nullptr;
    const FileLock lock(store->memory_.descriptor());
    return store->begin(key, samples, limit_bytes) ? store : nullptr;
  };
  std::vector<Descriptor> memories = memories_of_host();
  for (size_t i = 1; i < memories.size(); ++i) {  // The first one has the budget.
    struct stat facts {};
    if (::fstat(memories[i].get(), &facts) != 0 ||
        static_cast<uint64_t>(facts.st_size) <
            kHeadBytes + table_bytes(samples) +
                std::min(kLeastSpace, static_cast<uint64_t>(limit_bytes)))
      continue;
    if (auto store = make(net::SharedMemory::open(std::move(memories[i]), use_of_memory())))
      return store;
  }
  const uint64_t bytes = kHeadBytes + table_bytes(samples) + static_cast<uint64_t>(limit_bytes);
  return make(net::SharedMemory::create(bytes, net::Sharing::processes, use_of_memory()));
}

std::shared_ptr<CacheStore> CacheStore::on_disk(const fs::path& folder, const std::string& key,
                                                int64_t samples, int64_t wanted_bytes,
                                                int64_t limit_bytes) {
  const fs::path path = folder / (key.substr(0, 32) + ".cache");
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::io, "data",
                fmt::format("the cache {} cannot be used: {}", path.string(), what),
                "data.cache_dir: a folder that can be written, with enough space");
  };
  CacheFolder caches(folder);
  const uint64_t begin = kHeadBytes + table_bytes(samples);
  const int64_t limit = limit_bytes >= 0 ? limit_bytes : caches.usual_limit();
  const auto space = static_cast<uint64_t>(caches.make_room(path, wanted_bytes, limit));
  for (int tries = 0; tries < 2; ++tries) {
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) refuse(std::strerror(errno));
    const bool is_shared = is_used_by_others(file.get());
    if (!lock_as_used(file.get())) refuse("another process keeps it locked");
    const uint64_t least = std::max(begin, bytes_by_head(file.get()));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) refuse(std::strerror(errno));
    const auto size = static_cast<uint64_t>(facts.st_size);
    const bool is_cut = size != 0 && size < least;
    if (!is_cut && size < begin + space &&
        ::ftruncate(file.get(), static_cast<off_t>(begin + space)) != 0)
      refuse(std::strerror(errno));
    if (!is_cut) {
      std::shared_ptr<CacheStore> store(
          new CacheStore(net::SharedMemory::open(std::move(file), use_of_disk(), folder.string()),
                         samples, nullptr));
      store->memory_.reserve(0, begin);
      if (store->begin(key, samples, static_cast<int64_t>(space))) {
        store->open_again(begin + space, is_shared);
        return store;
      }
    }
    log_warning("the cache {} is damaged, and is made anew", path.string());
    // Processes that use the old file keep it.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) refuse(std::strerror(errno));
  }
  refuse("it is damaged");
  return nullptr;
}

// Sets the limit of this job. Other processes that use the file keep what they were promised.
void CacheStore::open_again(uint64_t limit, bool is_shared) {
  CacheHead& head = header();
  const uint64_t end = end_of_samples();
  uint64_t next = head.next.load();
  while (next < end && !head.next.compare_exchange_weak(next, end)) continue;
  const uint64_t least =
      is_shared ? std::max(head.next.load(), head.limit.load()) : head.next.load();
  head.limit = std::min<uint64_t>(std::max(limit, least), memory_.bytes());
  head.full = 0;                              // There may be space again.
  ::futimens(memory_.descriptor(), nullptr);  // By this time the oldest cache is found.
}

bool CacheStore::is_whole() const {
  if (!is_file_) return true;
  if (guard_->has_lost_pages()) return false;
  struct stat facts {};
  return ::fstat(memory_.descriptor(), &facts) == 0 &&
         static_cast<uint64_t>(facts.st_size) >= memory_.bytes();
}

bool CacheStore::find(int64_t index, int64_t stamp, CachedSample& sample) const {
  if (index < 0 || index >= samples_ || !is_whole()) return false;
  const uint64_t at = slot(index).load(std::memory_order_acquire);
  const uint64_t end = end_of_space();
  const uint64_t begin = kHeadBytes + table_bytes(samples_);
  if (at < begin || end < begin + sizeof(EntryHead) || at > end - sizeof(EntryHead)) return false;
  EntryHead entry;
  std::memcpy(&entry, memory_.data() + at, sizeof entry);
  if (entry.index != index || entry.stamp != stamp) return false;
  const uint64_t pixels = uint64_t{entry.height} * entry.width * entry.channels;
  const uint64_t room = end - at - sizeof entry;
  if (pixels > room || entry.target_bytes > room - pixels) return false;
  const std::byte* const content = memory_.data() + at + sizeof entry;
  const size_t content_bytes = static_cast<size_t>(pixels) + entry.target_bytes;
  if (is_file_ && entry.digest_with(content, content_bytes) != entry.digest) return false;
  sample = {entry.height,
            entry.width,
            entry.channels,
            {content, static_cast<size_t>(pixels)},
            {content + pixels, entry.target_bytes}};
  return true;
}

// Provides memory for [from, end) in whole pieces. Whoever needs a piece first provides it; twice
// does no harm.
bool CacheStore::provide(uint64_t from, uint64_t end) {
  CacheHead& head = header();
  uint64_t known = head.provided.load();
  if (end <= known) return true;
  const uint64_t chunk = chunk_of(static_cast<uint64_t>(limit()));
  const uint64_t first = std::min(from, known) / chunk * chunk;
  const uint64_t until = std::min<uint64_t>(memory_.bytes(), (end + chunk - 1) / chunk * chunk);
  try {
    memory_.reserve(first, until - first);
  } catch (const Error& error) {
    if (head.full.exchange(1) == 0) {
      const auto [what, remedy] = parts_of(error);
      log_warning("the cache of samples ends at {} samples: {}; try: {}", stored(), what, remedy);
    }
    return false;
  }
  while (known < until && !head.provided.compare_exchange_weak(known, until)) continue;
  return true;
}

void CacheStore::add(int64_t index, int64_t stamp, const CachedSample& sample) {
  if (index < 0 || index >= samples_ || !is_whole()) return;
  CacheHead& head = header();
  if (head.full.load(std::memory_order_relaxed) != 0) return;
  const uint64_t content = sample.pixels.size() + sample.target.size();
  const uint64_t bytes = aligned(sizeof(EntryHead) + content);
  const uint64_t old = slot(index).load(std::memory_order_acquire);
  CachedSample there;
  if (old != 0 && find(index, stamp, there)) return;
  if (budget_ && !budget_->take(static_cast<int64_t>(bytes))) {
    head.full = 1;
    return;
  }
  const uint64_t end = end_of_space();
  uint64_t at = head.next.load();
  do {
    if (at > end || bytes > end - at) {
      if (end == head.limit.load()) head.full = 1;
      if (budget_) budget_->give_back(static_cast<int64_t>(bytes));
      return;
    }
  } while (!head.next.compare_exchange_weak(at, at + bytes));
  if (!provide(at, at + bytes)) {
    if (budget_) budget_->give_back(static_cast<int64_t>(bytes));
    return;
  }
  std::byte* const to = memory_.data() + at;
  std::memcpy(to + sizeof(EntryHead), sample.pixels.data(), sample.pixels.size());
  std::memcpy(to + sizeof(EntryHead) + sample.pixels.size(), sample.target.data(),
              sample.target.size());
  EntryHead entry{.height = static_cast<uint32_t>(sample.height),
                  .width = static_cast<uint32_t>(sample.width),
                  .channels = static_cast<uint32_t>(sample.channels),
                  .target_bytes = static_cast<uint32_t>(sample.target.size()),
                  .index = index,
                  .stamp = stamp,
                  .digest = 0};
  if (is_file_) entry.digest = entry.digest_with(to + sizeof(EntryHead), content);
  std::memcpy(to, &entry, sizeof entry);
  uint64_t expected = old;
  if (slot(index).compare_exchange_strong(expected, at, std::memory_order_release))
    head.stored.fetch_add(old == 0 ? 1 : 0);
}

// A power cut may keep a newer table than the head: space that has a sample is not given twice.
uint64_t CacheStore::end_of_samples() const {
  uint64_t end = header().next.load();
  for (int64_t index = 0; index < samples_; ++index) {
    const uint64_t at = slot(index).load(std::memory_order_relaxed);
    if (at < end || at > memory_.bytes() - sizeof(EntryHead)) continue;
    EntryHead entry;
    std::memcpy(&entry, memory_.data() + at, sizeof entry);
    end = std::max(
        end, at + aligned(sizeof entry + uint64_t{entry.height} * entry.width * entry.channels +
                          entry.target_bytes));
  }
  return std::min<uint64_t>(end, memory_.bytes());
}

int64_t CacheStore::stored() const {
  return is_whole() ? static_cast<int64_t>(header().stored.load()) : 0;
}
int64_t CacheStore::bytes() const {
  if (!is_whole()) return 0;
  return static_cast<int64_t>(header().next.load() - kHeadBytes - table_bytes(samples_));
}
int64_t CacheStore::limit() const {
  if (budget_) return budget_->limit();
  if (!is_whole()) return 0;
  return static_cast<int64_t>(header().limit.load() - kHeadBytes - table_bytes(samples_));
}
bool CacheStore::is_full() const { return header().full.load() != 0; }

}  // namespace trireme::data
