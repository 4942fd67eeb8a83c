#include <c10/core/CPUAllocator.h>

#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/swap_file.h>
#include <trireme/tensor/swap_store.h>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

// The memory of a storage, and its count. The count ends before the memory does.
struct SwapRoom {
  c10::Storage storage;
  ActivationBytes::Hold hold;
};

// Memory that O_DIRECT can read into: that of freed tensors, if it begins at a page.
c10::Storage storage_for(int64_t bytes) {
  const auto size = c10::Storage::use_byte_size_t();
  // Backward may offer memory for gradients of parameters.
  const AllocationScope ordinary(nullptr);
  if (c10::DataPtr data = c10::GetCPUAllocator()->allocate(static_cast<size_t>(swap_bytes(bytes)));
      reinterpret_cast<uintptr_t>(data.get()) % kSwapBlock == 0)
    return c10::Storage(size, static_cast<size_t>(bytes), std::move(data), /*allocator=*/nullptr,
                        /*resizable=*/false);
  std::byte* const memory = aligned_bytes(bytes).release();
  const auto free = [](void* data) { FreeAligned()(static_cast<std::byte*>(data)); };
  return c10::Storage(size, static_cast<size_t>(bytes),
                      c10::DataPtr(memory, memory, free, c10::Device(c10::kCPU)),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

// The runs of blocks and the storages in them count up in the order of forward.
struct SwapKey {
  int64_t run = 0, number = 0;
  auto operator<=>(const SwapKey&) const = default;
};

// A storage that was put. All members are guarded by the store's mutex, but a copy reads or writes
// the memory of a storage without it.
struct Swapped {
  enum class Copy { none, waits, writing, reading };
  SwapKey key;
  int block = 0;
  int64_t bytes = 0;
  int64_t place = -1;  // In the file; -1: nowhere yet.
  Copy copy = Copy::waits;
  SwapRoom room;  // Empty while the storage is only in the file.
  bool is_forgotten = false;
  bool is_ahead = false;  // The store's thread reads it.

  bool is_here() const { return static_cast<bool>(room.storage); }
  // Whether nothing but the store has the memory, so that it can become free.
  bool is_alone() const { return is_here() && room.storage.use_count() == 1; }
};
using SwapCopy = Swapped::Copy;

// The state that the replica's thread and the store's share.
class SwapWork {
 public:
  SwapWork(const SwapOptions& options, std::shared_ptr<ActivationBytes> bytes)
      : read_from_(options.read_from), bytes_(std::move(bytes)), file_(options.folder) {}

  int64_t begin_forward(int block);
  void begin_backward(int block, int64_t run);
  std::shared_ptr<Swapped> put(c10::Storage storage);
  c10::Storage get(const std::shared_ptr<Swapped>& entry);
  void forget(const std::shared_ptr<Swapped>& entry);
  // Takes the memory of one storage, and waits for its copy if need be. Returns false if no
  // storage can give its memory.
  bool make_room();
  void run();
  void end();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Entry = std::shared_ptr<Swapped>;

  void write(Lock& lock, const Entry& entry);
  void read(Lock& lock, const Entry& entry, SwapRoom room);
  Entry next_read() const;
  SwapRoom room_ahead(const Entry& entry) const;
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  const std::vector<int> read_from_;
  const std::shared_ptr<ActivationBytes> bytes_;
  SwapFile file_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool ends_ = false;
  std::exception_ptr error_;
  SwapKey next_;        // For the storage that is put next.
  int forward_ = 0;     // The block that saves.
  int backward_ = 0;    // The block that backward has reached.
  SwapKey read_below_;  // Reads go down from here; nothing is below the first key.
  std::map<SwapKey, Entry> entries_;
  std::deque<Entry> writes_;
};

int64_t SwapWork::begin_forward(int block) {
  const Lock lock(mutex_);
  forward_ = block;
  next_ = {next_.run + 1, 0};
  read_below_ = {};
  return next_.run;
}

void SwapWork::begin_backward(int block, int64_t run) {
  const Lock lock(mutex_);
  backward_ = block;
  read_below_ = {run + 1, 0};
  if (next_read()) work_.notify_one();
}

std::shared_ptr<Swapped> SwapWork::put(c10::Storage storage) {
  auto entry = std::make_shared<Swapped>();
  entry->bytes = static_cast<int64_t>(storage.nbytes());
  entry->room.hold = bytes_->hold(storage);
  entry->room.storage = std::move(storage);
  const Lock lock(mutex_);
  rethrow();
  entry->key = next_;
  ++next_.number;
  entry->block = forward_;
  entries_.emplace(entry->key, entry);
  writes_.push_back(entry);
  work_.notify_one();
  return entry;
}

c10::Storage SwapWork::get(const Entry& entry) {
  {
    Lock lock(mutex_);
    rethrow();
    read_below_ = entry->key;
    if (next_read()) work_.notify_one();
    done_.wait(lock, [&] { return error_ || entry->copy != SwapCopy::reading; });
    rethrow();
    if (entry->is_here()) return entry->room.storage;
    entry->copy = SwapCopy::reading;
  }
  // The store's thread may be in a long write, so this thread reads by itself.
  try {
    SwapRoom room;
    room.storage = storage_for(entry->bytes);
    room.hold = bytes_->hold(room.storage);
    Lock lock(mutex_);
    read(lock, entry, std::move(room));
  } catch (...) {
    const Lock lock(mutex_);
    entry->copy = SwapCopy::none;
    throw;
  }
  return entry->room.storage;
}

bool SwapWork::make_room() {
  SwapRoom gone;  // Its memory goes without the mutex.
  Lock lock(mutex_);
  for (;;) {
    rethrow();
    bool is_coming = false;
    for (const auto& [key, entry] : entries_) {
      const bool is_read_ahead = entry->copy == SwapCopy::reading && entry->is_ahead;
      if (!entry->is_alone() && !is_read_ahead) continue;
      if (entry->copy == SwapCopy::none) {
        gone = std::exchange(entry->room, SwapRoom());
        return true;
      }
      is_coming = true;
    }
    if (!is_coming) return false;
    done_.wait(lock);
  }
}

void SwapWork::forget(const Entry& entry) {
  SwapRoom gone;
  const Lock lock(mutex_);
  entries_.erase(entry->key);
  entry->is_forgotten = true;
  work_.notify_one();
  // A copy that has begun ends first.
  if (entry->copy == SwapCopy::writing || entry->copy == SwapCopy::reading) return;
  if (entry->copy == SwapCopy::waits) std::erase(writes_, entry);
  if (entry->place >= 0) file_.give_back(entry->place, entry->bytes);
  gone = std::move(entry->room);
}

// The storage that backward needs next of those that are not here, if its time has come.
SwapWork::Entry SwapWork::next_read() const {
  for (auto next = entries_.lower_bound(read_below_); next != entries_.begin();) {
    const Entry& entry = (--next)->second;
    if (entry->is_here() || entry->copy == SwapCopy::reading) continue;
    const auto block = static_cast<size_t>(entry->block);
    const int from = block < read_from_.size() ? read_from_[block] : entry->block;
    return backward_ <= from ? entry : nullptr;
  }
  return nullptr;
}

SwapRoom SwapWork::room_ahead(const Entry& entry) const {
  SwapRoom room;
  room.storage = storage_for(entry->bytes);
  room.hold = bytes_->try_hold(room.storage);
  return room;
}

void SwapWork::run() {
  Lock lock(mutex_);
  while (!ends_) {
    try {
      if (const Entry entry = next_read())
        if (SwapRoom room = room_ahead(entry); room.hold) {
          entry->copy = SwapCopy::reading;
          entry->is_ahead = true;
          read(lock, entry, std::move(room));
          entry->is_ahead = false;
          done_.notify_all();
          continue;
        }
      if (writes_.empty()) {
        work_.wait(lock);
        continue;
      }
      const Entry entry = writes_.front();
      writes_.pop_front();
      write(lock, entry);
      done_.notify_all();
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      error_ = std::current_exception();
      done_.notify_all();
      return;
    }
  }
}

void SwapWork::write(Lock& lock, const Entry& entry) {
  entry->copy = SwapCopy::writing;
  const int64_t place = file_.take(entry->bytes);
  const auto* const data = static_cast<const std::byte*>(entry->room.storage.data());
  lock.unlock();
  file_.write(place, data, entry->bytes);
  lock.lock();
  entry->place = place;
  entry->copy = SwapCopy::none;
  if (!entry->is_forgotten) return;
  file_.give_back(place, entry->bytes);
  const SwapRoom gone = std::move(entry->room);
}

void SwapWork::read(Lock& lock, const Entry& entry, SwapRoom room) {
  lock.unlock();
  file_.read(entry->place, static_cast<std::byte*>(room.storage.mutable_data()), entry->bytes);
  lock.lock();
  entry->copy = SwapCopy::none;
  if (entry->is_forgotten)
    file_.give_back(entry->place, entry->bytes);
  else
    entry->room = std::move(room);
}

void SwapWork::end() {
  const Lock lock(mutex_);
  ends_ = true;
  work_.notify_all();
}

class FileStore : public SwapStore, public std::enable_shared_from_this<FileStore> {
 public:
  FileStore(const SwapOptions& options, std::shared_ptr<ActivationBytes> bytes)
      : least_bytes_(options.least_bytes),
        work_(options, std::move(bytes)),
        thread_([this] { work_.run(); }) {}
  ~FileStore() override {
    work_.end();
    thread_.join();
  }

  int64_t begin_forward(int block) override { return work_.begin_forward(block); }
  void begin_backward(int block, int64_t run) override { work_.begin_backward(block, run); }
  bool takes(int64_t bytes, at::ScalarType) const override { return bytes >= least_bytes_; }
  std::unique_ptr<StoredStorage> put(c10::Storage storage) override;
  SwapWork& work() { return work_; }

 private:
  int64_t least_bytes_;
  SwapWork work_;
  std::thread thread_;
};

// The store lives as long as a graph that needs it.
class SwappedStorage : public StoredStorage {
 public:
  SwappedStorage(std::shared_ptr<FileStore> store, std::shared_ptr<Swapped> entry)
      : store_(std::move(store)), entry_(std::move(entry)) {}
  ~SwappedStorage() override { store_->work().forget(entry_); }
  c10::Storage get() override { return store_->work().get(entry_); }

 private:
  std::shared_ptr<FileStore> store_;
  std::shared_ptr<Swapped> entry_;
};

std::unique_ptr<StoredStorage> FileStore::put(c10::Storage storage) {
  return std::make_unique<SwappedStorage>(shared_from_this(), work_.put(std::move(storage)));
}

}  // namespace

SwapSpeed measure_swap(const std::string& folder) {
  constexpr int64_t kTested = 32 << 20;
  SwapFile file(folder);
  const AlignedBytes memory = aligned_bytes(kTested);
  std::memset(memory.get(), 1, kTested);
  const int64_t place = file.take(kTested);
  const auto rate_of = [&](auto&& copy) {
    const auto start = std::chrono::steady_clock::now();
    copy();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return static_cast<double>(kTested) / std::max(took.count(), 1e-9);
  };
  SwapSpeed speed;
  speed.out_bytes_per_second = rate_of([&] { file.write(place, memory.get(), kTested); });
  speed.in_bytes_per_second = rate_of([&] { file.read(place, memory.get(), kTested); });
  return speed;
}

std::shared_ptr<SwapStore> make_swap_store(const SwapOptions& options,
                                           std::shared_ptr<ActivationBytes> bytes) {
  const auto store = std::make_shared<FileStore>(options, bytes);
  bytes->set_limit(options.limit_bytes, [weak = std::weak_ptr(store)] {
    const auto living = weak.lock();
    return living && living->work().make_room();
  });
  return store;
}

}  // namespace trireme
