// The client's side of the handshake, one message at a time, so that a test can change each
// message.
#pragma once
#include <trireme/net/framing.h>
#include <trireme/net/handshake.h>
#include <cstring>
#include <string>
#include "raw_client.h"

namespace trireme::net {

template <typename Message>
std::string bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// Makes a message from its bytes. Bytes that are cut off become zeros.
template <typename Message>
Message message_from(const std::string& bytes) {
  Message message;
  std::memset(static_cast<void*>(&message), 0, sizeof message);
  std::memcpy(static_cast<void*>(&message), bytes.data(), std::min(bytes.size(), sizeof message));
  return message;
}

class HandMade {
 public:
  explicit HandMade(const Endpoint& server, std::string job_token = "secret",
                    Purpose purpose = Purpose::worker, const Subject& subject = {})
      : raw(server), token(std::move(job_token)) {
    hello = make_hello(token, purpose, subject, raw.remote());
  }

  Challenge greet() {
    raw.write(bytes_of(hello));
    return challenge = message_from<Challenge>(raw.read(sizeof(Challenge)));
  }
  Transcript transcript() const { return {hello, hello.dialled, challenge.nonce}; }
  Answer prove_with(const Mac& proof) {
    raw.write(bytes_of(proof));
    return message_from<Answer>(raw.read(sizeof(Answer)));
  }
  // Performs the whole handshake correctly.
  bool shake() {
    return greet().decision == Decision::accepted &&
           prove_with(transcript().client_proof(token)).decision == Decision::accepted;
  }
  // Makes a frame of `message` with this number.
  std::string frame(const std::string& cbor, uint64_t number) const {
    std::vector<uint8_t> bytes{0, 0, static_cast<uint8_t>(cbor.size() >> 8),
                               static_cast<uint8_t>(cbor.size() & 255)};
    bytes.insert(bytes.end(), cbor.begin(), cbor.end());
    const FrameTag tag = tag_frame(transcript().client_to_server_key(token), number, {bytes});
    bytes.insert(bytes.end(), tag.begin(), tag.end());
    return {bytes.begin(), bytes.end()};
  }
  std::string frame(const Json& message, uint64_t number) const {
    const auto cbor = Json::to_cbor(message);
    return frame(std::string(cbor.begin(), cbor.end()), number);
  }

  RawClient raw;
  const std::string token;
  Hello hello;
  Challenge challenge;
};

}  // namespace trireme::net
