// The requests of workers and side tasks to their coordinator.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/membership/member_impl.h>
#include <trireme/membership/protocol.h>
#include <trireme/watch/phase_marks.h>
#include <trireme/watch/stop_request.h>

namespace trireme::membership {
namespace {

constexpr Milliseconds kFarewell{5000};

}  // namespace

void Member::agree(const std::string& what, const std::map<std::string, std::string>& facts) {
  impl_->require_worker("agree()");
  const watch::CollectiveMark mark(watch::kAgreement);
  impl_->ask({{"op", "agree"}, {"what", what}, {"facts", facts}},
             fmt::format("comparing '{}' with the other workers", what));
}

void Member::barrier(const std::string& name) {
  impl_->require_worker("barrier()");
  const watch::CollectiveMark mark(watch::kAgreement);
  impl_->ask({{"op", "barrier"}, {"name", name}}, fmt::format("barrier '{}'", name));
}

void Member::set(const std::string& key, const std::string& value) {
  impl_->ask({{"op", "set"}, {"key", key}, {"value", bytes(value)}},
             fmt::format("setting key '{}'", key));
}

std::string Member::get(const std::string& key, Deadline deadline) {
  const Json reply = impl_->request({{"op", "get"}, {"key", key}},
                                    fmt::format("waiting for key '{}'", key), deadline);
  return bytes_from(reply.at("value"));
}

std::optional<std::string> Member::find(const std::string& key) {
  const Json reply =
      impl_->ask({{"op", "find"}, {"key", key}}, fmt::format("looking for key '{}'", key));
  if (!reply.contains("value")) return std::nullopt;
  return bytes_from(reply.at("value"));
}

int64_t Member::add(const std::string& key, int64_t amount) {
  return impl_
      ->ask({{"op", "add"}, {"key", key}, {"amount", amount}},
            fmt::format("adding to key '{}'", key))
      .at("sum")
      .get<int64_t>();
}

std::string Member::compare_set(const std::string& key, const std::string& expected,
                                const std::string& desired) {
  const Json reply = impl_->ask({{"op", "compare_set"},
                                 {"key", key},
                                 {"expected", bytes(expected)},
                                 {"desired", bytes(desired)}},
                                fmt::format("comparing and setting key '{}'", key));
  return bytes_from(reply.at("value"));
}

bool Member::erase(const std::string& key) {
  return impl_->ask({{"op", "erase"}, {"key", key}}, fmt::format("erasing key '{}'", key))
      .at("erased")
      .get<bool>();
}

int64_t Member::count_keys() {
  return impl_->ask({{"op", "count"}}, "counting keys").at("count").get<int64_t>();
}

watch::PhasePage& Member::phases() { return *impl_->options.phases; }

std::optional<LostWorker> Member::lost() const {
  if (!is_lost()) return std::nullopt;
  std::lock_guard lock(impl_->mutex);
  return impl_->lost;
}

bool Member::is_lost() const { return impl_->is_lost; }

void Member::throw_if_lost() const {
  if (!is_lost()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->deadlock) throw impl_->deadlock->error();
  }
  if (const auto who = lost())
    throw Error(ErrorCode::peer_lost, "membership", who->describe(),
                "run the job again; it continues from its last checkpoint");
}

std::vector<TaskPeer> Member::task_peers(const std::string& role) const {
  std::lock_guard lock(impl_->mutex);
  impl_->require_role(role);
  return impl_->tasks.present(role);
}

std::vector<TaskPeer> Member::wait_for(const std::string& role, Deadline deadline) const {
  std::unique_lock lock(impl_->mutex);
  impl_->require_role(role);
  const auto all_there = [&] { return impl_->tasks.missing(role).empty(); };
  impl_->changed.wait_until(lock, deadline.at(),
                            [&] { return all_there() || impl_->lost || impl_->left; });
  if (all_there()) return impl_->tasks.present(role);
  const std::string what = fmt::format("waiting for all tasks of the role '{}'", role);
  if (impl_->lost)
    throw Error(ErrorCode::peer_lost, "membership",
                fmt::format("{}: {}", what, impl_->lost->describe()),
                "run the job again; it continues from its last checkpoint");
  if (impl_->left)
    throw Error(ErrorCode::aborted, "membership",
                fmt::format("{}: {} left the job meanwhile", what, impl_->task.name()));
  throw Error(
      ErrorCode::timeout, "membership",
      fmt::format("{}: after {} these are missing: {}", what, format_duration(deadline.allowed()),
                  enumerate(impl_->tasks.missing(role))),
      "check their output, or allow more time");
}

std::vector<LostTask> Member::lost_tasks() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->tasks.lost();
}

bool Member::finish_wanted() const {
  if (impl_->finish_wanted || impl_->is_worker() || !is_lost()) return impl_->finish_wanted;
  std::lock_guard lock(impl_->mutex);
  // "Finish" may have come just before the connection was closed.
  if (!impl_->coordinator_gone || impl_->left || impl_->finish_wanted) return impl_->finish_wanted;
  throw Error(
      ErrorCode::peer_lost, "membership",
      fmt::format("{} lost the coordinator: {}", impl_->task.name(), impl_->lost->describe()),
      fmt::format("end this process with {}; its launcher replaces it by the role's rule",
                  static_cast<int>(kExitRetry)));
}

int Member::generation() const { return impl_->generation; }
bool Member::regroup_wanted() const { return impl_->regroup_wanted; }
void Member::tell_first_step(int64_t step, const Json& facts) {
  impl_->send({{"op", "stepped"}, {"step", step}, {"facts", facts}});
}
Json Member::generations() {
  impl_->require_worker("generations()");
  return impl_->ask({{"op", "generations"}}, "asking for the job's generations").at("generations");
}

void Member::tell_event(monitor::Told told) { impl_->options.events->add(std::move(told)); }
void Member::send_events() { impl_->send_events(); }

Json Member::times() {
  return impl_->ask({{"op", "times"}}, "asking for the workers' times").at("times");
}

double Member::coordinator_cpu_seconds() {
  return impl_->ask({{"op", "cpu_seconds"}}, "asking for the coordinator's CPU time")
      .at("seconds")
      .get<double>();
}

void Member::leave() {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->left) return;
    impl_->left = true;
    impl_->changed.notify_all();
  }
  impl_->stop_heart();
  // The coordinator must know where this worker left.
  if (const auto now = impl_->options.phases->read())
    impl_->send(beat_message(*now, std::chrono::steady_clock::now()));
  impl_->send_events();
  impl_->send({{"op", "goodbye"}, {"stopped", watch::stop_requested.load()}});
  impl_->client->close(Deadline::after(std::min(impl_->options.timeout, kFarewell)));
}

}  // namespace trireme::membership
