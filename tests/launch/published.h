// Who etcd says coordinates the job "job" of a test.
#pragma once
#include <trireme/launch/lookup.h>
#include <trireme/net/etcd.h>

#include "../net/etcd_server.h"
#include "job.h"

namespace trireme::launch {

inline std::string published(const net::EtcdServer& server) {
  const auto entry = net::Etcd({server.endpoint()}).get(coordinator_key("job"), soon());
  return entry ? entry->value : "";
}

// As another coordinator would that takes the name, whoever has it.
inline void publish(const net::EtcdServer& server, const net::Endpoint& who,
                    std::chrono::seconds lease) {
  net::Etcd etcd({server.endpoint()});
  const auto entry = etcd.get(coordinator_key("job"), soon());
  ASSERT_TRUE(etcd.replace(coordinator_key("job"), who.describe(), etcd.grant(lease, soon()),
                           entry ? entry->revision : 0, soon()));
}

}  // namespace trireme::launch
