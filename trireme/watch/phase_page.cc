#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/watch/phase_page.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace trireme::watch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMark = 0x7472'6972'656d'6533;  // A page with another layout has another mark.
constexpr size_t kTextWords = 5;  // The longest name has 37 bytes with kOfSomeRanks.
constexpr int kReadings = 100;
constexpr const char* kVariable = "TRIREME_PHASE_PAGE";

// One word holds the values that must belong together: phase 8 bits, inside 1, waits 1, collective
// 14, step 40.
uint64_t packed(const PhaseAt& at) {
  return static_cast<uint64_t>(at.step + 1) << 24 |
         static_cast<uint64_t>(at.collective.number & 0x3fff) << 10 |
         static_cast<uint64_t>(at.collective.waits) << 9 |
         static_cast<uint64_t>(at.collective.inside) << 8 | static_cast<uint64_t>(at.phase);
}
PhaseAt unpacked(uint64_t word) {
  PhaseAt at;
  at.phase = static_cast<Phase>(std::min<uint64_t>(word & 0xff, kPhases - 1));
  at.step = static_cast<int64_t>(word >> 24) - 1;
  at.collective.inside = (word >> 8 & 1) != 0;
  at.collective.waits = (word >> 9 & 1) != 0;
  at.collective.number = static_cast<int64_t>(word >> 10 & 0x3fff);
  return at;
}

// "7:4711": the descriptor and the number of its file. In another process the same descriptor may
// mean another file.
std::string handle_of(int descriptor) {
  struct stat file {};
  return ::fstat(descriptor, &file) == 0 ? fmt::format("{}:{}", descriptor, file.st_ino)
                                         : std::string();
}

}  // namespace

struct PhasePage::Words {
  std::atomic<uint64_t> mark;
  std::atomic<uint64_t> owner;    // The process id of the writer; 0: none.
  std::atomic<uint64_t> version;  // Odd while the words below change.
  std::atomic<uint64_t> place;
  std::atomic<int64_t> since;  // Nanoseconds of the steady clock.
  std::atomic<uint64_t> operation[kTextWords];
  std::atomic<int64_t> bytes;
  std::atomic<int64_t> steps;
  std::atomic<double> seconds[kPhases];
  std::atomic<double> waiting, squares;
  // The number of saves in progress, and the step of the one that began last.
  std::atomic<int64_t> saves, saved_step;
};

PhasePage::PhasePage(net::SharedMemory memory)
    : memory_(std::move(memory)), since_(Clock::now()) {}

PhasePage::PhasePage()
    : PhasePage(
          net::SharedMemory::create(sizeof(Words), net::Sharing::threads, "a worker's phase")) {
  words().mark = kMark;
  words().owner = static_cast<uint64_t>(::getpid());
  publish();
}
PhasePage::~PhasePage() = default;

std::shared_ptr<PhasePage> PhasePage::for_child() {
  auto memory =
      net::SharedMemory::create(sizeof(Words), net::Sharing::processes, "a worker's phase");
  memory.reserve(0, sizeof(Words));
  std::shared_ptr<PhasePage> page(new PhasePage(std::move(memory)));
  page->words().mark = kMark;
  return page;
}

std::string PhasePage::handle() const { return handle_of(descriptor()); }

std::shared_ptr<PhasePage> PhasePage::of_this_process() {
  static std::atomic_flag taken;
  const char* const handle = taken.test_and_set() ? nullptr : std::getenv(kVariable);
  int inherited = -1;
  if (handle != nullptr) std::from_chars(handle, handle + std::strlen(handle), inherited);
  if (inherited > STDERR_FILENO && handle_of(inherited) == handle) {
    ::fcntl(inherited, F_SETFD, FD_CLOEXEC);
    std::shared_ptr<PhasePage> page(
        new PhasePage(net::SharedMemory::open(Descriptor(inherited), "a worker's phase")));
    uint64_t nobody = 0;
    if (page->memory_.bytes() >= sizeof(Words) && page->words().mark == kMark &&
        page->words().owner.compare_exchange_strong(nobody, static_cast<uint64_t>(::getpid()))) {
      page->publish();
      return page;
    }
  }
  return std::make_shared<PhasePage>();
}

PhasePage::Words& PhasePage::words() const { return *reinterpret_cast<Words*>(memory_.data()); }

void PhasePage::turn() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  (at_.collective.waits ? times_.waiting : times_.seconds[static_cast<size_t>(at_.phase)]) +=
      seconds;
  since_ = now;
}

