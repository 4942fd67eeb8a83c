// torchrun's key-value store, as a client: torchrun holds MASTER_PORT itself, so the coordinator's
// address is published there.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
#include <string>

namespace trireme::comm {

// Throw Error(timeout) naming the store's address.
void publish(const net::Endpoint& store, const std::string& key, const std::string& value,
             Deadline deadline);
std::string look_up(const net::Endpoint& store, const std::string& key, Deadline deadline);

}  // namespace trireme::comm
