#include <trireme/checkpoint/folder_lock.h>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/host_name.h>
#include <trireme/base/json.h>
#include <trireme/base/log.h>
#include <cerrno>
#include <ctime>
#include <optional>
#include <thread>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = ".lock";
constexpr Milliseconds kLookAgain{10};
// Time until the state of a lock is reliable. A holder that was killed a moment ago still seems to
// be alive. A lock that was just taken still has the text of its last holder. A process that looks
// at a lock keeps others from taking it for a moment.
constexpr Milliseconds kSettle{500};
// Time for a holder that will release the lock by itself.
constexpr Milliseconds kUntilGone{10'000};

struct Holder {
  ProcessId process;
  std::string host, since;
  watch::JobMark mark;

  static std::optional<Holder> from(const std::string& text) {
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    try {
      return Holder{{json.at("process").get<pid_t>(), json.at("started").get<uint64_t>(),
                     json.at("place").get<std::string>()},
                    json.at("host").get<std::string>(),
                    json.at("since").get<std::string>(),
                    watch::JobMark::from_text(json.at("job").get<std::string>()).value()};
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  static Holder this_process() {
    return {ProcessId::of_this_process(), own_host_name(),
            fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))),
            watch::JobMark::of_this_process()};
  }
  std::string to_text() const {
    return Json{{"process", process.pid}, {"started", process.started},
                {"place", process.place}, {"host", host},
                {"since", since},         {"job", mark.to_text()}}
        .dump();
  }
  std::string describe() const {
    return fmt::format("process {} on host {} since {}", process.pid, host, since);
  }

  bool belongs_to(const watch::JobMark& job) const {
    return !job.job.empty() && mark.job == job.job;
  }
  bool is_orphan() const {
    return mark.launcher.pid != 0 && mark.launcher.is_here() && !mark.launcher.lives();
  }
  // Whether the job is known to be alive: its launcher lives or, if no launcher started it, the
  // process itself.
  bool lives() const { return mark.launcher.pid != 0 ? mark.launcher.lives() : process.lives(); }
};

struct Look {
  bool is_held = false;
  // The present holder, or the last one if its process was killed.
  std::optional<Holder> holder;
};

// Takes a lock that others may have at the same time, so that two processes that look do not
// disturb each other.
Look look_at(const fs::path& lock_file) {
  const Descriptor file(::open(lock_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  const bool is_held = ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  std::string text;
  try {
    text = read_file(lock_file);
  } catch (const Error&) {
    // The holder has just released it.
  }
  return {is_held, Holder::from(text)};
}

std::string name_of(const std::optional<Holder>& holder) {
  return holder ? holder->describe() : "an unknown process";
}

[[noreturn]] void refuse_in_use(const fs::path& folder, const std::optional<Holder>& holder) {
  throw Error(
      ErrorCode::invalid_argument, "checkpoint",
      fmt::format("the folder {} is in use by another job: {}", folder.string(), name_of(holder)),
      "another checkpoint.dir, or wait until that job has ended");
}

[[noreturn]] void give_up_on(const fs::path& folder, const std::optional<Holder>& holder) {
  throw Error(ErrorCode::peer_lost, "checkpoint",
              fmt::format("the folder {} is still held: {}, and this process cannot tell whether "
                          "its job is alive",
                          folder.string(), name_of(holder)),
              "again later, or another checkpoint.dir if it is another job");
}

// Ends the processes that the dead launcher of the holder left behind. Returns false if there are
// none, or if the job has other launchers, which may continue it.
bool ended_orphans(const fs::path& folder, const std::optional<Holder>& holder,
                   Milliseconds grace) {
  if (!holder || !holder->is_orphan() || holder->mark.nodes > 1) return false;
  if (watch::processes_of(holder->mark).empty()) return false;
  log_warning(
      "the launcher (process {}) of {}, which uses the folder {}, is gone: its remaining "
      "processes are asked to save and to end",
      holder->mark.launcher.pid, holder->describe(), folder.string());
  if (!watch::end_orphans(holder->mark, grace)) give_up_on(folder, holder);
  return true;
}

}  // namespace

std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files, const fs::path& folder,
                                              Milliseconds wait) {
  const watch::JobMark own = watch::JobMark::of_this_process();
  const auto settled = Deadline::after(std::max(wait, kSettle));
  const auto gone = Deadline::after(wait > Milliseconds(0) ? wait : kUntilGone);
  for (std::string text;; std::this_thread::sleep_for(kLookAgain)) {
    if (auto lock = files.try_lock(folder / kLockFile, Holder::this_process().to_text(), text))
      return lock;
    const auto holder = Holder::from(text);
    if (own.launcher.lives() && ended_orphans(folder, holder, gone.remaining())) continue;
    if (settled.expired() && holder && !holder->belongs_to(own) && holder->lives())
      refuse_in_use(folder, holder);
    if (gone.expired()) give_up_on(folder, holder);
  }
}

FolderUse make_way(const fs::path& folder, const watch::JobMark& job, Milliseconds grace,
                   bool begins_anew) {
  const auto settled = Deadline::after(kSettle);
  const auto gone = Deadline::after(grace + kUntilGone);
  for (;; std::this_thread::sleep_for(kLookAgain)) {
    const Look look = look_at(folder / kLockFile);
    const auto& holder = look.holder;
    const bool is_of_own = holder && holder->belongs_to(job);
    if (ended_orphans(folder, holder, grace)) continue;
    if (!look.is_held) return {};
    if (is_of_own && begins_anew && !gone.expired()) continue;
    if (is_of_own) return {.by_own_job = true};
    if (settled.expired() && holder && holder->lives()) refuse_in_use(folder, holder);
    if (gone.expired()) give_up_on(folder, holder);
  }
}

}  // namespace trireme::checkpoint