void PhasePage::publish() {
  Words& page = words();
  const uint64_t version = page.version.load(std::memory_order_relaxed);
  page.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  page.place.store(packed(at_), std::memory_order_relaxed);
  page.since.store(std::chrono::nanoseconds(since_.time_since_epoch()).count(),
                   std::memory_order_relaxed);
  if (at_.collective.inside) {
    uint64_t text[kTextWords] = {};
    std::memcpy(text, at_.collective.operation.data(),
                std::min(sizeof text, at_.collective.operation.size()));
    for (size_t i = 0; i < kTextWords; ++i)
      page.operation[i].store(text[i], std::memory_order_relaxed);
    page.bytes.store(at_.collective.bytes, std::memory_order_relaxed);
  }
  page.version.store(version + 2, std::memory_order_release);
}

void PhasePage::tell_times() {
  Words& page = words();
  const uint64_t version = page.version.load(std::memory_order_relaxed);
  page.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  page.steps.store(times_.steps, std::memory_order_relaxed);
  for (size_t i = 0; i < kPhases; ++i)
    page.seconds[i].store(times_.seconds[i], std::memory_order_relaxed);
  page.waiting.store(times_.waiting, std::memory_order_relaxed);
  page.squares.store(times_.squares, std::memory_order_relaxed);
  page.version.store(version + 2, std::memory_order_release);
}

void PhasePage::set(Phase phase, int64_t step) {
  turn();
  if (step != at_.step) begun_ = 0;
  at_.collective.number = begun_;
  const bool begins_step = phase == Phase::data && at_.phase != Phase::data;
  at_.phase = phase;
  at_.step = step;
  at_.collective.inside = at_.collective.waits = false;
  publish();
  if (!begins_step) return;
  times_.steps = steps_begun_++;
  const double work = times_.work() - std::exchange(work_told_, times_.work());
  times_.squares += work * work;
  tell_times();
}
void PhasePage::set(Phase phase) { set(phase, at_.step); }

int64_t PhasePage::next_collective() { return ++begun_; }

void PhasePage::enter(int64_t number, std::string_view operation, int64_t bytes) {
  turn();
  CollectiveAt& now = at_.collective;
  now.number = number;
  now.inside = now.waits = true;
  now.operation.assign(operation);
  now.bytes = bytes;
  publish();
}
void PhasePage::wait_on() {
  turn();
  at_.collective.waits = true;
  publish();
}
void PhasePage::work_on() {
  turn();
  at_.collective.waits = false;
  publish();
}
void PhasePage::leave() {
  turn();
  at_.collective.inside = at_.collective.waits = false;
  at_.collective.number = begun_;
  publish();
}

void PhasePage::begin_save(int64_t step) {
  words().saved_step.store(step, std::memory_order_relaxed);
  words().saves.fetch_add(1, std::memory_order_release);
}
void PhasePage::end_save() { words().saves.fetch_sub(1, std::memory_order_release); }

std::optional<PhaseNow> PhasePage::read() const {
  const Words& page = words();
  if (page.owner.load(std::memory_order_acquire) == 0) return std::nullopt;
  PhaseNow now;
  if (page.saves.load(std::memory_order_acquire) > 0)
    now.saving = page.saved_step.load(std::memory_order_relaxed);
  for (int reading = 0; reading < kReadings; ++reading) {
    const uint64_t before = page.version.load(std::memory_order_acquire);
    now.at = unpacked(page.place.load(std::memory_order_relaxed));
    now.since =
        Clock::time_point(std::chrono::nanoseconds(page.since.load(std::memory_order_relaxed)));
    if (now.at.collective.inside) {
      char text[kTextWords * sizeof(uint64_t) + 1] = {};
      for (size_t i = 0; i < kTextWords; ++i) {
        const uint64_t word = page.operation[i].load(std::memory_order_relaxed);
        std::memcpy(text + i * sizeof word, &word, sizeof word);
      }
      now.at.collective.operation = text;
      now.at.collective.bytes = page.bytes.load(std::memory_order_relaxed);
    }
    now.times.steps = page.steps.load(std::memory_order_relaxed);
    for (size_t i = 0; i < kPhases; ++i)
      now.times.seconds[i] = page.seconds[i].load(std::memory_order_relaxed);
    now.times.waiting = page.waiting.load(std::memory_order_relaxed);
    now.times.squares = page.squares.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && page.version.load(std::memory_order_relaxed) == before) return now;
  }
  now.at.collective.operation.clear();  // It may belong to another moment.
  now.at.collective.bytes = 0;
  return now;
}

}  // namespace trireme::watch
