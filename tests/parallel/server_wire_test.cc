#include <trireme/parallel/servers/server_wire.h>
#include <string>

// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::servers {
namespace {

using ::testing::HasSubstr;

std::string request_for(int shard, std::string_view text) {
  return encode(ServerRequest{
      .call = ServerCall::hold, .worker = 3, .clock = 7, .shard = shard, .text = text});
}

TEST(ServerWire, RidersKeepTheirOrderAndTheTextOfTheRequest) {
  const std::string first = request_for(0, "one"), second = request_for(1, ""),
                    main = request_for(2, "three");
  const std::string header = with_riders({{first, 4}, {second, 0}}, main);
  const RiddenRequest ridden = riders_in(header);
  ASSERT_EQ(ridden.riders.size(), 2U);
  EXPECT_EQ(ridden.riders[0].header, first);
  EXPECT_EQ(ridden.riders[0].tensors, 4U);
  EXPECT_EQ(ridden.riders[1].header, second);
  EXPECT_EQ(ridden.header, main);
  EXPECT_EQ(decode_request(ridden.header).text, "three");
  EXPECT_EQ(decode_request(ridden.riders[0].header).clock, 7);
}

TEST(ServerWire, ARequestWithoutRidersIsItself) {
  const std::string alone = request_for(2, "text");
  EXPECT_TRUE(riders_in(alone).riders.empty());
  EXPECT_EQ(riders_in(alone).header, alone);
}

TEST(ServerWire, HeadersThatAreCutOffAreRefused) {
  const std::string first = request_for(0, "one");
  const std::string header = with_riders({{first, 4}}, first);
  for (size_t bytes = sizeof(uint32_t) * 2; bytes < header.size() - first.size(); ++bytes)
    EXPECT_THAT(message_of(ErrorCode::corrupt,
                           [&] { riders_in(std::string_view(header).substr(0, bytes)); }),
                HasSubstr("lists 1 riders"));
  std::string many = header;
  many[sizeof(uint32_t) + 3] = '\x7f';  // About two thousand million riders.
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { riders_in(many); }), HasSubstr("riders"));
}

TEST(ServerWire, RepliesComeApartAgain) {
  const std::string rider = encode(ServerReply{.version = 5, .is_deposed = true}),
                    main = encode(ServerReply{.version = 6, .has_all_beside = true, .text = "x"});
  const std::string header = rider + main;
  const auto replies = split_replies(header, 1);
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(decode_reply(replies[0]).version, 5);
  EXPECT_TRUE(decode_reply(replies[0]).is_deposed);
  EXPECT_FALSE(decode_reply(replies[0]).has_all_beside);
  EXPECT_TRUE(decode_reply(replies[1]).has_all_beside);
  EXPECT_EQ(decode_reply(replies[1]).text, "x");
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { split_replies("short", 1); }),
              HasSubstr("1 riders"));
}

}  // namespace
}  // namespace trireme::servers
