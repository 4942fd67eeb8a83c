// How ranks meet over TCP, and which connections they refuse.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <trireme/base/error.h>
#include <trireme/comm/tcp/mesh.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/member.h>
#include <trireme/net/control.h>
#include <cstring>
#include <future>
#include <random>
#include "../base/expect_error.h"
#include "../net/hand_made.h"
#include "../net/relay.h"

namespace trireme::comm::tcp_mesh_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kToken = "a token of this test";

// Two members of one job.
class TcpMesh : public ::testing::Test {
 protected:
  void SetUp() override {
    auto joining = std::async(std::launch::async, [this] { return join(1); });
    members_[0] = join(0);
    members_[1] = joining.get();
  }
  void TearDown() override {
    for (auto& member : members_) member->leave();
  }
  std::unique_ptr<membership::Member> join(int worker) {
    return std::make_unique<membership::Member>(coordinator_.endpoint(), kToken, worker, 2, 0,
                                                std::map<std::string, std::string>{});
  }
  Mesh connect(int rank, const std::string& token = kToken,
               Milliseconds timeout = Milliseconds(20000)) {
    return connect_mesh(
        *members_[rank], rank, 2,
        {.name = "test", .address = "127.0.0.1", .token = token, .timeout = timeout});
  }
  // The address on which rank 0 listens.
  net::Endpoint address() {
    return net::parse_endpoint(
        members_[1]->get("tcp/test/0", Deadline::after(Milliseconds(20000))));
  }

  membership::Coordinator coordinator_{{"127.0.0.1", 0}, kToken, {.workers = 2}};
  std::array<std::unique_ptr<membership::Member>, 2> members_;
};

Descriptor call(const net::Endpoint& endpoint) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
  inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Descriptor();
  return socket;
}

void expect_bytes_pass(const Descriptor& from, const Descriptor& to) {
  ASSERT_EQ(::send(from.get(), "x", 1, MSG_NOSIGNAL), 1);
  char byte = 0;
  while (::recv(to.get(), &byte, 1, 0) < 0) ASSERT_EQ(errno, EAGAIN);
  EXPECT_EQ(byte, 'x');
}

TEST_F(TcpMesh, JoinsEachPairByTwoConnections) {
  auto meeting = std::async(std::launch::async, [this] { return connect(1); });
  const Mesh zero = connect(0), one = meeting.get();
  expect_bytes_pass(zero.collectives[1], one.collectives[0]);
  expect_bytes_pass(one.messages[0], zero.messages[1]);
  EXPECT_FALSE(zero.collectives[0]);
}

TEST_F(TcpMesh, StrangersAreDroppedAndKeepNoRankOut) {
  auto meeting = std::async(std::launch::async, [this] { return connect(0); });
  const net::Endpoint endpoint = address();
  const Descriptor silent = call(endpoint), loud = call(endpoint), eager = call(endpoint);
  const std::string garbage(4096, '\xff');
  ASSERT_GT(::send(loud.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  // The first words of the protocol, then nonsense instead of a proof.
  const std::string nonsense = std::string(net::kMagic) + std::string(400, 'n');
  ASSERT_GT(::send(eager.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 0);
  const Mesh one = connect(1), zero = meeting.get();
  expect_bytes_pass(zero.collectives[1], one.collectives[0]);
}

TEST_F(TcpMesh, AProofForAnythingElseDoesNotServe) {
  auto meeting = std::async(std::launch::async, [this] { return connect(0); });
  const net::Endpoint endpoint = address();
  const auto link = [](const std::string& text) { return net::subject_of(text); };
  const net::Subject right = link("test of generation 0, 1 to 0, messages");
  const auto decision = [&](net::Purpose purpose, const net::Subject& subject) {
    return net::HandMade(endpoint, kToken, purpose, subject).greet().decision;
  };
  for (const net::Purpose purpose : {net::Purpose::worker, net::Purpose::scale}) {
    EXPECT_EQ(decision(purpose, {}), net::Decision::wrong_purpose);
    EXPECT_EQ(decision(purpose, right), net::Decision::wrong_purpose);
  }
  for (const std::string other :
       {"test of generation 1, 1 to 0, messages", "test of generation 0, 0 to 1, messages",
        "test of generation 0, 2 to 0, messages", "other of generation 0, 1 to 0, messages"})
    EXPECT_EQ(decision(net::Purpose::mesh, link(other)), net::Decision::wrong_purpose) << other;
  EXPECT_EQ(decision(net::Purpose::mesh, right), net::Decision::accepted);
  // It leaves without proof, and its place is free.
  message_of(ErrorCode::timeout, [&] {
    net::ControlClient(endpoint, kToken, {}, Deadline::after(Milliseconds(200)));
  });
  const Mesh one = connect(1), zero = meeting.get();
  expect_bytes_pass(zero.messages[1], one.messages[0]);
}

TEST_F(TcpMesh, NoiseOfAnyKindKeepsNobodyOut) {
  auto meeting = std::async(std::launch::async, [this] { return connect(0); });
  const net::Endpoint endpoint = address();
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    net::HandMade stranger(endpoint, round % 3 ? "guess" : kToken, net::Purpose::mesh,
                           net::subject_of("test of generation 0, 1 to 0, messages"));
    std::string bytes = net::bytes_of(stranger.hello);
    if (round % 2) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    if (round % 7 == 0) bytes += std::string(random() % 5000, static_cast<char>(random()));
    stranger.raw.write(bytes);
  }
  const Mesh one = connect(1), zero = meeting.get();
  expect_bytes_pass(zero.collectives[1], one.collectives[0]);
  expect_bytes_pass(one.messages[0], zero.messages[1]);
}

TEST_F(TcpMesh, ARelayIsNoLink) {
  auto meeting = std::async(std::launch::async, [this] { return connect(0); });
  const net::Relay relay(address());
  net::HandMade through(relay.endpoint(), kToken, net::Purpose::mesh,
                        net::subject_of("test of generation 0, 1 to 0, messages"));
  EXPECT_EQ(through.greet().decision, net::Decision::wrong_address);
  const Mesh one = connect(1), zero = meeting.get();
  expect_bytes_pass(zero.messages[1], one.messages[0]);
}

TEST_F(TcpMesh, NoRankListensOnceAllHaveMet) {
  auto meeting = std::async(std::launch::async, [this] { return connect(0); });
  const net::Endpoint endpoint = address();
  const Mesh one = connect(1), zero = meeting.get();
  EXPECT_FALSE(call(endpoint));
}

TEST_F(TcpMesh, APeerWithAnotherTokenIsRefused) {
  auto meeting = std::async(std::launch::async, [this] {
    return message_of(ErrorCode::timeout, [this] { connect(0, kToken, Milliseconds(800)); });
  });
  EXPECT_THAT(message_of(ErrorCode::peer_lost, [this] { connect(1, "another"); }),
              HasSubstr("the address of rank 0 has another job token"));
  EXPECT_THAT(meeting.get(), AllOf(HasSubstr("rank 1"), HasSubstr("800 ms")));
}

}  // namespace
}  // namespace trireme::comm::tcp_mesh_test
