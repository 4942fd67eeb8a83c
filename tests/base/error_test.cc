#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <thread>

namespace trireme::error_test {
namespace {

// The rank belongs to the thread that sets it, so a thread of its own does not affect other tests.
std::string text_as_rank(int rank, int world_size) {
  std::string text;
  std::thread([&] {
    set_thread_rank(rank, world_size);
    text =
        Error(ErrorCode::timeout, "comm", "all_reduce waited 5 s", "a longer comm.timeout").what();
  }).join();
  return text;
}

TEST(Error, SaysRoomRankWhatAndRemedy) {
  EXPECT_EQ(text_as_rank(2, 4),
            "[comm] rank 2/4: all_reduce waited 5 s; try: a longer comm.timeout");
}

TEST(Error, LeavesOutAnUnknownRankAndAMissingRemedy) {
  EXPECT_STREQ(Error(ErrorCode::io, "base", "cannot read").what(), "[base] cannot read");
}

TEST(Error, IsTakenApartWithoutItsRank) {
  ErrorParts parts;
  std::thread([&] {
    set_thread_rank(2, 4);
    parts = parts_of(Error(ErrorCode::timeout, "comm", "worker 1: it waits", "a longer time"));
  }).join();
  EXPECT_EQ(parts.what, "worker 1: it waits");
  EXPECT_EQ(parts.remedy, "a longer time");
  parts = parts_of(Error(ErrorCode::io, "base", "cannot read"));
  EXPECT_EQ(parts.what, "cannot read");
  EXPECT_EQ(parts.remedy, "");
  parts = parts_of(std::runtime_error("[x] rank 1/2: first\nsecond"));
  EXPECT_EQ(parts.what, "[x] rank 1/2: first");
}

TEST(Error, KeepsItsCodeAndIsAStandardException) {
  try {
    throw Error(ErrorCode::corrupt, "data", "bad magic number");
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(dynamic_cast<const Error&>(error).code(), ErrorCode::corrupt);
  }
}

TEST(Error, HasANameForEveryCode) {
  EXPECT_EQ(to_string(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(to_string(ErrorCode::not_found), "not_found");
  EXPECT_EQ(to_string(ErrorCode::unsupported), "unsupported");
  EXPECT_EQ(to_string(ErrorCode::timeout), "timeout");
  EXPECT_EQ(to_string(ErrorCode::peer_lost), "peer_lost");
  EXPECT_EQ(to_string(ErrorCode::aborted), "aborted");
  EXPECT_EQ(to_string(ErrorCode::corrupt), "corrupt");
  EXPECT_EQ(to_string(ErrorCode::io), "io");
  EXPECT_EQ(to_string(ErrorCode::internal), "internal");
}

TEST(Error, GivesTheExitCodeThatTellsWhetherToRunAgain) {
  const auto exit_code = [](ErrorCode code) { return exit_code_of(Error(code, "base", "x")); };
  EXPECT_EQ(exit_code(ErrorCode::invalid_argument), 2);
  EXPECT_EQ(exit_code(ErrorCode::not_found), 2);
  EXPECT_EQ(exit_code(ErrorCode::unsupported), 2);
  EXPECT_EQ(exit_code(ErrorCode::timeout), 138);
  EXPECT_EQ(exit_code(ErrorCode::peer_lost), 138);
  EXPECT_EQ(exit_code(ErrorCode::aborted), 138);
  EXPECT_EQ(exit_code(ErrorCode::corrupt), 1);
  EXPECT_EQ(exit_code(ErrorCode::io), 1);
  EXPECT_EQ(exit_code(ErrorCode::internal), 1);
}

}  // namespace
}  // namespace trireme::error_test
