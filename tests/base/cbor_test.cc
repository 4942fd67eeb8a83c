#include <gtest/gtest.h>
#include <pthread.h>
#include <trireme/base/cbor.h>
#include <trireme/base/error.h>
#include <functional>
#include <random>
#include <vector>
#include "expect_error.h"

namespace trireme::cbor_test {
namespace {

using Bytes = std::vector<uint8_t>;

// Runs `body` on a stack of 128 KiB, which is as small as that of any thread of ours.
void on_a_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  (*static_cast<std::function<void()>*>(argument))();
                  return nullptr;
                },
                &body),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Whether the bytes are a value. If not, the error must call them corrupt.
bool is_read(const Bytes& bytes) {
  try {
    read_cbor(bytes, "test");
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    return false;
  }
}

Json nested(size_t levels, bool arrays) {
  Json value = 7;
  for (size_t i = 0; i < levels; ++i) {
    if (arrays)
      value = Json::array({value});
    else
      value = Json{{"a", value}};
  }
  return value;
}

TEST(Cbor, ReadsValuesThatWeWrite) {
  const Json value{{"int", -5},
                   {"large", uint64_t{1} << 63},
                   {"float", 0.1},
                   {"text", std::string(70000, 'x')},
                   {"empty", Json::object()},
                   {"list", {1, nullptr, true, Json::array()}},
                   {"bytes", Json::binary(Bytes(300, 7))}};
  EXPECT_EQ(read_cbor(Json::to_cbor(value), "test"), value);
  for (const Json& scalar : {Json(1), Json("a"), Json(nullptr), Json(2.5), Json::array()})
    EXPECT_EQ(read_cbor(Json::to_cbor(scalar), "test"), scalar);
}

TEST(Cbor, NestingHasALimit) {
  for (const bool arrays : {true, false}) {
    EXPECT_EQ(read_cbor(Json::to_cbor(nested(kMaxCborDepth, arrays)), "test"),
              nested(kMaxCborDepth, arrays));
    EXPECT_FALSE(is_read(Json::to_cbor(nested(kMaxCborDepth + 1, arrays))));
  }
}

TEST(Cbor, NestingOfAnyKindDoesNotUseTheStack) {
  on_a_small_stack([] {
    // Arrays, maps, texts and bytes, of one item and of indefinite length; and tags.
    for (const uint8_t byte : {0x81, 0x9f, 0x7f, 0x5f, 0xc0, 0xd8}) {
      EXPECT_FALSE(is_read(Bytes(10'000'000, byte))) << int{byte};
      Bytes in_object{0xa1, 0x61, 'a'};
      in_object.insert(in_object.end(), 1'000'000, byte);
      EXPECT_FALSE(is_read(in_object)) << int{byte};
    }
    for (const Bytes& unit :
         {Bytes{0xa1, 0x61, 'a'}, Bytes{0xbf, 0x61, 'a'}, Bytes{0xbf, 0x7f}, Bytes{0x82, 0x01}}) {
      Bytes bytes;
      for (int i = 0; i < 1'000'000; ++i) bytes.insert(bytes.end(), unit.begin(), unit.end());
      EXPECT_FALSE(is_read(bytes));
    }
  });
}

TEST(Cbor, CountsThatTheBytesCannotHoldAreRefused) {
  for (const uint8_t kind : {0x5b, 0x7b, 0x9b, 0xbb})
    for (const uint8_t top : {0x7f, 0xff, 0x00})
      EXPECT_FALSE(is_read({kind, top, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00}));
}

TEST(Cbor, EveryTruncationAndEveryExtensionIsRefused) {
  const Bytes whole = Json::to_cbor(Json{{"a", {1, 2.5, "text"}}, {"b", Json::binary({1, 2})}});
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(is_read({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}));
  for (int byte = 0; byte < 256; ++byte) {
    Bytes longer = whole;
    longer.push_back(static_cast<uint8_t>(byte));
    EXPECT_FALSE(is_read(longer));
  }
}

TEST(Cbor, RandomBytesAreAValueOrCorrupt) {
  on_a_small_stack([] {
    std::mt19937 random(12);
    const auto below = [&](size_t bound) { return random() % bound; };
    const Bytes whole = Json::to_cbor(Json{{"op", "join"}, {"facts", {{"a", {1, 2, 3}}}}});
    int read = 0;
    for (int round = 0; round < 50'000; ++round) {
      Bytes bytes = whole;
      if (round % 2) {
        bytes.assign(below(64), 0);
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      } else {
        for (size_t changes = 1 + below(3); changes > 0; --changes)
          bytes[below(bytes.size())] = static_cast<uint8_t>(random());
      }
      read += is_read(bytes);
    }
    EXPECT_GT(read, 100);
  });
}

}  // namespace
}  // namespace trireme::cbor_test
