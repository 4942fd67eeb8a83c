#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/launch/end_watch.h>
#include <trireme/membership/lookup.h>
#include <trireme/membership/protocol.h>
#include <trireme/net/control.h>

namespace trireme::launch {
namespace {

constexpr Milliseconds kLookWhetherEnded{50};

}  // namespace

EndWatch::EndWatch(net::Endpoint coordinator, std::optional<net::EtcdUrl> etcd, std::string token,
                   Milliseconds patience)
    : coordinator_(std::move(coordinator)),
      etcd_(std::move(etcd)),
      token_(std::move(token)),
      patience_(patience),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void EndWatch::watch(const std::stop_token& stop) {
  const auto stopped = [&stop] { return stop.stop_requested(); };
  const auto throw_if_stopped = [&stopped] {
    if (stopped()) throw Error(ErrorCode::aborted, "launch", "the job ends");
  };
  try {
    const Deadline deadline = Deadline::after(patience_);
    const net::Endpoint where =
        etcd_ ? membership::CoordinatorLookup(*etcd_).wait(token_, deadline, stopped)
              : coordinator_;
    net::ControlClient client(where, token_,
                              {.received =
                                   [this](const Json& message) {
                                     if (message.at("op") == "finish") over_ = true;
                                   },
                               .closed = [this](const std::string&) { over_ = true; }},
                              deadline, {.throw_if_hopeless = throw_if_stopped});
    client.send({{"op", "watch"}, {"generation", membership::kNoGeneration}});
    for (bool told = false; !stop.stop_requested() && !over_;
         std::this_thread::sleep_for(kLookWhetherEnded)) {
      if (told || !ended_) continue;
      client.send({{"op", "ended"}, {"generation", membership::kNoGeneration}});
      told = true;
    }
  } catch (const Error& error) {
    if (!stop.stop_requested())
      log_warning("launch: side tasks end with the workers of this node: {}", error.what());
    over_ = true;
  }
}

}  // namespace trireme::launch
