// How two processes prove to each other that they hold the same job token, without sending it.
//
//   client -> server   magic, client nonce
//   server -> client   magic, server nonce
//   client -> server   HMAC(token, "client", both nonces)
//   server -> client   verdict, HMAC(token, "server", both nonces)
//
// The client proves first, so a stranger learns nothing that depends on the token. Roles are part
// of what is signed: nobody can send a proof back to its maker. All lengths are fixed. What follows
// on the connection is not signed: who can rewrite the network's packets can take over an
// authenticated connection.
#pragma once
#include <array>
#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::net {

inline constexpr std::string_view kMagic = "TRIREME1";  // The digit is the protocol's version.
using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;
enum class Role { client, server };

// HMAC-SHA256 under `token` over the prover's role and both nonces.
Proof prove(std::string_view token, Role prover, const Nonce& client, const Nonce& server);
// In constant time.
bool same(const Proof& a, const Proof& b);

enum class HandshakeEnd { accepted, wrong_magic, wrong_token };

// The two sides. They throw std::system_error where the connection breaks; the caller bounds their
// time.
asio::awaitable<HandshakeEnd> shake_hands_as_client(asio::ip::tcp::socket& socket,
                                                    const std::string& token);
asio::awaitable<HandshakeEnd> shake_hands_as_server(asio::ip::tcp::socket& socket,
                                                    const std::string& token);

}  // namespace trireme::net
