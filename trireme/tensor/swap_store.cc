#include <trireme/tensor/swap_file.h>
#include <trireme/tensor/swap_store.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

// A storage on its way. All members are guarded by the store's mutex, but the thread reads and
// writes the memory of a storage without it.
struct Swapped {
  enum class State { waiting, writing, out, queued, reading, back };
  State state = State::waiting;
  uint64_t number = 0;  // Storages count up in the order in which forward saves them.
  int64_t bytes = 0;
  int64_t place = -1;          // In the file; -1: it has none.
  c10::Storage storage;        // Empty while it is out.
  ActivationBytes::Hold hold;  // Counts the bytes of the storage.
  c10::weak_intrusive_ptr<c10::StorageImpl> original{c10::intrusive_ptr<c10::StorageImpl>()};
  bool is_ahead = false;  // Counted in ahead_bytes_.
  bool is_forgotten = false;
};
using State = Swapped::State;

// The state that the replica's thread and the store's share.
class SwapWork {
 public:
  SwapWork(const SwapOptions& options, std::shared_ptr<ActivationBytes> bytes)
      : options_(options), bytes_(std::move(bytes)), file_(options.folder) {}

  std::shared_ptr<Swapped> put(c10::Storage storage);
  c10::Storage get(const std::shared_ptr<Swapped>& entry);
  void forget(const std::shared_ptr<Swapped>& entry);
  void run();
  void end();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Entry = std::shared_ptr<Swapped>;
  // Storages whose last owner may be this work. The replica's thread frees them, without the
  // mutex: the allocator keeps a block for the thread that frees it.
  using Released = std::vector<std::pair<c10::Storage, ActivationBytes::Hold>>;

  void write(Lock& lock, const Entry& entry);
  void read(Lock& lock, const Entry& entry);
  c10::Storage storage_for(int64_t bytes);
  void read_ahead(uint64_t before);
  void ask_for(const Entry& entry);
  void no_longer_ahead(Swapped& entry);
  void let_go(Swapped& entry);
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  const SwapOptions options_;
  const std::shared_ptr<ActivationBytes> bytes_;
  SwapFile file_;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool ends_ = false;
  std::exception_ptr error_;
  uint64_t next_number_ = 0;
  std::map<uint64_t, Entry> entries_;
  std::deque<Entry> writes_, reads_;
  int64_t waiting_bytes_ = 0;  // Not yet written.
  int64_t ahead_bytes_ = 0;    // Asked for or read, and not yet forgotten.
  Released released_;
};

// Lets go of the memory of an entry. The caller holds the mutex.
void SwapWork::let_go(Swapped& entry) {
  if (!entry.storage) return;
  released_.emplace_back(std::exchange(entry.storage, c10::Storage()), std::move(entry.hold));
}

void SwapWork::ask_for(const Entry& entry) {
  entry->state = State::queued;
  entry->is_ahead = true;
  ahead_bytes_ += entry->bytes;
  reads_.push_back(entry);
}

void SwapWork::no_longer_ahead(Swapped& entry) {
  if (std::exchange(entry.is_ahead, false)) ahead_bytes_ -= entry.bytes;
}

std::shared_ptr<Swapped> SwapWork::put(c10::Storage storage) {
  Released released;
  Lock lock(mutex_);
  done_.wait(lock, [&] { return error_ || waiting_bytes_ < options_.waiting_bytes; });
  rethrow();
  released.swap(released_);
  auto entry = std::make_shared<Swapped>();
  entry->number = next_number_++;
  entry->bytes = static_cast<int64_t>(storage.nbytes());
  entry->hold = bytes_->hold(storage);
  entry->original = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl()));
  entry->storage = std::move(storage);
  entries_.emplace(entry->number, entry);
  writes_.push_back(entry);
  waiting_bytes_ += entry->bytes;
  work_.notify_one();
  return entry;
}

c10::Storage SwapWork::get(const Entry& entry) {
  Released released;
  Lock lock(mutex_);
  rethrow();
  released.swap(released_);
  if (entry->state == State::waiting) {
    std::erase(writes_, entry);
    waiting_bytes_ -= entry->bytes;
    entry->state = State::back;
  }
  if (!entry->storage && entry->state == State::out)
    if (auto original = entry->original.lock()) {
      entry->storage = c10::Storage(std::move(original));
      entry->hold = bytes_->hold(entry->storage);
      entry->state = State::back;
    }
  if (entry->state == State::out) ask_for(entry);
  read_ahead(entry->number);
  work_.notify_one();
  done_.wait(lock, [&] { return error_ || entry->storage; });
  rethrow();
  return entry->storage;
}

