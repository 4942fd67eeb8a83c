// A handshake by which two processes prove to each other that they have the same job token,
// without sending it.
//
//   client -> server   magic, purpose, subject, address dialled, client nonce, seal
//   server -> client   magic, decision, server nonce
//   client -> server   MAC(token, "client proof", transcript)
//   server -> client   decision, MAC(token, "server proof", transcript)
//
//   seal        MAC(token, "client hello", everything before the seal)
//   transcript  everything before the seal, server nonce; each end uses the address that it sees
//   MAC         HMAC-SHA256 over a label of fixed length and the text
//
// This is mutual authentication by challenge and response (ISO/IEC 9798-4, mechanism with three
// passes), bound to its channel (RFC 5056). The address in the transcript is the server's end of
// the connection: the client takes it from getpeername(), the server from getsockname(). A process
// that listens at another address and forwards the bytes therefore proves nothing to either end.
// The purpose says why the client connects (as a worker, with a scale request, for a link of a TCP
// mesh). The subject is a hash that names the one connection of this purpose. A proof for one
// purpose is worth nothing for another. The label separates client and server, so a proof cannot
// be sent back to its maker. Both nonces are new, so an old proof is worth nothing.
//
// By the seal, the server can tell the job's own processes from strangers after their first bytes.
// The seal is not fresh and proves nothing; it only decides which connection is dropped when there
// are too many (net/doorkeeper.h). All lengths are fixed, so a stranger cannot make the server
// allocate memory.
//
// Both ends derive two keys from the transcript, one for each direction. Control connections sign
// each frame with them (net/connection.h), so nobody can add, change, repeat or reorder a frame.
// Tensors on a TCP mesh are not signed, and nothing is encrypted. A machine on the way that
// forwards packets unchanged can read everything, and is not noticed. Address translation between
// the ends and tunnels are refused like any other relay.
#pragma once
#include <trireme/net/control.h>
#include <array>
#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::net {

inline constexpr std::string_view kMagic = "TRIREME2";  // The digit is the protocol's version.
using Mac = std::array<uint8_t, 32>;

// HMAC-SHA256.
Mac mac_of(std::span<const uint8_t> key, std::span<const uint8_t> text);
// Compares the first `count` bytes in constant time.
bool same(const uint8_t* a, const uint8_t* b, size_t count);

// An address as both ends write it: IPv4 is written as IPv6 (::ffff:a.b.c.d), the port in network
// order.
using WireAddress = std::array<uint8_t, 18>;
WireAddress wire_address(const asio::ip::tcp::endpoint& endpoint);

using Subject = std::array<uint8_t, 32>;
Subject subject_of(std::string_view text);  // SHA-256; all zeros for an empty text.

// The data that the client sends before anything is proven.
struct Hello {
  std::array<char, 8> magic{};
  Purpose purpose = Purpose::worker;
  Subject subject{};
  WireAddress dialled{};
  Mac nonce{};
  Mac seal{};
};
static_assert(sizeof(Hello) == 8 + 1 + 32 + 18 + 32 + 32, "sent as it lies in memory");

enum class Decision : uint8_t {
  refused = 0,  // The reason has no value of its own below.
  accepted,
  wrong_token,
  wrong_address,  // The client dialled another address than the server's: a relay lies between.
  wrong_purpose,
};

// The server's first answer.
struct Challenge {
  std::array<char, 8> magic{};
  Decision decision = Decision::refused;
  Mac nonce{};
};
static_assert(sizeof(Challenge) == 8 + 1 + 32, "sent as it lies in memory");

// The server's last answer, to the client's proof.
struct Answer {
  Decision decision = Decision::refused;
  Mac proof{};
};
static_assert(sizeof(Answer) == 1 + 32, "sent as it lies in memory");

// The proofs and keys of one handshake.
class Transcript {
 public:
  // `dialled` is the server's address as this end sees it.
  Transcript(const Hello& hello, const WireAddress& dialled, const Mac& server_nonce);
  Mac client_proof(std::string_view token) const { return sign(token, "client proof"); }
  Mac server_proof(std::string_view token) const { return sign(token, "server proof"); }
  Mac client_to_server_key(std::string_view token) const { return sign(token, "client frames"); }
  Mac server_to_client_key(std::string_view token) const { return sign(token, "server frames"); }

 private:
  Mac sign(std::string_view token, std::string_view label) const;
  std::array<uint8_t, sizeof(Hello) - sizeof(Mac) + sizeof(Mac)> bytes_;
};
// Computes the seal of a hello whose other members are filled in.
Mac seal_of(std::string_view token, const Hello& hello);
Hello make_hello(std::string_view token, Purpose purpose, const Subject& subject,
                 const asio::ip::tcp::endpoint& dialled);

struct SessionKeys {
  Mac sending{}, receiving{};
};

enum class HandshakeEnd { accepted, wrong_magic, wrong_token, wrong_address, wrong_purpose };
// The text of a failure for the client's errors; empty for `accepted`.
std::string describe_for_client(HandshakeEnd end);

// The client's side. Throws std::system_error if the connection breaks; the caller limits its
// time. `keys` are set if the result is `accepted`.
asio::awaitable<HandshakeEnd> shake_hands_as_client(asio::ip::tcp::socket& socket,
                                                    const std::string& token, Purpose purpose,
                                                    const Subject& subject, SessionKeys& keys);

// The server's side. It throws and is limited like the client's. `expects` tells whether a client
// of this purpose and subject is allowed; `sealed` is called when the hello proves that the client
// belongs to the job.
struct ServerTerms {
  std::string token;
  std::function<bool(Purpose, const Subject&)> expects;
};
struct Greeted {
  HandshakeEnd end = HandshakeEnd::wrong_magic;
  Hello hello;
  SessionKeys keys;
};
asio::awaitable<Greeted> shake_hands_as_server(asio::ip::tcp::socket& socket,
                                               const ServerTerms& terms,
                                               std::function<void()> sealed);

}  // namespace trireme::net
