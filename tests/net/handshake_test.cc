// The proofs of the handshake: what they depend on, and that they have no other use.
#include "events.h"
#include "hand_made.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/net/handshake.h>
#include <set>

namespace trireme::net::handshake_test {
namespace {

using asio::ip::tcp;

const tcp::endpoint kHere{asio::ip::make_address("10.0.0.1"), 4000};

TEST(Handshake, AProofDependsOnEverythingThatWasSaid) {
  const Hello hello = make_hello("token", Purpose::worker, subject_of("one"), kHere);
  const Mac nonce{7};
  const Mac proof = Transcript(hello, hello.dialled, nonce).client_proof("token");
  const auto proof_of = [&](Hello other) {
    return Transcript(other, other.dialled, nonce).client_proof("token");
  };
  EXPECT_EQ(proof, proof_of(hello));
  EXPECT_NE(proof, Transcript(hello, hello.dialled, nonce).client_proof("Token"));
  EXPECT_NE(proof, Transcript(hello, hello.dialled, nonce).server_proof("token"));
  EXPECT_NE(proof, Transcript(hello, hello.dialled, Mac{8}).client_proof("token"));
  for (size_t byte = 0; byte < sizeof(Hello) - sizeof(Mac); ++byte) {
    std::string changed = bytes_of(hello);
    changed[byte] = static_cast<char>(changed[byte] ^ 1);
    EXPECT_NE(proof, proof_of(message_from<Hello>(changed))) << "byte " << byte;
    EXPECT_NE(hello.seal, seal_of("token", message_from<Hello>(changed))) << "byte " << byte;
  }
}

TEST(Handshake, TheMacsOfOneTranscriptAllDiffer) {
  const Hello hello = make_hello("token", Purpose::worker, {}, kHere);
  const Transcript all(hello, hello.dialled, Mac{});
  const std::set<Mac> macs{all.client_proof("token"), all.server_proof("token"),
                           all.client_to_server_key("token"), all.server_to_client_key("token"),
                           hello.seal};
  EXPECT_EQ(macs.size(), 5u);
}

TEST(Handshake, AnAddressIsWrittenTheSameInBothFamilies) {
  const auto v4 = asio::ip::make_address_v4("10.1.2.3");
  const tcp::endpoint mapped{asio::ip::make_address_v6(asio::ip::v4_mapped, v4), 80};
  EXPECT_EQ(wire_address({v4, 80}), wire_address(mapped));
  EXPECT_NE(wire_address({v4, 80}), wire_address({v4, 81}));
  EXPECT_NE(wire_address({v4, 80}), wire_address({v4, 80 << 8}));
}

TEST(Handshake, ATokenIsFreshAndLong) {
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_NE(make_token(), make_token());
}

class HandshakeWithServer : public testing::Test {
 protected:
  static void expect_refused(HandMade& client, const Answer& answer) {
    EXPECT_EQ(bytes_of(answer), std::string(sizeof(Answer), '\0'));
    EXPECT_TRUE(client.raw.closed_by_server());
  }
  Recorder recorder;
  ControlServer server{kAnyPort, "secret", recorder.server_events()};
};

TEST_F(HandshakeWithServer, TheServerProvesItselfOnceTheClientHas) {
  HandMade client(server.endpoint());
  EXPECT_EQ(client.greet().decision, Decision::accepted);
  const Answer answer = client.prove_with(client.transcript().client_proof("secret"));
  EXPECT_EQ(answer.decision, Decision::accepted);
  EXPECT_EQ(answer.proof, client.transcript().server_proof("secret"));
  EXPECT_TRUE(recorder.wait([&] { return recorder.opened.size() == 1; }));
}

TEST_F(HandshakeWithServer, ARefusalContainsNothingThatDependsOnTheToken) {
  HandMade client(server.endpoint());
  client.greet();
  expect_refused(client, client.prove_with(Mac{'x'}));
}

TEST_F(HandshakeWithServer, AProofOfTheServersRoleIsNotAClientsProof) {
  HandMade client(server.endpoint());
  client.greet();
  expect_refused(client, client.prove_with(client.transcript().server_proof("secret")));
}

TEST_F(HandshakeWithServer, AnOldProofIsWorthNothingLater) {
  HandMade first(server.endpoint());
  ASSERT_EQ(first.greet().decision, Decision::accepted);
  const Mac proof = first.transcript().client_proof("secret");
  EXPECT_EQ(first.prove_with(proof).decision, Decision::accepted);
  HandMade second(server.endpoint());
  second.hello = first.hello;  // The seal is still valid.
  EXPECT_EQ(second.greet().decision, Decision::accepted);
  expect_refused(second, second.prove_with(proof));
}

TEST_F(HandshakeWithServer, AHelloWithoutTheJobsSealIsTurnedAwayAtOnce) {
  HandMade stranger(server.endpoint(), "another token");
  EXPECT_EQ(stranger.greet().decision, Decision::wrong_token);
  EXPECT_TRUE(stranger.raw.closed_by_server());
}

TEST_F(HandshakeWithServer, EveryByteOfTheHelloCounts) {
  for (size_t byte = kMagic.size(); byte < sizeof(Hello); ++byte) {
    HandMade changed(server.endpoint());
    std::string bytes = bytes_of(changed.hello);
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    changed.hello = message_from<Hello>(bytes);
    EXPECT_EQ(changed.greet().decision, Decision::wrong_token) << "byte " << byte;
  }
}

TEST_F(HandshakeWithServer, OnlyThePurposesOfControlConnectionsAreExpected) {
  for (const Purpose purpose : {Purpose::worker, Purpose::arrival, Purpose::scale, Purpose::probe})
    EXPECT_TRUE(HandMade(server.endpoint(), "secret", purpose).shake());
  EXPECT_TRUE(recorder.wait([&] { return recorder.purposes.size() == 4; }));
  for (const Purpose purpose : {Purpose::mesh, Purpose{0}, Purpose{77}})
    EXPECT_EQ(HandMade(server.endpoint(), "secret", purpose).greet().decision,
              Decision::wrong_purpose);
  EXPECT_EQ(HandMade(server.endpoint(), "secret", Purpose::worker, subject_of("a link"))
                .greet()
                .decision,
            Decision::wrong_purpose);
}

TEST_F(HandshakeWithServer, AProofForOnePurposeIsWorthNothingForAnother) {
  HandMade client(server.endpoint(), "secret", Purpose::scale);
  client.greet();
  Hello as_worker = client.hello;
  as_worker.purpose = Purpose::worker;
  const Transcript other(as_worker, as_worker.dialled, client.challenge.nonce);
  expect_refused(client, client.prove_with(other.client_proof("secret")));
}

TEST_F(HandshakeWithServer, AProofForAnotherAddressIsWorthNothing) {
  HandMade client(server.endpoint());
  client.hello = make_hello("secret", Purpose::worker, {}, kHere);
  EXPECT_EQ(client.greet().decision, Decision::wrong_address);
  // A relay would have to do this: state the right address, and pass on a proof for its own.
  HandMade relayed(server.endpoint());
  relayed.greet();
  const Transcript seen_there(relayed.hello, wire_address(kHere), relayed.challenge.nonce);
  expect_refused(relayed, relayed.prove_with(seen_there.client_proof("secret")));
}

TEST_F(HandshakeWithServer, AFrameThatIsNotSignedEndsTheConnection) {
  HandMade client(server.endpoint());
  ASSERT_TRUE(client.shake());
  client.raw.write(client.frame({{"number", 1}}, 0));
  ASSERT_TRUE(recorder.wait([&] { return recorder.received.size() == 1; }));
  std::string forged = client.frame({{"number", 2}}, 1);
  forged[forged.size() - 20] = static_cast<char>(forged[forged.size() - 20] ^ 1);
  client.raw.write(forged);
  EXPECT_TRUE(client.raw.closed_by_server());
  EXPECT_TRUE(recorder.wait([&] { return recorder.closed.size() == 1; }));
  EXPECT_THAT(recorder.closed.begin()->second, testing::HasSubstr("has not signed"));
  EXPECT_EQ(recorder.received.size(), 1u);
}

TEST_F(HandshakeWithServer, AFrameThatIsRepeatedEndsTheConnection) {
  HandMade client(server.endpoint());
  ASSERT_TRUE(client.shake());
  const std::string frame = client.frame({{"number", 1}}, 0);
  client.raw.write(frame + frame);
  EXPECT_TRUE(client.raw.closed_by_server());
  EXPECT_TRUE(recorder.wait([&] { return recorder.closed.size() == 1; }));
  EXPECT_EQ(recorder.received.size(), 1u);
}

}  // namespace
}  // namespace trireme::net::handshake_test
