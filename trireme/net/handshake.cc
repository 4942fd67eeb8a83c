#include <trireme/net/handshake.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <trireme/base/error.h>
#include <trireme/net/control.h>
#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <vector>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr uint8_t kAccepted = 1;
constexpr uint8_t kRefused = 0;

Nonce random_bytes() {
  Nonce bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw Error(ErrorCode::internal, "net", "OpenSSL gave no random bytes");
  return bytes;
}

struct Hello {
  std::array<char, 8> magic;
  Nonce nonce;
};
static_assert(sizeof(Hello) == kMagic.size() + sizeof(Nonce));

Hello make_hello() {
  Hello hello;
  std::memcpy(hello.magic.data(), kMagic.data(), kMagic.size());
  hello.nonce = random_bytes();
  return hello;
}

// False: the magic is wrong. It is looked at before the nonce is waited for, since a stranger may
// never send that much.
asio::awaitable<bool> read_hello(tcp::socket& socket, Hello& hello) {
  co_await asio::async_read(socket, asio::buffer(hello.magic), asio::use_awaitable);
  if (std::string_view(hello.magic.data(), hello.magic.size()) != kMagic) co_return false;
  co_await asio::async_read(socket, asio::buffer(hello.nonce), asio::use_awaitable);
  co_return true;
}

struct Verdict {
  uint8_t decision = kRefused;
  Proof proof{};
};
static_assert(sizeof(Verdict) == 1 + sizeof(Proof));

}  // namespace

Proof prove(std::string_view token, Role prover, const Nonce& client, const Nonce& server) {
  const std::string_view role = prover == Role::client ? "client" : "server";
  std::vector<uint8_t> text(role.begin(), role.end());
  text.insert(text.end(), client.begin(), client.end());
  text.insert(text.end(), server.begin(), server.end());
  Proof proof;
  unsigned int length = 0;
  if (!HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), text.data(), text.size(),
            proof.data(), &length))
    throw Error(ErrorCode::internal, "net", "OpenSSL offers no HMAC-SHA256");
  return proof;
}

bool same(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

asio::awaitable<HandshakeEnd> shake_hands_as_client(tcp::socket& socket, const std::string& token) {
  const Hello mine = make_hello();
  co_await asio::async_write(socket, asio::buffer(&mine, sizeof mine), asio::use_awaitable);
  Hello theirs;
  if (!co_await read_hello(socket, theirs)) co_return HandshakeEnd::wrong_magic;

  const Proof proof = prove(token, Role::client, mine.nonce, theirs.nonce);
  co_await asio::async_write(socket, asio::buffer(proof), asio::use_awaitable);
  Verdict verdict;
  co_await asio::async_read(socket, asio::buffer(&verdict, sizeof verdict), asio::use_awaitable);
  const bool proven = verdict.decision == kAccepted &&
                      same(verdict.proof, prove(token, Role::server, mine.nonce, theirs.nonce));
  co_return proven ? HandshakeEnd::accepted : HandshakeEnd::wrong_token;
}

asio::awaitable<HandshakeEnd> shake_hands_as_server(tcp::socket& socket, const std::string& token) {
  Hello theirs;
  if (!co_await read_hello(socket, theirs)) co_return HandshakeEnd::wrong_magic;
  const Hello mine = make_hello();
  co_await asio::async_write(socket, asio::buffer(&mine, sizeof mine), asio::use_awaitable);

  Proof proof;
  co_await asio::async_read(socket, asio::buffer(proof), asio::use_awaitable);
  Verdict verdict;
  const bool proven = same(proof, prove(token, Role::client, theirs.nonce, mine.nonce));
  if (proven) verdict = {kAccepted, prove(token, Role::server, theirs.nonce, mine.nonce)};
  co_await asio::async_write(socket, asio::buffer(&verdict, sizeof verdict), asio::use_awaitable);
  co_return proven ? HandshakeEnd::accepted : HandshakeEnd::wrong_token;
}

std::string make_token() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (const uint8_t byte : random_bytes()) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

}  // namespace trireme::net
