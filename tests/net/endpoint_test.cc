#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/net/message.h>

namespace trireme::net::endpoint_test {
namespace {

using testing::HasSubstr;

TEST(Endpoint, IsReadFromHostAndPort) {
  const Endpoint endpoint = parse_endpoint("node-1.example:29500");
  EXPECT_EQ(endpoint.host, "node-1.example");
  EXPECT_EQ(endpoint.port, 29500);
  EXPECT_EQ(endpoint.describe(), "node-1.example:29500");
}

TEST(Endpoint, KeepsIPv6InBrackets) {
  const Endpoint endpoint = parse_endpoint("[::1]:80");
  EXPECT_EQ(endpoint.host, "::1");
  EXPECT_EQ(endpoint.port, 80);
  EXPECT_EQ(endpoint.describe(), "[::1]:80");
}

TEST(Endpoint, MayNameTheInterfaceOfALinkLocalAddress) {
  const Endpoint endpoint = parse_endpoint("[fe80::42:acff:fe11:2%eth0]:29500");
  EXPECT_EQ(endpoint.host, "fe80::42:acff:fe11:2%eth0");
  EXPECT_EQ(endpoint.port, 29500);
  EXPECT_EQ(endpoint.describe(), "[fe80::42:acff:fe11:2%eth0]:29500");
}

TEST(Endpoint, NamesATextItCannotRead) {
  for (const std::string text :
       {"", "host", ":80", "host:", "host:eighty", "host:80 ", "host:-1", "host:65536", "::1:80",
        "[::1]", "[]:80", "[host]:80", "[10.0.0.1]:80", "[fe80::1%]:80"}) {
    try {
      parse_endpoint(text);
      ADD_FAILURE() << "read '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("'" + text + "'"));
      EXPECT_THAT(error.what(), HasSubstr("HOST:PORT"));
    }
  }
}

TEST(Interface, IsFoundByName) { EXPECT_EQ(address_of_interface("lo"), "127.0.0.1"); }

TEST(Interface, MayBeGivenAsAnAddress) {
  EXPECT_EQ(address_of_interface("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(address_of_interface("::1"), "::1");
  EXPECT_EQ(address_of_interface("fe80::1%eth0"), "fe80::1%eth0");
}

TEST(Interface, ThatDoesNotExistIsNamedBesideThoseThatDo) {
  try {
    address_of_interface("fast0");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("'fast0'"));
    EXPECT_THAT(error.what(), HasSubstr("lo (127.0.0.1)"));
  }
}

}  // namespace
}  // namespace trireme::net::endpoint_test
