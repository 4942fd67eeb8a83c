#include <trireme/membership/lookup.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/net/control.h>
#include <algorithm>
#include <thread>

namespace trireme::membership {
namespace {

constexpr Milliseconds kAnswer{2000};
constexpr Milliseconds kProbe{1000};
constexpr Milliseconds kLookUpAgain{50};

}  // namespace

std::string coordinator_key(const std::string& job) {
  return fmt::format("/trireme/{}/coordinator", job);
}

std::string address_towards(const net::EtcdUrl& where, Milliseconds patience,
                            const StopAsked& stop_asked) {
  net::Etcd etcd(where.servers);
  for (const Deadline deadline = Deadline::after(patience);;
       std::this_thread::sleep_for(kLookUpAgain)) {
    check_stop(stop_asked);
    try {
      etcd.get(coordinator_key(where.job), Deadline::after(kAnswer));
      return etcd.local_address();
    } catch (const Error& error) {
      if (deadline.expired())
        throw Error(ErrorCode::timeout, "membership",
                    fmt::format("{} has not answered for {}: {}", where.describe(),
                                format_duration(patience), brief(error)),
                    "check that etcd runs and that this host can reach it");
    }
  }
}

void check_stop(const StopAsked& stop_asked) {
  if (stop_asked && stop_asked())
    throw Error(ErrorCode::aborted, "membership", "asked to stop before the job was started");
}

CoordinatorLookup::CoordinatorLookup(net::EtcdUrl where)
    : where_(std::move(where)), etcd_(where_.servers) {}

std::optional<net::Endpoint> CoordinatorLookup::now() {
  try {
    if (const auto entry = etcd_.get(coordinator_key(where_.job), Deadline::after(kAnswer)))
      return net::parse_endpoint(entry->value);
    wrong_ = "no coordinator is published";
    remedy_ = "start node 0 of the job with the same --rendezvous, or check whether it has ended";
  } catch (const Error& error) {
    wrong_ = error.what();
    remedy_ = "the addresses of etcd's servers as this host reaches them";
  }
  return std::nullopt;
}

net::Endpoint CoordinatorLookup::wait(const std::string& token, Deadline deadline,
                                      const StopAsked& stop_asked) {
  for (;; std::this_thread::sleep_for(kLookUpAgain)) {
    check_stop(stop_asked);
    if (const auto found = now()) {
      const net::Reach reach = net::reach(
          *found, token, Deadline::after(std::clamp(deadline.remaining(), kLookUpAgain, kProbe)));
      if (reach == net::Reach::listens || reach == net::Reach::other_job) return *found;
      wrong_ = fmt::format("{} is published there, {}", found->describe(),
                           reach == net::Reach::refused ? "but nothing listens there any more"
                                                        : "but it does not answer");
      remedy_ =
          "check that the job is running and that this host can reach its coordinator's address";
    }
    if (deadline.remaining() > kLookUpAgain) continue;
    throw Error(
        ErrorCode::timeout, "membership",
        fmt::format("the coordinator of job '{}' was not found within {} by {} (key {}): {}",
                    where_.job, format_duration(deadline.allowed()), where_.describe(),
                    coordinator_key(where_.job), wrong_),
        remedy_);
  }
}

}  // namespace trireme::membership
