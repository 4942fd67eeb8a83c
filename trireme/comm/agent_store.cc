#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/comm/agent_store.h>

namespace trireme::comm {
namespace {

c10::intrusive_ptr<c10d::TCPStore> client_of(const net::Endpoint& store, Deadline deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(store.port);
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = std::max(Milliseconds(1), deadline.remaining());
  return c10::make_intrusive<c10d::TCPStore>(store.host, options);
}

template <typename Action>
auto with_store(const net::Endpoint& store, Deadline deadline, Action action) {
  try {
    return action(*client_of(store, deadline));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw Error(
        ErrorCode::timeout, "comm",
        fmt::format("torchrun's store at {} did not answer within {}: {}", store.describe(),
                    format_duration(deadline.allowed()), what.substr(0, what.find('\n'))),
        "check that torchrun still runs and that MASTER_ADDR can be reached");
  }
}

}  // namespace

void publish(const net::Endpoint& store, const std::string& key, const std::string& value,
             Deadline deadline) {
  with_store(store, deadline, [&](c10d::TCPStore& client) {
    client.set(key, std::vector<uint8_t>(value.begin(), value.end()));
    return true;
  });
}

std::string look_up(const net::Endpoint& store, const std::string& key, Deadline deadline) {
  return with_store(store, deadline, [&](c10d::TCPStore& client) {
    client.wait({key}, std::max(Milliseconds(1), deadline.remaining()));
    const std::vector<uint8_t> value = client.get(key);
    return std::string(value.begin(), value.end());
  });
}

}  // namespace trireme::comm
