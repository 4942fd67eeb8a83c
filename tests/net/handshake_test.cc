#include "events.h"
#include "raw_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/net/handshake.h>

namespace trireme::net {
namespace {

std::string text_of(const Proof& bytes) { return {bytes.begin(), bytes.end()}; }
Nonce nonce_of(const std::string& bytes) {
  Nonce nonce;
  std::copy_n(bytes.begin(), nonce.size(), nonce.begin());
  return nonce;
}

const Nonce kZeros{};
const Nonce kOnes = [] {
  Nonce nonce;
  nonce.fill(1);
  return nonce;
}();

TEST(Handshake, AProofDependsOnTokenRoleAndBothNonces) {
  const Proof proof = prove("token", Role::client, kZeros, kOnes);
  EXPECT_TRUE(same(proof, prove("token", Role::client, kZeros, kOnes)));
  EXPECT_FALSE(same(proof, prove("Token", Role::client, kZeros, kOnes)));
  EXPECT_FALSE(same(proof, prove("token", Role::server, kZeros, kOnes)));
  EXPECT_FALSE(same(proof, prove("token", Role::client, kOnes, kOnes)));
  EXPECT_FALSE(same(proof, prove("token", Role::client, kZeros, kZeros)));
}

TEST(Handshake, ATokenIsFreshAndLong) {
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_NE(make_token(), make_token());
}

class HandshakeWithServer : public testing::Test {
 protected:
  // What a stranger gets for its proof, having sent its hello: verdict and the server's proof.
  std::string answer_to(const std::function<std::string(const Nonce& from_server)>& proof) {
    RawClient stranger(server.endpoint());
    stranger.write(std::string(kMagic) + std::string(kZeros.begin(), kZeros.end()));
    const std::string hello = stranger.read(kMagic.size() + sizeof(Nonce));
    EXPECT_EQ(hello.substr(0, kMagic.size()), kMagic);
    stranger.write(proof(nonce_of(hello.substr(kMagic.size()))));
    const std::string answer = stranger.read(1 + sizeof(Proof));
    EXPECT_TRUE(answer.front() == '\1' || stranger.closed_by_server());
    return answer;
  }

  Recorder recorder;
  ControlServer server{kAnyPort, "secret", recorder.server_events()};
};

TEST_F(HandshakeWithServer, TheServerProvesItselfToWhoHasProvenFirst) {
  Nonce nonce;
  const std::string answer = answer_to([&](const Nonce& from_server) {
    nonce = from_server;
    return text_of(prove("secret", Role::client, kZeros, from_server));
  });
  EXPECT_EQ(answer, std::string(1, '\1') + text_of(prove("secret", Role::server, kZeros, nonce)));
  EXPECT_TRUE(recorder.wait([&] { return recorder.opened.size() == 1; }));
}

TEST_F(HandshakeWithServer, ARefusalTellsNothingThatDependsOnTheToken) {
  const std::string answer =
      answer_to([](const Nonce&) { return std::string(sizeof(Proof), 'x'); });
  EXPECT_EQ(answer, std::string(1 + sizeof(Proof), '\0'));
}

TEST_F(HandshakeWithServer, AProofOfTheServersRoleIsNoClientsProof) {
  const std::string answer = answer_to(
      [](const Nonce& nonce) { return text_of(prove("secret", Role::server, kZeros, nonce)); });
  EXPECT_EQ(answer, std::string(1 + sizeof(Proof), '\0'));
}

TEST_F(HandshakeWithServer, AnOldProofIsWorthNothingLater) {
  std::string proof;
  answer_to([&](const Nonce& nonce) {
    return proof = text_of(prove("secret", Role::client, kZeros, nonce));
  });
  EXPECT_EQ(answer_to([&](const Nonce&) { return proof; }), std::string(1 + sizeof(Proof), '\0'));
}

}  // namespace
}  // namespace trireme::net
