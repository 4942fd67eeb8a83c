#include <trireme/net/etcd.h>

#include <gmock/gmock.h>
#include <trireme/base/error.h>
#include <trireme/net/base64.h>
#include <trireme/net/control.h>

#include "etcd_server.h"

namespace trireme::net::etcd_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

Deadline soon() { return Deadline::after(Milliseconds(5000)); }

std::string message_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "it ended without an error";
  return {};
}

TEST(Base64, AnyBytesComeBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_EQ(to_base64("foob"), "Zm9vYg==");  // RFC 4648, section 10.
  message_of([] { from_base64("Zm9"); }, ErrorCode::corrupt);
  message_of([] { from_base64("Z m!"); }, ErrorCode::corrupt);
}

TEST(EtcdUrl, ConsistsOfServersAndAJob) {
  const EtcdUrl url = parse_etcd_url("etcd://10.0.0.5:2379,[::1]:2380/my-job.2");
  ASSERT_EQ(url.servers.size(), 2U);
  EXPECT_EQ(url.servers[0].describe(), "10.0.0.5:2379");
  EXPECT_EQ(url.servers[1].describe(), "[::1]:2380");
  EXPECT_EQ(url.job, "my-job.2");
  EXPECT_EQ(url.describe(), "etcd://10.0.0.5:2379,[::1]:2380/my-job.2");
  EXPECT_FALSE(is_etcd_url("10.0.0.5:2379"));
}

TEST(EtcdUrl, AnInvalidTextIsRefusedWithTheReason) {
  for (const auto& [text, why] : std::map<std::string, std::string>{
           {"10.0.0.5:2379/a", "does not begin with etcd://"},
           {"etcd://10.0.0.5:2379", "names no job"},
           {"etcd://10.0.0.5:2379/", "names no job"},
           {"etcd:///job", "'' is not HOST:PORT"},
           {"etcd://host/job", "'host' is not HOST:PORT"},
           {"etcd://a:1,/job", "'' is not HOST:PORT"},
           {"etcd://a:0/job", "port 0"},
           {"etcd://a:1/a/b", "other characters"},
           {"etcd://a:1/a b", "other characters"},
           {"etcd://a:1/" + std::string(129, 'a'), "129 characters"}})
    EXPECT_THAT(message_of([&] { parse_etcd_url(text); }, ErrorCode::invalid_argument),
                AllOf(HasSubstr(text), HasSubstr(why)));
}

TEST(Etcd, AKeyIsRemovedWithItsLease) {
  TRIREME_START_ETCD(server);
  Etcd etcd({server->endpoint()});
  EXPECT_FALSE(etcd.get("name", soon()));
  EXPECT_EQ(etcd.local_address(), "127.0.0.1");
  const int64_t lease = etcd.grant(2s, soon());
  EXPECT_NE(lease, 0);
  EXPECT_TRUE(etcd.replace("name", "a value\n", lease, 0, soon()));
  const auto entry = etcd.get("name", soon());
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->value, "a value\n");
  EXPECT_EQ(entry->lease, lease);
  EXPECT_TRUE(etcd.keep_alive(lease, soon()));
  etcd.revoke(lease, soon());
  EXPECT_FALSE(etcd.get("name", soon()));
  EXPECT_FALSE(etcd.keep_alive(lease, soon()));
  etcd.revoke(lease, soon());  // The lease does not exist any more.
  EXPECT_FALSE(etcd.replace("name", "again", lease, 0, soon()));
}

TEST(Etcd, AKeyIsReplacedOnlyIfItHasNotChanged) {
  TRIREME_START_ETCD(server);
  Etcd one({server->endpoint()}), other({server->endpoint()});
  const int64_t lease = one.grant(60s, soon());
  EXPECT_TRUE(one.replace("name", "one", lease, 0, soon()));
  EXPECT_FALSE(other.replace("name", "other", lease, 0, soon()));  // The key exists.
  const int64_t seen = other.get("name", soon())->revision;
  EXPECT_TRUE(one.replace("name", "one again", lease, seen, soon()));
  EXPECT_FALSE(other.replace("name", "other", lease, seen, soon()));  // The key has changed.
  EXPECT_EQ(other.get("name", soon())->value, "one again");
}

TEST(Etcd, AServerThatFailsIsSkipped) {
  TRIREME_START_ETCD(server);
  Etcd etcd({{"127.0.0.1", 1}, server->endpoint()});
  EXPECT_NE(etcd.grant(2s, soon()), 0);
}

TEST(Etcd, IfNoServerAnswersEachIsNamed) {
  Etcd nobody({{"127.0.0.1", 1}, {"127.0.0.1", 2}});
  EXPECT_THAT(message_of([&] { nobody.get("name", soon()); }, ErrorCode::not_found),
              AllOf(HasSubstr("127.0.0.1:1: "), HasSubstr("127.0.0.1:2: ")));
  // Another programme listens there, and gives no answer that etcd would give.
  const ControlServer stranger({"127.0.0.1", 0}, "secret", {});
  Etcd wrong({stranger.endpoint()});
  EXPECT_THAT(message_of([&] { wrong.get("name", soon()); }, ErrorCode::not_found),
              HasSubstr(stranger.endpoint().describe()));
}

TEST(Etcd, AServerThatIsSilentCostsASecond) {
  TRIREME_START_ETCD(server);
  server->stop();
  Etcd etcd({server->endpoint()});
  const auto began = std::chrono::steady_clock::now();
  message_of([&] { etcd.get("name", soon()); }, ErrorCode::not_found);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 3s);
  server->go_on();
}

}  // namespace
}  // namespace trireme::net::etcd_test
