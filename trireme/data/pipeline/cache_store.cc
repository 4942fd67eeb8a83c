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
#include <sys/vfs.h>
#include <xxhash.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/data/pipeline/cache_store.h>
#include <trireme/records/network_files.h>
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

constexpr char kMagic[16] = "trireme-cache-1";
constexpr uint64_t kHeadBytes = 4096, kAlign = 16;
constexpr uint64_t kChunk = uint64_t{16} << 20;  // Memory is provided in such pieces.
constexpr size_t kKeyBytes = 64;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

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

// The descriptors of the launcher's memories, opened in this process.
std::vector<Descriptor> memories_of_launcher() {
  std::vector<Descriptor> memories;
  const char* const text = std::getenv(kCacheVariable);
  const std::string value = text ? text : "";
  const size_t colon = value.find(':');
  if (colon == std::string::npos) return memories;
  const std::string process = value.substr(0, colon);
  for (size_t at = colon + 1; at < value.size();) {
    const size_t end = std::min(value.find(',', at), value.size());
    const std::string path = fmt::format("/proc/{}/fd/{}", process, value.substr(at, end - at));
    Descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (memory) memories.push_back(std::move(memory));
    at = end + 1;
  }
  return memories;
}

}  // namespace

struct CacheStore::Header {
  char magic[16];
  char key[kKeyBytes];
  uint64_t samples, limit;  // The limit is the end of the space for samples, from the beginning.
  std::atomic<uint64_t> next, stored;
  std::atomic<uint64_t> provided;  // Memory is there up to this byte.
  std::atomic<uint64_t> full;
};

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

CacheStore::Header& CacheStore::header() const {
  return *reinterpret_cast<Header*>(memory_.data());
}

std::atomic<uint64_t>& CacheStore::slot(int64_t index) const {
  return reinterpret_cast<std::atomic<uint64_t>*>(memory_.data() + kHeadBytes)[index];
}

CacheStore::CacheStore(net::SharedMemory memory, int64_t samples, bool is_file)
    : memory_(std::move(memory)), is_file_(is_file), samples_(samples) {}

// Writes the head, or compares it. False: this memory has other content.
bool CacheStore::begin(const std::string& key, int64_t samples, int64_t limit_bytes) {
  Header& head = header();
  char name[kKeyBytes] = {};
  std::memcpy(name, key.data(), std::min(key.size(), kKeyBytes));
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) == 0) {
    return std::memcmp(head.key, name, kKeyBytes) == 0 &&
           head.samples == static_cast<uint64_t>(samples) && head.limit <= memory_.bytes() &&
           head.limit >= kHeadBytes + table_bytes(samples) &&
           head.next >= kHeadBytes + table_bytes(samples);
  }
  if (std::any_of(memory_.data(), memory_.data() + sizeof(Header),
                  [](std::byte byte) { return byte != std::byte{0}; }))
    return false;
  std::memcpy(head.key, name, kKeyBytes);
  head.samples = static_cast<uint64_t>(samples);
  const uint64_t begin = kHeadBytes + table_bytes(samples);
  head.limit = std::min<uint64_t>(memory_.bytes(), begin + static_cast<uint64_t>(limit_bytes));
  head.next = begin;
  head.provided = begin;
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  return true;
}

std::shared_ptr<CacheStore> CacheStore::in_memory(const std::string& key, int64_t samples,
                                                  int64_t limit_bytes) {
  const uint64_t bytes =
      kHeadBytes + table_bytes(samples) + static_cast<uint64_t>(std::max<int64_t>(0, limit_bytes));
  const auto make = [&](net::SharedMemory memory) {
    std::shared_ptr<CacheStore> store(new CacheStore(std::move(memory), samples, false));
    store->memory_.reserve(0, kHeadBytes + table_bytes(samples));
    const FileLock lock(store->memory_.descriptor());
    return store->begin(key, samples, limit_bytes) ? store : nullptr;
  };
  for (Descriptor& memory : memories_of_launcher()) {
    struct stat facts {};
    // Large enough for the table and some samples.
    if (::fstat(memory.get(), &facts) != 0 ||
        static_cast<uint64_t>(facts.st_size) < kHeadBytes + table_bytes(samples) + kChunk)
      continue;
    if (auto store = make(net::SharedMemory::open(std::move(memory), "the cache of samples")))
      return store;
  }
  return make(net::SharedMemory::create(bytes, net::Sharing::processes, "the cache of samples"));
}

