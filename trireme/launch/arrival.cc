#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/launch/arrival.h>
#include <condition_variable>
#include <mutex>

namespace trireme::launch {

struct Arrival::Impl {
  net::Endpoint coordinator;
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  std::optional<Json> noted, placed;
  std::optional<std::string> closed;
  std::unique_ptr<net::ControlClient> client;  // Last: its thread uses all of the above.

  template <typename Ready>
  void wait_for(Ready ready, const char* what, Deadline deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline.at(), [&] { return ready() || closed; }))
      throw Error(ErrorCode::timeout, "launch",
                  fmt::format("{}: the coordinator at {} did not answer within {}", what, coordinator.describe(),
                              format_duration(deadline.allowed())),
                  "look whether enough workers are left to go on");
    if (!ready())
      throw Error(ErrorCode::peer_lost, "launch",
                  fmt::format("{}: the coordinator at {} is lost: {}", what, coordinator.describe(), *closed),
                  "run the job again; it goes on from its last checkpoint");
  }
};

Arrival::Arrival(const net::Endpoint& coordinator, const std::string& token, int64_t process, int64_t step, const std::string& reason,
                 Deadline deadline)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.coordinator = coordinator;
  const net::ClientEvents events{.received =
                                     [&impl](Json message) {
                                       const std::lock_guard lock(impl.mutex);
                                       (message.at("op") == "noted" ? impl.noted : impl.placed) = std::move(message);
                                       impl.changed.notify_all();
                                     },
                                 .closed =
                                     [&impl](const std::string& why) {
                                       const std::lock_guard lock(impl.mutex);
                                       impl.closed = why;
                                       impl.changed.notify_all();
                                     }};
  impl.client = std::make_unique<net::ControlClient>(coordinator, token, events, deadline);
  impl.client->send({{"op", "arrive"}, {"generation", -1}, {"process", process}, {"step", step}, {"reason", reason}});
  impl.wait_for([&] { return impl.noted || impl.placed; }, "arriving for the next generation", deadline);
}

Arrival::~Arrival() = default;

std::optional<Arrival::Place> Arrival::wait(Deadline deadline) {
  impl_->wait_for([this] { return impl_->placed.has_value(); }, "waiting for the next generation", deadline);
  const Json& message = *impl_->placed;
  const std::string op = message.at("op").get<std::string>();
  if (op == "dismissed") return std::nullopt;
  if (op == "failed")
    throw Error(ErrorCode::peer_lost, "launch", fmt::format("no next generation: {}", message.at("what").get<std::string>()),
                "run the job again; it goes on from its last checkpoint");
  return Place{message.at("number"), message.at("worker"), message.at("workers"), message.at("step"), message.at("cause")};
}

}  // namespace trireme::launch
