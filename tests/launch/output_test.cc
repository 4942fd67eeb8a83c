#include <trireme/launch/output.h>

#include <gmock/gmock.h>

#include <fcntl.h>
#include <trireme/launch/relay.h>
#include <csignal>
#include <string>
#include <vector>

#include "../watch/processes.h"

namespace trireme::launch::output_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::read_all;

struct Lines {
  std::vector<std::string> seen;
  LineSplitter::OnLine sink = [this](const std::string& line) { seen.push_back(line); };
};

struct TestPipe {
  TestPipe() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
  ~TestPipe() {
    close_read();
    close_write();
  }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  int release_read() { return std::exchange(ends[0], -1); }
  void write(const std::string& text) {
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int ends[2] = {-1, -1};
};

TEST(LineSplitter, JoinsPiecesIntoLines) {
  Lines lines;
  LineSplitter splitter;
  for (const char* piece : {"on", "e\ntw", "o", "\n", "\nthree\nfo"})
    splitter.feed(piece, lines.sink);
  EXPECT_THAT(lines.seen, ElementsAre("one", "two", "", "three"));
}

TEST(LineSplitter, HandsOnALastLineWithoutEnd) {
  Lines lines;
  LineSplitter splitter;
  splitter.feed("one\ntwo", lines.sink);
  splitter.finish(lines.sink);
  EXPECT_THAT(lines.seen, ElementsAre("one", "two"));
  splitter.finish(lines.sink);
  EXPECT_EQ(lines.seen.size(), 2u);
}

TEST(LineSplitter, CutsALongLineIntoPieces) {
  Lines lines;
  LineSplitter splitter(4);
  splitter.feed("abcdefghij\nk\n", lines.sink);
  EXPECT_THAT(lines.seen, ElementsAre("abcd", "efgh", "ij", "k"));
}

TEST(LineSplitter, DoesNotAddAnEmptyLineAfterOneOfTheGreatestLength) {
  Lines lines;
  LineSplitter splitter(4);
  splitter.feed("abcd", lines.sink);
  splitter.feed("\nefgh\n", lines.sink);
  EXPECT_THAT(lines.seen, ElementsAre("abcd", "efgh"));
}

TEST(LineWriter, WritesPrefixLineAndEndInOneWrite) {
  int ends[2];
  // A packet pipe keeps the borders of writes.
  ASSERT_EQ(::pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
  LineWriter writer(ends[1]);
  writer.write_line("[2] ", "loss 0.5");
  writer.write_line("[1] ", "");
  char bytes[64];
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(::read(ends[0], bytes, sizeof bytes))),
            "[2] loss 0.5\n");
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(::read(ends[0], bytes, sizeof bytes))),
            "[1] \n");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LineWriter, KeepsLinesForAReaderThatDoesNotRead) {
  TestPipe pipe;
  LineWriter writer(pipe.ends[1]);
  std::string expected;
  for (int i = 0; !writer.is_full(); ++i) {
    const std::string line =
        std::to_string(i) + std::string(static_cast<size_t>(i) * 7 % 9000, 'x');
    writer.write_line("", line);
    expected += line + "\n";
  }
  ASSERT_TRUE(writer.has_pending());
  std::string got;
  while (writer.has_pending()) {
    const size_t before = got.size();
    got += tests::read_until(pipe.ends[0], [](const std::string& text) { return !text.empty(); });
    ASSERT_GT(got.size(), before);
    writer.write_pending();
  }
  pipe.close_write();
  EXPECT_EQ(got + read_all(pipe.ends[0]), expected);
  EXPECT_FALSE(writer.is_full());
}

TEST(LineWriter, DropsLinesThatNobodyCanRead) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  TestPipe pipe;
  pipe.close_read();
  LineWriter writer(pipe.ends[1]);
  writer.write_line("", "one");
  writer.write_line("", "two");
  EXPECT_FALSE(writer.has_pending());
  std::signal(SIGPIPE, before);
}

class RelayedWorker {
 public:
  RelayedWorker(OutputRelay& relay, int worker) {
    for (TestPipe* pipe : {&output, &error_output}) ::fcntl(pipe->ends[0], F_SETFL, O_NONBLOCK);
    relay.add_worker(worker, output.release_read(), error_output.release_read());
  }
  TestPipe output;
  TestPipe error_output;
};

TEST(OutputRelay, PrefixesEachLineWithItsWorker) {
  TestPipe out;
  TestPipe err;
  OutputRelay relay(true, {}, out.ends[1], err.ends[1]);
  RelayedWorker zero(relay, 0);
  RelayedWorker two(relay, 2);
  zero.output.write("a\nb\n");
  two.error_output.write("c\n");
  relay.run_once();
  out.close_write();
  err.close_write();
  EXPECT_EQ(read_all(out.ends[0]), "[0] a\n[0] b\n");
  EXPECT_EQ(read_all(err.ends[0]), "[2] c\n");
}

TEST(OutputRelay, LetsTheCallerSwallowLinesOfStandardOutput) {
  TestPipe out;
  TestPipe err;
  std::vector<std::string> swallowed;
  OutputRelay relay(
      true,
      [&](int worker, const std::string& line) {
        if (line[0] != '{') return false;
        swallowed.push_back(std::to_string(worker) + line);
        return true;
      },
      out.ends[1], err.ends[1]);
  RelayedWorker one(relay, 1);
  one.output.write("{1}\nhello\n");
  one.error_output.write("{2}\n");
  relay.run_once();
  out.close_write();
  err.close_write();
  EXPECT_THAT(swallowed, ElementsAre("1{1}"));
  EXPECT_EQ(read_all(out.ends[0]), "[1] hello\n");
  EXPECT_EQ(read_all(err.ends[0]), "[1] {2}\n");
}

TEST(OutputRelay, WithoutPrefixHandsLinesOnUnchanged) {
  TestPipe out;
  TestPipe err;
  OutputRelay relay(false, {}, out.ends[1], err.ends[1]);
  RelayedWorker zero(relay, 0);
  zero.output.write("a\n");
  relay.run_once();
  out.close_write();
  EXPECT_EQ(read_all(out.ends[0]), "a\n");
}

TEST(OutputRelay, ClosesAStreamAtItsEndAndHandsOnItsLastLine) {
  TestPipe out;
  TestPipe err;
  OutputRelay relay(true, {}, out.ends[1], err.ends[1]);
  RelayedWorker zero(relay, 0);
  zero.output.write("no end");
  zero.output.close_write();
  zero.error_output.close_write();
  relay.run_once();
  relay.run_once();
  EXPECT_FALSE(relay.has_open_stream());
  out.close_write();
  EXPECT_EQ(read_all(out.ends[0]), "[0] no end\n");
}

TEST(OutputRelay, LetsWorkersWaitWhileItsReaderIsFarBehind) {
  TestPipe out;
  TestPipe err;
  OutputRelay relay(true, {}, out.ends[1], err.ends[1]);
  RelayedWorker zero(relay, 0);
  const std::string line = std::string(4000, 'x') + "\n";
  const auto waits_for_worker = [&] {
    std::vector<pollfd> polled;
    relay.add_to_poll(polled);
    return std::ranges::any_of(polled, [](const pollfd& entry) { return entry.events == POLLIN; });
  };
  int lines = 0;
  for (; waits_for_worker() && lines < 1000; ++lines) {
    zero.output.write(line);
    relay.run_once();
  }
  EXPECT_LT(lines, 1000);
  EXPECT_TRUE(relay.has_unwritten());
}

}  // namespace
}  // namespace trireme::launch::output_test
