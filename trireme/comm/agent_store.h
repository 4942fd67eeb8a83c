// A client of torchrun's key-value store. torchrun itself holds MASTER_PORT, so the coordinator
// publishes its address in this store.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
#include <string>

namespace trireme::comm {

// Both throw Error(timeout) naming the store's address.
void publish(const net::Endpoint& store, const std::string& key, const std::string& value,
             Deadline deadline);
std::string look_up(const net::Endpoint& store, const std::string& key, Deadline deadline);

}  // namespace trireme::comm
