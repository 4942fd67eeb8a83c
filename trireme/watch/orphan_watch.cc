#include <trireme/watch/orphan_watch.h>

#include <fcntl.h>
#include <trireme/base/descriptor.h>
#include <trireme/watch/stop_request.h>
#include <unistd.h>
#include <csignal>

namespace trireme::watch {
namespace {

constexpr Milliseconds kLook{100};
constexpr Milliseconds kNothingToSave{500};

void discard_output() {
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!nowhere) return;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere.get(), stream);
}

}  // namespace

OrphanWatch::OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace,
                         Milliseconds stop_grace)
    : launcher_(launcher), grace_(grace), stop_grace_(stop_grace) {
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { watch(); });
}

OrphanWatch::~OrphanWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool OrphanWatch::ends_within(Milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return ending_; });
}

void OrphanWatch::watch() {
  while (::getppid() == launcher_)
    if (ends_within(kLook)) return;
  discard_output();
  if (!grace_ || ends_within(*grace_) || has_other_launchers_) return;
  ask_to_stop(::getpid());
  if (ends_within(std::min(kNothingToSave, stop_grace_))) return;
  if (is_member_ && ends_within(stop_grace_)) return;
  ::kill(::getpid(), SIGKILL);
}

}  // namespace trireme::watch
