// The name by which the processes of one user on one host find their server of samples: an
// abstract Unix socket. The process that binds the name starts the server, which inherits the
// socket. The kernel frees the name when the server ends, however it ends. No torch.
//
// A connection stays open as long as its client lives, so the server knows when the last one is
// gone. A client knows at once that the server is gone.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/net/message.h>
#include <optional>
#include <string>

namespace trireme::data {

// "trireme-data-1000-0f3a..."; `digest` is that of everything that decides about the samples.
std::string host_service_name(const std::string& digest);

// A socket that listens under the name; empty if another process has it. Throws Error(io).
std::optional<Descriptor> claim_host_name(const std::string& name);
// A connection to the process that has the name; empty if there is none. Throws Error(io) if it is
// another user's.
std::optional<Descriptor> call_host_name(const std::string& name);
// Takes a connection of a process of the same user; empty if none waits. Throws Error(io) if this
// process can take no connection for now: it has too many files open.
std::optional<Descriptor> accept_client(int listener);

// A message of a server to a client. The last one says where it serves, or why it does not.
struct HostGreeting {
  bool is_opening = false;  // It opens the data; another message follows.
  net::Endpoint at;
  std::string token;
  std::string error;  // The server cannot make the samples; empty if it can.
};
// False: the client has not read what it was told before, or is gone.
bool send_greeting(int client, const HostGreeting& greeting);
// Empty if the server is gone. Throws Error(timeout).
std::optional<HostGreeting> receive_greeting(int server, Deadline deadline);
// Whether the other end has closed the connection, or its process has ended.
bool has_ended(int connection);

}  // namespace trireme::data
