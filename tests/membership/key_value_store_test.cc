#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/key_value_store.h>

namespace trireme::membership::key_value_store_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Membership::Time kStart{};

class KeyValue : public testing::Test {
 protected:
  Membership::Messages send(int worker, Json request) {
    request["id"] = next++;
    return store.handle(worker, request, kStart);
  }
  Json reply(Json request) {
    const auto messages = send(0, std::move(request));
    EXPECT_THAT(messages, SizeIs(1));
    return messages.front().message;
  }
  Json set(const std::string& key, const std::string& value) {
    return {{"op", "set"}, {"key", key}, {"value", bytes(value)}};
  }
  Json get(const std::string& key) { return {{"op", "get"}, {"key", key}, {"timeout_ms", 2000}}; }
  Json add(const std::string& key, int64_t amount) {
    return {{"op", "add"}, {"key", key}, {"amount", amount}};
  }
  Json compare_set(const std::string& key, const std::string& expected,
                   const std::string& desired) {
    return {{"op", "compare_set"},
            {"key", key},
            {"expected", bytes(expected)},
            {"desired", bytes(desired)}};
  }
  std::string value(const Json& message) { return bytes_from(message.at("value")); }

  KeyValueStore store;
  int64_t next = 1;
};

TEST_F(KeyValue, HoldsBytes) {
  const std::string anything("\0\xff\n", 3);
  reply(set("k", anything));
  EXPECT_EQ(value(reply(get("k"))), anything);
  reply(set("k", ""));
  EXPECT_EQ(value(reply({{"op", "find"}, {"key", "k"}})), "");
}

TEST_F(KeyValue, FindsWithoutWaiting) {
  EXPECT_FALSE(reply({{"op", "find"}, {"key", "k"}}).contains("value"));
}

TEST_F(KeyValue, AnswersAllWaitingGetsWhenTheKeyIsSet) {
  EXPECT_THAT(send(1, get("k")), IsEmpty());
  EXPECT_THAT(send(2, get("k")), IsEmpty());
  EXPECT_THAT(send(2, get("other")), IsEmpty());
  const auto messages = send(0, set("k", "v"));
  ASSERT_THAT(messages, SizeIs(3));
  EXPECT_EQ(messages[0].to, 1);
  EXPECT_EQ(messages[1].to, 2);
  EXPECT_EQ(value(messages[1].message), "v");
  EXPECT_EQ(messages[2].to, 0);
}

TEST_F(KeyValue, AddAndCompareSetAnswerWaitingGetsToo) {
  send(1, get("sum"));
  EXPECT_THAT(send(0, add("sum", 3)), SizeIs(2));
  send(1, get("flag"));
  EXPECT_THAT(send(0, compare_set("flag", "", "up")), SizeIs(2));
}

TEST_F(KeyValue, AddsFromZeroAsDecimalText) {
  EXPECT_EQ(reply(add("n", 5)).at("sum"), 5);
  EXPECT_EQ(reply(add("n", -7)).at("sum"), -2);
  EXPECT_EQ(value(reply(get("n"))), "-2");
}

TEST_F(KeyValue, AddsToNumbersOnly) {
  reply(set("k", "12 apples"));
  EXPECT_THAT(failure_in(reply(add("k", 1)))->what, HasSubstr("'k'"));
}

TEST_F(KeyValue, ComparesBeforeItSets) {
  EXPECT_EQ(value(reply(compare_set("k", "x", "y"))), "x");  // The key is absent and stays so.
  EXPECT_FALSE(reply({{"op", "find"}, {"key", "k"}}).contains("value"));
  EXPECT_EQ(value(reply(compare_set("k", "", "y"))), "y");
  EXPECT_EQ(value(reply(compare_set("k", "x", "z"))), "y");
  EXPECT_EQ(value(reply(compare_set("k", "y", "z"))), "z");
}

TEST_F(KeyValue, ErasesAndCounts) {
  reply(set("a", "1"));
  reply(set("b", "2"));
  EXPECT_EQ(reply({{"op", "count"}}).at("count"), 2);
  EXPECT_EQ(reply({{"op", "erase"}, {"key", "a"}}).at("erased"), true);
  EXPECT_EQ(reply({{"op", "erase"}, {"key", "a"}}).at("erased"), false);
  EXPECT_EQ(reply({{"op", "count"}}).at("count"), 1);
}

TEST_F(KeyValue, EndsAWaitAtItsDeadlineNamingTheKey) {
  send(1, get("k"));
  EXPECT_THAT(store.tick(kStart + 1999ms), IsEmpty());
  const auto messages = store.tick(kStart + 2s);
  ASSERT_THAT(messages, SizeIs(1));
  EXPECT_EQ(failure_in(messages[0].message)->code, ErrorCode::timeout);
  EXPECT_EQ(failure_in(messages[0].message)->what, "no worker set key 'k' within 2.0 s");
  EXPECT_THAT(send(0, set("k", "v")), SizeIs(1));
}

TEST_F(KeyValue, EndsWaitsThatCannotSucceed) {
  send(1, get("k"));
  send(2, get("k"));
  const auto messages = store.fail_waits([](int worker) -> std::optional<Failure> {
    if (worker == 2) return Failure{ErrorCode::peer_lost, "gone", ""};
    return std::nullopt;
  });
  ASSERT_THAT(messages, SizeIs(1));
  EXPECT_EQ(messages[0].to, 2);
  EXPECT_THAT(send(0, set("k", "v")), SizeIs(2));
}

TEST_F(KeyValue, AnUnknownRequestIsAnError) { EXPECT_THROW(send(0, {{"op", "dance"}}), Error); }

}  // namespace
}  // namespace trireme::membership::key_value_store_test
