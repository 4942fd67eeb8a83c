#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/net/framing.h>

namespace trireme::net::framing_test {
namespace {

constexpr int64_t kLimit = 1000;

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal;
}

Json decode(std::vector<uint8_t> bytes) { return decode_message(bytes); }

TEST(Framing, ReturnsTheMessageThatWentIn) {
  Json message{{"op", "set"}, {"step", -7}, {"fraction", 0.25}, {"list", {1, nullptr, true}}};
  message["value"] = Json::binary({0, 255, 10});
  const auto frame = encode_frame(message, kLimit);
  LengthPrefix prefix;
  std::copy_n(frame.begin(), prefix.size(), prefix.begin());
  ASSERT_EQ(decode_length(prefix, kLimit), frame.size() - prefix.size());
  EXPECT_EQ(decode_message(std::span(frame).subspan(prefix.size())), message);
}

TEST(Framing, WritesTheLengthBigEndian) {
  const auto frame = encode_frame(Json{{"text", std::string(300, 'x')}}, kLimit);
  EXPECT_EQ(frame[0], 0);
  EXPECT_EQ(frame[1], 0);
  EXPECT_EQ(static_cast<size_t>(frame[2]) * 256 + frame[3], frame.size() - 4);
}

TEST(Framing, RefusesToSendAMessageOverTheLimit) {
  EXPECT_EQ(code_of([] { encode_frame(Json{{"text", std::string(kLimit, 'x')}}, kLimit); }),
            ErrorCode::invalid_argument);
}

TEST(Framing, RefusesALengthOfZeroOrOverTheLimit) {
  EXPECT_EQ(decode_length({0, 0, 3, 232}, kLimit), 1000u);
  for (const LengthPrefix prefix :
       {LengthPrefix{0, 0, 0, 0}, LengthPrefix{0, 0, 3, 233}, LengthPrefix{255, 255, 255, 255}})
    EXPECT_EQ(code_of([&] { decode_length(prefix, kLimit); }), ErrorCode::corrupt);
}

TEST(Framing, CallsBytesThatAreNotOneObjectCorrupt) {
  const std::vector<uint8_t> truncated{0xa1, 0x61, 'a'};
  const std::vector<uint8_t> trailing{0xa0, 0x00};
  const std::vector<uint8_t> array{0x80};
  const std::vector<uint8_t> huge_array{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  const std::vector<uint8_t> reserved{0xff};
  for (const auto& bytes :
       {std::vector<uint8_t>{}, truncated, trailing, array, huge_array, reserved})
    EXPECT_EQ(code_of([&] { decode(bytes); }), ErrorCode::corrupt);
}

TEST(Framing, EveryTruncationOfAMessageIsCorrupt) {
  const auto whole = Json::to_cbor(Json{{"op", "join"}, {"facts", {{"a", "b"}}}, {"pid", 70000}});
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(code_of([&] {
                decode({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
              }),
              ErrorCode::corrupt);
}

TEST(Framing, ATagBelongsToOneKeyNumberAndText) {
  const std::array<uint8_t, 32> key{1}, other_key{2};
  const std::vector<uint8_t> text{1, 2, 3}, longer{1, 2, 3, 4};
  const FrameTag tag = tag_frame(key, 0, {text});
  EXPECT_EQ(tag, tag_frame(key, 0, {std::span(text).first(1), std::span(text).subspan(1)}));
  EXPECT_NE(tag, tag_frame(other_key, 0, {text}));
  EXPECT_NE(tag, tag_frame(key, 1, {text}));
  EXPECT_NE(tag, tag_frame(key, 0, {longer}));
}

}  // namespace
}  // namespace trireme::net::framing_test
