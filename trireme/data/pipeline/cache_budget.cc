#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/data/pipeline/cache_budget.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

namespace trireme::data {
namespace {

constexpr size_t kBudgetBytes = 4096;
// The tables of samples come on top. Only what is used takes memory.
constexpr int64_t kRoomForTables = int64_t{256} << 20;
net::MemoryUse use_of_caches() { return {"caches of samples", kRemedyOfCaches}; }

// The caches of which another process has told.
struct Told {
  std::mutex mutex;
  std::string value;
};
Told& told() {
  static Told caches;
  return caches;
}

std::string value_of_host() {
  Told& caches = told();
  const std::lock_guard lock(caches.mutex);
  if (!caches.value.empty()) return caches.value;
  const char* const text = std::getenv(kCacheVariable);
  return text ? text : "";
}

}  // namespace

struct CacheBudget::Account {
  static constexpr uint64_t kMark = 0x7472'6972'6361'6368;
  uint64_t mark;
  std::atomic<int64_t> limit, taken;
};

bool CacheBudget::is_account(const net::SharedMemory& memory) {
  return memory.bytes() >= sizeof(Account) &&
         reinterpret_cast<const Account*>(memory.data())->mark == Account::kMark;
}

// The memory is zeroed.
void CacheBudget::begin_account(const net::SharedMemory& memory, int64_t limit) {
  auto& account = *reinterpret_cast<Account*>(memory.data());
  account.mark = Account::kMark;
  account.limit = limit;
}

void use_caches_of(const std::string& value) {
  Told& caches = told();
  const std::lock_guard lock(caches.mutex);
  caches.value = value;
}

std::vector<Descriptor> memories_of_host() {
  std::vector<Descriptor> memories;
  const std::string value = value_of_host();
  const size_t colon = value.find(':');
  if (colon == std::string::npos) return memories;
  const std::string process = value.substr(0, colon);
  for (size_t at = colon + 1; at < value.size();) {
    const size_t end = std::min(value.find(',', at), value.size());
    const std::string path = fmt::format("/proc/{}/fd/{}", process, value.substr(at, end - at));
    Descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    // The number of a process that is gone may belong to another one.
    const int seals = memory ? ::fcntl(memory.get(), F_GET_SEALS) : -1;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return {};
    memories.push_back(std::move(memory));
    at = end + 1;
  }
  return memories;
}

CacheBudget::Account& CacheBudget::account() const {
  return *reinterpret_cast<Account*>(memory_.data());
}

std::shared_ptr<CacheBudget> CacheBudget::shared(net::SharedMemory memory) {
  return std::shared_ptr<CacheBudget>(new CacheBudget(std::move(memory)));
}

std::shared_ptr<CacheBudget> CacheBudget::of_process(int64_t limit_bytes) {
  net::SharedMemory memory =
      net::SharedMemory::create(kBudgetBytes, net::Sharing::threads, use_of_caches());
  begin_account(memory, std::max<int64_t>(0, limit_bytes));
  return shared(std::move(memory));
}

void CacheBudget::find_host() {
  std::call_once(found_, [this] {
    std::vector<Descriptor> memories = memories_of_host();
    if (memories.empty()) return;
    net::SharedMemory of_host =
        net::SharedMemory::open(std::move(memories.front()), use_of_caches());
    if (is_account(of_host)) memory_ = std::move(of_host);
  });
}

bool CacheBudget::take(int64_t bytes) {
  Account& account = this->account();
  int64_t taken = account.taken.load();
  do {
    if (bytes > account.limit - taken) return false;
  } while (!account.taken.compare_exchange_weak(taken, taken + bytes));
  return true;
}

void CacheBudget::give_back(int64_t bytes) { account().taken -= bytes; }

int64_t CacheBudget::limit() const { return account().limit; }
int64_t CacheBudget::taken() const { return account().taken; }

bool CacheBudget::plan(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > std::min(own_limit_, limit()) - planned_) return false;
  planned_ += bytes;
  return true;
}

HostCaches::HostCaches(int count, int64_t bytes) {
  const auto add = [&](int64_t size) {
    memories_.push_back(net::SharedMemory::create(static_cast<size_t>(size),
                                                  net::Sharing::processes, use_of_caches()));
    memories_.back().seal_size();
  };
  add(kBudgetBytes);
  memories_.front().reserve(0, kBudgetBytes);
  CacheBudget::begin_account(memories_.front(), bytes);
  for (int i = 0; i < count; ++i) add(bytes + kRoomForTables);
}

std::string HostCaches::variable() const {
  std::string text = fmt::format("{}:", ::getpid());
  for (const net::SharedMemory& memory : memories_)
    text += fmt::format("{}{}", text.ends_with(':') ? "" : ",", memory.descriptor());
  return text;
}

}  // namespace trireme::data
