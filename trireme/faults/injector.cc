#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/faults/injector.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>
#include <utility>

namespace trireme {
namespace {

// A stopped process cannot wake itself, so a child does that. The child only waits, holds none of
// our descriptors, and ends with us.
void stop_for(Milliseconds duration) {
  const pid_t self = getpid();
  const timespec wait{duration.count() / 1000, duration.count() % 1000 * 1'000'000};
  const pid_t waker = duration.count() > 0 ? fork() : 0;
  if (duration.count() > 0 && waker == 0) {
    syscall(SYS_close_range, 0u, ~0u, 0u);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(0);
    nanosleep(&wait, nullptr);
    // The first SIGCONT may come before the stop.
    for (const timespec again{0, 10'000'000}; getppid() == self; nanosleep(&again, nullptr))
      kill(self, SIGCONT);
    _exit(0);
  }
  if (waker < 0)
    throw Error(ErrorCode::io, "inject",
                fmt::format("cannot start the process that ends a stop of {} ms: {}",
                            duration.count(), std::strerror(errno)),
                "a higher limit of processes (ulimit -u)");
  raise(SIGSTOP);
  if (waker <= 0) return;
  kill(waker, SIGKILL);
  waitpid(waker, nullptr, 0);
}

[[noreturn]] void refuse_mark(const std::filesystem::path& mark, const std::string& reason) {
  throw Error(ErrorCode::io, "inject",
              fmt::format("cannot leave the mark {}: {}", mark.string(), reason),
              "a checkpoint.dir that can be written");
}

}  // namespace

FaultActions process_actions() {
  FaultActions actions;
  actions.kill = [] { raise(SIGKILL); };
  actions.stop = stop_for;
  actions.sleep = [](Milliseconds duration) { std::this_thread::sleep_for(duration); };
  return actions;
}

Injector::Injector(std::vector<Fault> schedule, std::filesystem::path marks, FaultActions actions)
    : marks_(std::move(marks)), actions_(std::move(actions)) {
  const auto require = [](const Fault& fault, bool there, std::string_view remedy) {
    if (!there)
      throw Error(ErrorCode::unsupported, "inject",
                  fmt::format("'{}' cannot be done in this run", fault.text()), remedy);
  };
  std::map<std::string, int> alike;
  for (Fault& fault : schedule) {
    if (fault.kind == FaultKind::drop)
      require(fault, static_cast<bool>(actions_.drop_link),
              "a backend with connections: comm.backend=tcp");
    if (fault.kind == FaultKind::disk_full)
      require(fault, static_cast<bool>(actions_.fill_disk), "a run that writes checkpoints");
    if (fault.kind == FaultKind::corrupt)
      require(fault, static_cast<bool>(actions_.corrupt), "a run of the Trainer");
    const std::string text = fault.text();
    const std::string name =
        "fault-" + sha256_hex(fmt::format("{} #{}", text, ++alike[text])).substr(0, 16);
    entries_.push_back({std::move(fault), name});
  }
}

void Injector::at(int rank, Phase phase, int64_t step) {
  for (Entry& entry : entries_) {
    if (entry.struck || !is_due(entry.fault, rank, phase, step)) continue;
    if (entry.fault.kind == FaultKind::slow || claim(entry, rank)) strike(entry, rank, step);
  }
}

// The process that creates the file is the one that the fault strikes. Both ends of a
// link shut their side.
bool Injector::claim(Entry& entry, int rank) {
  entry.struck = true;
  if (marks_.empty()) return true;
  std::error_code error;
  std::filesystem::create_directories(marks_, error);
  if (error) refuse_mark(marks_, error.message());
  const bool of_an_end = entry.fault.kind == FaultKind::drop;
  const std::filesystem::path mark =
      marks_ / (of_an_end ? fmt::format("{}-{}", entry.mark, rank) : entry.mark);
  const int file = open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) refuse_mark(mark, std::strerror(errno));
  const std::string text = entry.fault.text() + "\n";
  // The text is only for people.
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  if (!written) log_warning("the mark {} is empty", mark.string());
  return true;
}

void Injector::strike(Entry& entry, int rank, int64_t step) const {
  const Fault& fault = entry.fault;
  if (actions_.tell && !std::exchange(entry.told, true)) actions_.tell(fault, step);
  if (fault.kind == FaultKind::slow) return actions_.sleep(fault.duration);
  log_warning("injected at step {}: {}", step, fault.text());
  switch (fault.kind) {
    case FaultKind::kill: return actions_.kill();
    case FaultKind::stop: return actions_.stop(fault.duration);
    case FaultKind::corrupt: return actions_.corrupt(step);
    case FaultKind::drop: return actions_.drop_link(rank == fault.rank ? fault.peer : fault.rank);
    case FaultKind::disk_full: return actions_.fill_disk();
    case FaultKind::slow:
    case FaultKind::random: return;
  }
}

}  // namespace trireme
