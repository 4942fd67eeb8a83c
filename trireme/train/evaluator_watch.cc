#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/roles.h>
#include <trireme/train/evaluator_watch.h>

namespace trireme {
namespace {

constexpr Milliseconds kAskAgain{100};

bool has_role(World& world, const std::string& role) {
  // A process alone has met nobody.
  if (world.identity().launcher == membership::Launcher::alone) return false;
  try {
    world.peers(role);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void EvaluatorWatch::begin() {
  end();
  if (!has_role(world_, membership::kEvaluatorRole)) return;
  // It may join later than a short run ends.
  if (!world_.identity().evaluator_is_unlisted) is_there_ = true;
  ending_ = false;
  thread_ = std::thread([this] { watch(); });
}

void EvaluatorWatch::ask() {
  if (thread_.joinable()) look();
}

void EvaluatorWatch::end() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

Json EvaluatorWatch::found() const {
  const std::lock_guard lock(mutex_);
  return found_;
}

void EvaluatorWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    const bool goes_on = look();
    lock.lock();
    if (!goes_on) return;
    ends_.wait_for(lock, kAskAgain, [this] { return ending_; });
  }
}

// Returns false if there is nobody to ask: the generation is over, and training notices it itself.
bool EvaluatorWatch::look() {
  try {
    if (!is_there_) is_there_ = !world_.peers(membership::kEvaluatorRole).empty();
    const auto text = world_.find_value(kEvaluatorKey);
    if (!text) return true;
    Json found = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!found.is_object()) return true;
    is_there_ = true;
    if (found.contains("stop")) wants_stop_ = true;
    const std::lock_guard lock(mutex_);
    found_ = std::move(found);
    return true;
  } catch (const Error& error) {
    log_debug("nothing is heard of the evaluator any more: {}", error.what());
    return false;
  }
}

}  // namespace trireme