// Asks for the storages that backward needs next.
void SwapWork::read_ahead(uint64_t before) {
  auto next = entries_.lower_bound(before);
  while (next != entries_.begin() && ahead_bytes_ < options_.ahead_bytes) {
    --next;
    const Entry& entry = next->second;
    if (entry->state == State::out && entry->original.expired()) ask_for(entry);
  }
}

void SwapWork::forget(const Entry& entry) {
  Released released;
  const Lock lock(mutex_);
  entries_.erase(entry->number);
  entry->is_forgotten = true;
  if (entry->state == State::waiting) {
    std::erase(writes_, entry);
    waiting_bytes_ -= entry->bytes;
  }
  // The thread ends what it has begun.
  if (entry->state == State::writing || entry->state == State::reading) return;
  if (entry->state == State::queued) std::erase(reads_, entry);
  if (entry->place >= 0) file_.give_back(entry->place, entry->bytes);
  no_longer_ahead(*entry);
  let_go(*entry);
  read_ahead(entry->number);
  released.swap(released_);
  work_.notify_one();
}

void SwapWork::run() {
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return ends_ || !reads_.empty() || !writes_.empty(); });
    if (ends_) return;
    // Backward waits for reads, and what is not written yet is still in memory.
    const bool is_read = !reads_.empty();
    auto& queue = is_read ? reads_ : writes_;
    const Entry entry = queue.front();
    queue.pop_front();
    try {
      is_read ? read(lock, entry) : write(lock, entry);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      error_ = std::current_exception();
      done_.notify_all();
      return;
    }
    done_.notify_all();
  }
}

void SwapWork::write(Lock& lock, const Entry& entry) {
  entry->state = State::writing;
  const int64_t place = file_.take(entry->bytes);
  const auto* const data = static_cast<const std::byte*>(entry->storage.data());
  lock.unlock();
  file_.write(place, data, entry->bytes);
  lock.lock();
  waiting_bytes_ -= entry->bytes;
  entry->place = place;
  entry->state = State::out;
  if (entry->is_forgotten) file_.give_back(place, entry->bytes);
  let_go(*entry);
}

void SwapWork::read(Lock& lock, const Entry& entry) {
  entry->state = State::reading;
  lock.unlock();
  c10::Storage storage = storage_for(entry->bytes);
  file_.read(entry->place, static_cast<std::byte*>(storage.mutable_data()), entry->bytes);
  lock.lock();
  entry->state = State::back;
  if (entry->is_forgotten) {
    no_longer_ahead(*entry);
    file_.give_back(entry->place, entry->bytes);
    return;
  }
  entry->hold = bytes_->hold(storage);
  entry->storage = std::move(storage);
}

c10::Storage SwapWork::storage_for(int64_t bytes) {
  std::byte* const memory = aligned_bytes(bytes).release();
  const auto free = [](void* data) { FreeAligned()(static_cast<std::byte*>(data)); };
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
                      c10::DataPtr(memory, memory, free, c10::Device(c10::kCPU)),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

void SwapWork::end() {
  const Lock lock(mutex_);
  ends_ = true;
  work_.notify_all();
}

class SwapStore : public StoragePlace, public std::enable_shared_from_this<SwapStore> {
 public:
  SwapStore(const SwapOptions& options, std::shared_ptr<ActivationBytes> bytes)
      : least_bytes_(options.least_bytes),
        work_(options, std::move(bytes)),
        thread_([this] { work_.run(); }) {}
  ~SwapStore() override {
    work_.end();
    thread_.join();
  }

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
  SwappedStorage(std::shared_ptr<SwapStore> store, std::shared_ptr<Swapped> entry)
      : store_(std::move(store)), entry_(std::move(entry)) {}
  ~SwappedStorage() override { store_->work().forget(entry_); }
  c10::Storage get() override { return store_->work().get(entry_); }

 private:
  std::shared_ptr<SwapStore> store_;
  std::shared_ptr<Swapped> entry_;
};

std::unique_ptr<StoredStorage> SwapStore::put(c10::Storage storage) {
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

std::shared_ptr<StoragePlace> make_swap_store(const SwapOptions& options,
                                              std::shared_ptr<ActivationBytes> bytes) {
  return std::make_shared<SwapStore>(options, std::move(bytes));
}

}  // namespace trireme