std::shared_ptr<CacheStore> CacheStore::on_disk(const fs::path& folder, const std::string& key,
                                                int64_t samples, int64_t limit_bytes) {
  const fs::path path = folder / (key.substr(0, 32) + ".cache");
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::io, "data",
                fmt::format("the cache {} cannot be used: {}", path.string(), what),
                "data.cache_dir: a folder that can be written, with enough space");
  };
  std::error_code made;
  fs::create_directories(folder, made);
  if (made) refuse(made.message());
  for (int tries = 0; tries < 2; ++tries) {
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) refuse(std::strerror(errno));
    struct statfs system {};
    if (::fstatfs(file.get(), &system) == 0)
      if (const auto name = records::network_file_system(static_cast<long>(system.f_type));
          !name.empty())
        refuse(fmt::format("it is on a network file system ({}), on which hosts would share it",
                           name));
    const FileLock lock(file.get());
    const uint64_t bytes = kHeadBytes + table_bytes(samples) +
                           static_cast<uint64_t>(std::max<int64_t>(0, limit_bytes));
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) refuse(std::strerror(errno));
    if (facts.st_size == 0 && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
      refuse(std::strerror(errno));
    // A duplicate, because the lock goes with the descriptor that took it.
    Descriptor mapped(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    if (!mapped) refuse(std::strerror(errno));
    const bool is_long_enough = facts.st_size == 0 || static_cast<uint64_t>(facts.st_size) >=
                                                          kHeadBytes + table_bytes(samples);
    if (is_long_enough) {
      std::shared_ptr<CacheStore> store(new CacheStore(
          net::SharedMemory::open(std::move(mapped), "the cache of samples", folder.string()),
          samples, true));
      store->memory_.reserve(0, kHeadBytes + table_bytes(samples));
      if (store->begin(key, samples, limit_bytes)) {
        const uint64_t end = store->end_of_samples();
        uint64_t next = store->header().next.load();
        while (next < end && !store->header().next.compare_exchange_weak(next, end)) continue;
        store->header().full = 0;  // There may be space again.
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

// The file may have been cut by somebody else: its end would end this process by SIGBUS.
bool CacheStore::is_intact() const {
  if (!is_file_) return true;
  struct stat facts {};
  return ::fstat(memory_.descriptor(), &facts) == 0 &&
         static_cast<uint64_t>(facts.st_size) >= memory_.bytes();
}

bool CacheStore::find(int64_t index, int64_t stamp, CachedSample& sample) const {
  if (index < 0 || index >= samples_ || !is_intact()) return false;
  const uint64_t at = slot(index).load(std::memory_order_acquire);
  const Header& head = header();
  const uint64_t begin = kHeadBytes + table_bytes(samples_);
  if (at < begin || head.limit < begin + sizeof(EntryHead) || at > head.limit - sizeof(EntryHead))
    return false;
  EntryHead entry;
  std::memcpy(&entry, memory_.data() + at, sizeof entry);
  if (entry.index != index || entry.stamp != stamp) return false;
  const uint64_t pixels = uint64_t{entry.height} * entry.width * entry.channels;
  const uint64_t room = head.limit - at - sizeof entry;
  if (pixels > room || entry.target_bytes > room - pixels) return false;
  const std::byte* const content = memory_.data() + at + sizeof entry;
  const size_t content_bytes = static_cast<size_t>(pixels) + entry.target_bytes;
  if (is_file_ && entry.digest_with(content, content_bytes) != entry.digest) return false;
  sample = {entry.height,
            entry.width,
            entry.channels,
            {content, static_cast<size_t>(pixels)},
            {content + pixels, entry.target_bytes}};
  hits_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Provides memory for [from, end) in whole pieces. Whoever needs a piece first provides it; twice
// does no harm.
bool CacheStore::provide(uint64_t from, uint64_t end) {
  Header& head = header();
  uint64_t known = head.provided.load();
  if (end <= known) return true;
  const uint64_t first = std::min(from, known) / kChunk * kChunk;
  const uint64_t until = std::min<uint64_t>(memory_.bytes(), (end + kChunk - 1) / kChunk * kChunk);
  try {
    memory_.reserve(first, until - first);
  } catch (const Error& error) {
    if (head.full.exchange(1) == 0)
      log_warning("the cache of samples ends at {} samples: {}", stored(), parts_of(error).what);
    return false;
  }
  while (known < until && !head.provided.compare_exchange_weak(known, until)) continue;
  return true;
}

void CacheStore::add(int64_t index, int64_t stamp, const CachedSample& sample) {
  if (index < 0 || index >= samples_ || !is_intact()) return;
  Header& head = header();
  if (head.full.load(std::memory_order_relaxed) != 0) return;
  const uint64_t content = sample.pixels.size() + sample.target.size();
  const uint64_t bytes = aligned(sizeof(EntryHead) + content);
  const uint64_t old = slot(index).load(std::memory_order_acquire);
  CachedSample there;
  if (old != 0 && find(index, stamp, there)) return;
  uint64_t at = head.next.load();
  do {
    if (at > head.limit || bytes > head.limit - at) {
      head.full = 1;
      return;
    }
  } while (!head.next.compare_exchange_weak(at, at + bytes));
  if (!provide(at, at + bytes)) return;
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
    if (at < end || at > header().limit - sizeof(EntryHead)) continue;
    EntryHead entry;
    std::memcpy(&entry, memory_.data() + at, sizeof entry);
    end = std::max(
        end, at + aligned(sizeof entry + uint64_t{entry.height} * entry.width * entry.channels +
                          entry.target_bytes));
  }
  return std::min<uint64_t>(end, header().limit);
}

int64_t CacheStore::stored() const { return static_cast<int64_t>(header().stored.load()); }
int64_t CacheStore::bytes() const {
  return static_cast<int64_t>(header().next.load() - kHeadBytes - table_bytes(samples_));
}
bool CacheStore::is_full() const { return header().full.load() != 0; }

HostCaches::HostCaches(int count, int64_t bytes_of_each) {
  for (int i = 0; i < count; ++i) {
    memories_.push_back(net::SharedMemory::create(static_cast<size_t>(bytes_of_each),
                                                  net::Sharing::processes, "caches of samples"));
    memories_.back().seal_size();
  }
}

std::string HostCaches::variable() const {
  std::string text = fmt::format("{}:", ::getpid());
  for (const net::SharedMemory& memory : memories_)
    text += fmt::format("{}{}", text.ends_with(':') ? "" : ",", memory.descriptor());
  return text;
}

}  // namespace trireme::data
