// A process of an elastic job that only takes part in the rendezvous.
#pragma once
#include <trireme/membership/arrival.h>
#include <trireme/membership/lookup.h>
#include <optional>

#include "job.h"

namespace trireme::membership {

struct Standing {
  explicit Standing(int64_t number, const std::optional<net::EtcdUrl>& where = {})
      : process(number), standby(std::make_unique<Coordinator>(kAnyPort, kToken, where)) {
    if (where) lookup.emplace(*where);
  }
  void arrive(int64_t step, Deadline deadline = soon()) {
    arrival = std::make_unique<Arrival>(
        coordinator, kToken,
        Arrival::Newcomer{process, step, "", [this](const auto&) { return standby->endpoint(); }},
        former, deadline, lookup ? &*lookup : nullptr);
  }
  Arrival::Place place() {
    const auto told = arrival->wait(soon());
    coordinator = arrival->coordinator();
    former = told->former;
    return *told;
  }
  const int64_t process;
  net::Endpoint coordinator;  // The coordinator that it asks first, unless etcd names one.
  std::optional<CoordinatorLookup> lookup;
  std::optional<Former> former;
  std::unique_ptr<Coordinator> standby;
  std::unique_ptr<Arrival> arrival;
};

}  // namespace trireme::membership
