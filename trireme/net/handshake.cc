#include <trireme/net/handshake.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <vector>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr size_t kLabelBytes = 16;
// The number of bytes that the seal covers.
constexpr size_t kSealed = sizeof(Hello) - sizeof(Mac);

Mac random_bytes() {
  Mac bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw Error(ErrorCode::internal, "net", "OpenSSL gave no random bytes");
  return bytes;
}

void write_magic(std::array<char, 8>& magic) {
  static_assert(kMagic.size() == std::tuple_size_v<std::array<char, 8>>);
  std::copy(kMagic.begin(), kMagic.end(), magic.begin());
}

bool is_magic(const std::array<char, 8>& magic) {
  return std::string_view(magic.data(), magic.size()) == kMagic;
}

// The label has a fixed length, so two different pairs of label and text never give the same
// bytes.
Mac sign_with_label(std::string_view token, std::string_view label,
                    std::span<const uint8_t> text) {
  std::vector<uint8_t> labelled(kLabelBytes, 0);
  std::copy(label.begin(), label.end(), labelled.begin());
  labelled.insert(labelled.end(), text.begin(), text.end());
  return mac_of({reinterpret_cast<const uint8_t*>(token.data()), token.size()}, labelled);
}

std::span<const uint8_t> sealed_part(const Hello& hello) {
  return {reinterpret_cast<const uint8_t*>(&hello), kSealed};
}

// Reads the magic of a message and then its rest. The magic is checked first, because a stranger
// may never send the rest.
template <typename Message>
asio::awaitable<bool> read_message(tcp::socket& socket, Message& message) {
  co_await asio::async_read(socket, asio::buffer(message.magic), asio::use_awaitable);
  if (!is_magic(message.magic)) co_return false;
  co_await asio::async_read(socket,
                            asio::buffer(reinterpret_cast<char*>(&message) + sizeof message.magic,
                                         sizeof message - sizeof message.magic),
                            asio::use_awaitable);
  co_return true;
}

HandshakeEnd end_of(Decision decision) {
  switch (decision) {
    case Decision::accepted: return HandshakeEnd::accepted;
    case Decision::wrong_address: return HandshakeEnd::wrong_address;
    case Decision::wrong_purpose: return HandshakeEnd::wrong_purpose;
    case Decision::wrong_token:
    case Decision::refused: break;
  }
  return HandshakeEnd::wrong_token;
}

}  // namespace

Mac mac_of(std::span<const uint8_t> key, std::span<const uint8_t> text) {
  Mac mac;
  unsigned int length = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(),
            mac.data(), &length))
    throw Error(ErrorCode::internal, "net", "OpenSSL offers no HMAC-SHA256");
  return mac;
}

bool same(const uint8_t* a, const uint8_t* b, size_t count) {
  return CRYPTO_memcmp(a, b, count) == 0;
}

WireAddress wire_address(const tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  const auto bytes =
      (address.is_v6() ? address.to_v6()
                       : asio::ip::make_address_v6(asio::ip::v4_mapped, address.to_v4()))
          .to_bytes();
  WireAddress written;
  std::copy(bytes.begin(), bytes.end(), written.begin());
  written[16] = static_cast<uint8_t>(endpoint.port() >> 8);
  written[17] = static_cast<uint8_t>(endpoint.port() & 255);
  return written;
}

Subject subject_of(std::string_view text) {
  Subject subject{};
  unsigned int length = 0;
  if (!text.empty() &&
      EVP_Digest(text.data(), text.size(), subject.data(), &length, EVP_sha256(), nullptr) != 1)
    throw Error(ErrorCode::internal, "net", "OpenSSL offers no SHA-256");
  return subject;
}

Transcript::Transcript(const Hello& hello, const WireAddress& dialled, const Mac& server_nonce) {
  Hello seen = hello;
  seen.dialled = dialled;
  const auto sealed = sealed_part(seen);
  std::copy(sealed.begin(), sealed.end(), bytes_.begin());
  std::copy(server_nonce.begin(), server_nonce.end(), bytes_.begin() + kSealed);
}

Mac Transcript::sign(std::string_view token, std::string_view label) const {
  return sign_with_label(token, label, bytes_);
}

