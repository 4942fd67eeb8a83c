// The first messages of a request channel, right after the handshake: both ends tell their limits
// and choose the path of the bytes.
//
//   client -> server   its path, its place, its limits and name
//   server -> client   a refusal, or its limits and name, and where shared memory is handed over
//   client -> server   the path that both take
//
// The messages are signed with the keys of the handshake. Shared memory and its bells are passed
// as descriptors over a Unix socket (net/descriptor_socket.h). They have no names, so nothing is
// left behind, however the processes end.
#pragma once
#include <trireme/net/doorkeeper.h>
#include <trireme/net/requests/channel.h>
#include <asio/awaitable.hpp>
#include <memory>
#include <string>

namespace trireme::net {

inline constexpr Milliseconds kOpeningTime{5000};  // The limit for the messages of this header.

// Calls the server until it answers, and opens a channel to it. Throws as dial() does;
// Error(unsupported) if the server refuses or the path cannot be had; Error(peer_lost | timeout).
std::unique_ptr<Channel> open_as_client(const Endpoint& server, const std::string& token,
                                        const ChannelOptions& options, Deadline deadline);

// The server's side, on its context. It throws std::exception if the connection breaks or the
// client is too slow. `refusal` is told to the client if it is not empty; the result is then null.
asio::awaitable<std::unique_ptr<Channel>> open_as_server(Doorkeeper::Guest& guest,
                                                         const ChannelOptions& options,
                                                         const std::string& refusal);

}  // namespace trireme::net
