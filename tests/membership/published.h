// The coordinator that etcd names for the job "job" of a test.
#pragma once
#include <trireme/membership/lookup.h>
#include <trireme/net/etcd.h>

#include "../net/etcd_server.h"
#include "job.h"

namespace trireme::membership {

inline std::string published(const net::EtcdServer& server) {
  const auto entry = net::Etcd({server.endpoint()}).get(coordinator_key("job"), soon());
  return entry ? entry->value : "";
}

// Takes the name like another coordinator, even from a holder.
inline void publish(const net::EtcdServer& server, const net::Endpoint& who,
                    std::chrono::seconds lease) {
  net::Etcd etcd({server.endpoint()});
  const auto entry = etcd.get(coordinator_key("job"), soon());
  ASSERT_TRUE(etcd.replace(coordinator_key("job"), who.describe(), etcd.grant(lease, soon()),
                           entry ? entry->revision : 0, soon()));
}

}  // namespace trireme::membership