Mac seal_of(std::string_view token, const Hello& hello) {
  return sign_with_label(token, "client hello", sealed_part(hello));
}

Hello make_hello(std::string_view token, Purpose purpose, const Subject& subject,
                 const tcp::endpoint& dialled) {
  Hello hello{.purpose = purpose,
              .subject = subject,
              .dialled = wire_address(dialled),
              .nonce = random_bytes()};
  write_magic(hello.magic);
  hello.seal = seal_of(token, hello);
  return hello;
}

std::string describe_for_client(HandshakeEnd end) {
  switch (end) {
    case HandshakeEnd::accepted: return {};
    case HandshakeEnd::wrong_magic:
      return "the programme there does not speak this version of Trireme's protocol";
    case HandshakeEnd::wrong_token: return "its job token is different";
    case HandshakeEnd::wrong_address:
      return "the connection ends at another address than the one that was called: a relay, a "
             "tunnel or an address translation lies between";
    case HandshakeEnd::wrong_purpose: return "it does not expect this connection";
  }
  return {};
}

asio::awaitable<HandshakeEnd> shake_hands_as_client(tcp::socket& socket, const std::string& token,
                                                    Purpose purpose, const Subject& subject,
                                                    SessionKeys& keys) {
  const Hello hello = make_hello(token, purpose, subject, socket.remote_endpoint());
  co_await asio::async_write(socket, asio::buffer(&hello, sizeof hello), asio::use_awaitable);
  Challenge challenge;
  if (!co_await read_message(socket, challenge)) co_return HandshakeEnd::wrong_magic;
  if (challenge.decision != Decision::accepted) co_return end_of(challenge.decision);

  const Transcript transcript(hello, hello.dialled, challenge.nonce);
  const Mac proof = transcript.client_proof(token);
  co_await asio::async_write(socket, asio::buffer(proof), asio::use_awaitable);
  Answer answer;
  co_await asio::async_read(socket, asio::buffer(&answer, sizeof answer), asio::use_awaitable);
  if (answer.decision != Decision::accepted) co_return end_of(answer.decision);
  if (!same(answer.proof.data(), transcript.server_proof(token).data(), sizeof(Mac)))
    co_return HandshakeEnd::wrong_token;
  keys = {transcript.client_to_server_key(token), transcript.server_to_client_key(token)};
  co_return HandshakeEnd::accepted;
}

asio::awaitable<Greeted> shake_hands_as_server(tcp::socket& socket, const ServerTerms& terms,
                                               std::function<void()> sealed) {
  Greeted greeted;
  Hello& hello = greeted.hello;
  if (!co_await read_message(socket, hello)) co_return greeted;

  const WireAddress here = wire_address(socket.local_endpoint());
  Challenge challenge{.nonce = random_bytes()};
  write_magic(challenge.magic);
  challenge.decision = !same(hello.seal.data(), seal_of(terms.token, hello).data(), sizeof(Mac))
                           ? Decision::wrong_token
                       : hello.dialled != here                        ? Decision::wrong_address
                       : !terms.expects(hello.purpose, hello.subject) ? Decision::wrong_purpose
                                                                      : Decision::accepted;
  if (challenge.decision == Decision::accepted) sealed();
  co_await asio::async_write(socket, asio::buffer(&challenge, sizeof challenge),
                             asio::use_awaitable);
  greeted.end = end_of(challenge.decision);
  if (greeted.end != HandshakeEnd::accepted) co_return greeted;

  Mac proof;
  co_await asio::async_read(socket, asio::buffer(proof), asio::use_awaitable);
  const Transcript transcript(hello, here, challenge.nonce);
  Answer answer;
  if (same(proof.data(), transcript.client_proof(terms.token).data(), sizeof(Mac)))
    answer = {Decision::accepted, transcript.server_proof(terms.token)};
  co_await asio::async_write(socket, asio::buffer(&answer, sizeof answer), asio::use_awaitable);
  greeted.end = end_of(answer.decision);
  greeted.keys = {transcript.server_to_client_key(terms.token),
                  transcript.client_to_server_key(terms.token)};
  co_return greeted;
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
