#include <trireme/launch/process.h>

#include <gmock/gmock.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/launch/descendants.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../watch/processes.h"

namespace trireme::launch::process_test {
namespace {

using ::testing::HasSubstr;
using tests::becomes_true;
using tests::is_alive;
using tests::read_all;
using tests::read_until;

ChildProcess start_shell(const std::string& script, std::vector<std::string> environment = {}) {
  environment.push_back("PATH=/usr/bin:/bin");
  return ChildProcess({"sh", "-c", script}, environment);
}

ProcessEnd end_of(ChildProcess& child) {
  std::optional<ProcessEnd> end;
  EXPECT_TRUE(becomes_true([&] { return (end = child.poll_end()).has_value(); }));
  return end.value_or(ProcessEnd{});
}

std::string first_line(int fd) {
  return read_until(fd,
                    [](const std::string& text) { return text.find('\n') != std::string::npos; });
}

Error error_of_starting(const std::string& program) {
  try {
    ChildProcess child({program, "argument"}, {});
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << program << " was started";
  return Error(ErrorCode::internal, "launch", "none");
}

TEST(ChildProcess, ReportsItsExitCode) {
  ChildProcess child = start_shell("exit 7");
  const ProcessEnd end = end_of(child);
  EXPECT_FALSE(end.by_signal);
  EXPECT_EQ(end.code, 7);
  EXPECT_EQ(end.describe(), "exit code 7");
}

TEST(ChildProcess, ReportsTheSignalThatKilledIt) {
  ChildProcess child = start_shell("kill -9 $$");
  const ProcessEnd end = end_of(child);
  EXPECT_TRUE(end.by_signal);
  EXPECT_EQ(end.code, SIGKILL);
  EXPECT_EQ(end.describe(), "killed by signal 9 (SIGKILL)");
}

TEST(ChildProcess, HasPipesForOutputAndErrors) {
  ChildProcess child = start_shell("echo out; echo err >&2");
  const int output = child.release_output();
  const int error_output = child.release_error_output();
  EXPECT_EQ(read_all(output), "out\n");
  EXPECT_EQ(read_all(error_output), "err\n");
  ::close(output);
  ::close(error_output);
}

TEST(ChildProcess, ReadsNothingFromStandardInput) {
  ChildProcess child = start_shell("cat");
  EXPECT_EQ(end_of(child).code, 0);
}

TEST(ChildProcess, SeesExactlyTheGivenEnvironment) {
  ChildProcess child({"env"}, {"ONE=1", "TWO=b c"});
  const int output = child.release_output();
  EXPECT_EQ(read_all(output), "ONE=1\nTWO=b c\n");
  ::close(output);
}

TEST(ChildProcess, LeadsAProcessGroup) {
  ChildProcess child = start_shell("cut -d ' ' -f 5 /proc/$$/stat");
  const int output = child.release_output();
  EXPECT_EQ(read_all(output), std::to_string(child.pid()) + "\n");
  ::close(output);
}

TEST(ChildProcess, InheritsNoDescriptor) {
  constexpr int kOpen = 77;
  ASSERT_EQ(::dup2(STDERR_FILENO, kOpen), kOpen);  // This descriptor is not close-on-exec.
  ChildProcess child = start_shell("[ -e /proc/$$/fd/77 ] && echo open || echo closed");
  ::close(kOpen);
  const int output = child.release_output();
  EXPECT_EQ(read_all(output), "closed\n");
  ::close(output);
}

TEST(ChildProcess, NamesAProgramThatIsNotFound) {
  const Error error = error_of_starting("no-such-program-7f3a");
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_THAT(error.what(), HasSubstr("'no-such-program-7f3a'"));
  EXPECT_EQ(exit_code_of(error), kExitUsage);
}

TEST(ChildProcess, NamesAFileThatIsNoProgram) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("not_a_program_" + std::to_string(::getpid()));
  std::ofstream(path) << "text";
  const Error error = error_of_starting(path);
  std::filesystem::remove(path);
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr(path));
  EXPECT_THAT(error.what(), HasSubstr("chmod +x"));
}

TEST(ChildProcess, SignalsItsDescendantsToo) {
  ChildProcess child = start_shell("sleep 1000 & echo $!; wait");
  const int output = child.release_output();
  const pid_t grandchild = std::stoi(first_line(output));
  child.signal_group(SIGTERM);
  EXPECT_EQ(end_of(child).code, SIGTERM);
  EXPECT_TRUE(becomes_true([&] { return !is_alive(grandchild); }));
  ::close(output);
}

TEST(ChildProcess, LeavesNoProcessOfItsGroupBehindAtItsEnd) {
  ChildProcess child = start_shell("sleep 1000 & echo $!");
  const int output = child.release_output();
  const pid_t grandchild = std::stoi(first_line(output));
  EXPECT_EQ(end_of(child).code, 0);
  EXPECT_TRUE(becomes_true([&] { return !is_alive(grandchild); }));
  ::close(output);
}

TEST(ChildProcess, IsKilledByItsDestructor) {
  pid_t pid = -1;
  {
    ChildProcess child = start_shell("trap '' TERM; sleep 1000");
    pid = child.pid();
    EXPECT_TRUE(is_alive(pid));
  }
  EXPECT_FALSE(is_alive(pid));
}

TEST(Descendants, EndsAProcessThatLeftItsGroup) {
  const Descendants descendants;
  pid_t daemon = -1;
  {
    ChildProcess child = start_shell("setsid sleep 1000 & echo $!; wait");
    const int output = child.release_output();
    daemon = std::stoi(first_line(output));
    ASSERT_TRUE(becomes_true([&] { return ::getpgid(daemon) == daemon; }));
    ::close(output);
  }
  EXPECT_TRUE(is_alive(daemon));
  EXPECT_TRUE(descendants.end_all(Deadline::after(Milliseconds(5000))));
  EXPECT_FALSE(is_alive(daemon));
}

TEST(Descendants, LeavesAProcessAloneThatServesOtherJobsToo) {
  pid_t server = -1;
  {
    const Descendants descendants;
    {
      ChildProcess child =
          start_shell(fmt::format("{} setsid sleep 1000 & echo $!; wait", kOutlivesJob));
      const int output = child.release_output();
      server = std::stoi(first_line(output));
      // While a process becomes another programme, the system shows no environment of it.
      ASSERT_TRUE(becomes_true([&] {
        std::ifstream name(fmt::format("/proc/{}/comm", server));
        std::string text;
        return std::getline(name, text) && text == "sleep" && ::getpgid(server) == server;
      }));
      ::close(output);
    }
    EXPECT_TRUE(descendants.end_all(Deadline::after(Milliseconds(5000))));
    EXPECT_TRUE(is_alive(server));
    ::kill(server, SIGKILL);
    EXPECT_TRUE(becomes_true([&] {
      descendants.reap_ended({});
      return ::kill(server, 0) != 0;
    }));
  }
}

TEST(Descendants, LeavesEarlierChildrenAlone) {
  ChildProcess earlier = start_shell("sleep 1000");
  const Descendants descendants;
  EXPECT_TRUE(descendants.end_all(Deadline::after(Milliseconds(5000))));
  EXPECT_TRUE(is_alive(earlier.pid()));
}

TEST(Descendants, ReapsOrphansThatEndedByThemselvesButNoWorker) {
  const Descendants descendants;
  ChildProcess worker = start_shell("exit 3");
  const pid_t orphan = [] {
    ChildProcess parent = start_shell("setsid sh -c 'echo $$; read line < /dev/null' & wait");
    const int output = parent.release_output();
    const pid_t pid = std::stoi(first_line(output));
    ::close(output);
    return pid;
  }();
  const auto exists = [](pid_t pid) { return ::kill(pid, 0) == 0; };
  EXPECT_TRUE(becomes_true([&] {
    descendants.reap_ended({worker.pid()});
    return !exists(orphan);
  }));
  EXPECT_TRUE(exists(worker.pid()));
  EXPECT_EQ(end_of(worker).code, 3);
}

}  // namespace
}  // namespace trireme::launch::process_test
