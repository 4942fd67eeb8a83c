#include <trireme/base/standard_error.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>
#include <array>
#include <string>

namespace trireme::standard_error_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// Standard error is a pipe that no process reads.
class Unread : public testing::Test {
 protected:
  Unread() {
    EXPECT_EQ(::pipe2(pipe_.data(), O_CLOEXEC), 0);
    ::fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    ::dup2(pipe_[1], STDERR_FILENO);
  }
  ~Unread() override {
    ::dup2(before_, STDERR_FILENO);
    for (const int descriptor : {before_, pipe_[0], pipe_[1]}) ::close(descriptor);
  }
  std::string read() const {
    std::string text;
    std::array<char, 65536> buffer{};
    for (ssize_t got = 0; (got = ::read(pipe_[0], buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<size_t>(got));
    return text;
  }

 private:
  int before_ = ::dup(STDERR_FILENO);
  std::array<int, 2> pipe_{};
};

TEST_F(Unread, StandardErrorNeverBlocksAndCountsDroppedLines) {
  const std::string line(999, 'x');
  for (int i = 0; i < 100; ++i) write_to_standard_error(line + "\n");  // A pipe holds 64 KiB.
  const std::string held = read();
  EXPECT_LT(held.size(), 100000U);
  write_to_standard_error("again\n");
  const std::string after = read();
  EXPECT_THAT(after,
              HasSubstr(std::to_string(100 - held.size() / 1000) + " messages were dropped here"));
  EXPECT_THAT(after, EndsWith("again\n"));
}

TEST_F(Unread, LongLinesArriveWhole) {
  const std::string line(20000, 'y');
  write_to_standard_error(line + "\n");
  EXPECT_EQ(read(), line + "\n");
}

}  // namespace
}  // namespace trireme::standard_error_test
