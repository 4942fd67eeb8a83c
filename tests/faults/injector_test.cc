// Faults strike once in a run; actions of a process on itself.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/faults/injector.h>
#include <chrono>
#include <fstream>

#include "../base/expect_error.h"

namespace trireme::injector_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class InjectorTest : public ::testing::Test {
 protected:
  InjectorTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "trireme-inject-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~InjectorTest() override { std::filesystem::remove_all(folder_); }

  FaultActions actions() {
    FaultActions actions;
    actions.kill = [this] { struck_.push_back("kill"); };
    actions.stop = [this](Milliseconds duration) {
      struck_.push_back(fmt::format("stop {}", duration.count()));
    };
    actions.sleep = [this](Milliseconds duration) {
      struck_.push_back(fmt::format("sleep {}", duration.count()));
    };
    actions.corrupt = [this](int64_t step) { struck_.push_back(fmt::format("corrupt {}", step)); };
    actions.drop_link = [this](int peer) { struck_.push_back(fmt::format("drop {}", peer)); };
    actions.fill_disk = [this] { struck_.push_back("full"); };
    return actions;
  }
  Injector injector(std::string_view faults) {
    return {schedule_faults(parse_faults(faults), 3), folder_ / "faults", actions()};
  }
  static void pass(Injector& injector, int rank, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step)
      for (const Phase phase :
           {Phase::data, Phase::forward, Phase::backward, Phase::exchange, Phase::optimizer})
        injector.at(rank, phase, step);
  }

  std::filesystem::path folder_;
  std::vector<std::string> struck_;
};

TEST_F(InjectorTest, EachFaultStrikesOnceAtItsPlace) {
  Injector injector = this->injector(
      "kill:rank=1@step=4; stop:rank=1@step=2,for=3s; corrupt:rank=0@step=3; "
      "corrupt:rank=1@step=3; disk-full:rank=1@step=2");
  pass(injector, 1, 1, 3);
  injector.at(1, Phase::checkpoint, 3);
  pass(injector, 1, 4, 6);
  injector.at(1, Phase::checkpoint, 6);
  EXPECT_THAT(struck_, ElementsAre("stop 3000", "corrupt 3", "full", "kill"));
}

TEST_F(InjectorTest, TellsOfAFaultBeforeItStrikesAndOfASlowRankOnce) {
  FaultActions told = actions();
  told.tell = [this](const Fault& fault, int64_t step) {
    struck_.push_back(fmt::format("told {} {}", step, to_string(fault.kind)));
  };
  Injector injector(parse_faults("corrupt:rank=1@step=3; slow:rank=1,forward=20ms"), {}, told);
  pass(injector, 1, 1, 3);
  EXPECT_THAT(struck_, ElementsAre("told 1 slow", "sleep 20", "sleep 20", "sleep 20",
                                   "told 3 corrupt", "corrupt 3"));
}

TEST_F(InjectorTest, AReplacementIsNotStruckAgain) {
  Injector first = injector("kill:rank=1@step=4; kill:rank=1@step=6");
  pass(first, 1, 1, 4);
  Injector replacement = injector("kill:rank=1@step=4; kill:rank=1@step=6");
  pass(replacement, 1, 4, 5);
  EXPECT_THAT(struck_, ElementsAre("kill")) << "step 4 is done again";
  pass(replacement, 1, 6, 6);
  EXPECT_THAT(struck_, ElementsAre("kill", "kill"));
}

TEST_F(InjectorTest, TheSameFaultTwiceStrikesTwoRunsThroughTheStep) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    Injector injector(parse_faults("kill:rank=1@step=4; kill:rank=1@step=4"), folder_ / "faults",
                      [this] {
                        FaultActions ends = actions();
                        ends.kill = [this] {
                          struck_.push_back("kill");
                          throw std::runtime_error("killed");
                        };
                        return ends;
                      }());
    try {
      pass(injector, 1, 4, 4);
      struck_.push_back("through");
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_THAT(struck_, ElementsAre("kill", "kill", "through"));
}

TEST_F(InjectorTest, WithoutAFolderTheObjectRemembers) {
  Injector injector(parse_faults("kill:rank=0@step=2"), {}, actions());
  pass(injector, 0, 1, 2);
  pass(injector, 0, 2, 3);
  EXPECT_THAT(struck_, ElementsAre("kill"));
}

TEST_F(InjectorTest, ALinkIsShutAtBothEnds) {
  Injector one = injector("drop:link=0-2@step=2"), other = injector("drop:link=0-2@step=2"),
           third = injector("drop:link=0-2@step=2");
  pass(one, 0, 1, 3);
  pass(other, 2, 1, 3);
  pass(third, 1, 1, 3);
  EXPECT_THAT(struck_, ElementsAre("drop 2", "drop 0"));
}

TEST_F(InjectorTest, ASlowRankLeavesNoMark) {
  Injector injector = this->injector("slow:rank=0,forward=2ms@step=2");
  pass(injector, 0, 1, 3);
  EXPECT_THAT(struck_, ElementsAre("sleep 2", "sleep 2"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "faults"));
}

TEST_F(InjectorTest, RefusesFaultsThatTheRunCannotCause) {
  const auto refused = [](std::string_view text) {
    return message_of(ErrorCode::unsupported,
                      [&] { Injector(parse_faults(text), {}, process_actions()); });
  };
  EXPECT_THAT(refused("drop:link=0-1@step=3"),
              AllOf(HasSubstr("drop:link=0-1@step=3"), HasSubstr("comm.backend=tcp")));
  EXPECT_THAT(refused("disk-full@step=3"), HasSubstr("checkpoints"));
}

TEST_F(InjectorTest, WithoutAMarkNothingStrikes) {
  std::ofstream(folder_ / "faults") << "a file, where the folder should be";
  Injector injector = this->injector("kill:rank=0@step=2");
  EXPECT_THAT(message_of(ErrorCode::io, [&] { pass(injector, 0, 2, 2); }), HasSubstr("faults"));
  EXPECT_THAT(struck_, IsEmpty());
}

// Runs `body` in another process, for up to 10 s, and returns how that process ended.
template <typename Body>
int status_of(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(FaultActions, KillEndsTheProcessAsKillMinusNineDoes) {
  const int status = status_of([] { process_actions().kill(); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(FaultActions, AStoppedProcessContinuesByItself) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    process_actions().stop(Milliseconds(1));
    process_actions().stop(Milliseconds(50));
    _exit(waitpid(-1, nullptr, WNOHANG) == -1 ? 7 : 8);  // No child remains.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  do {
    ASSERT_EQ(waitpid(child, &status, 0), child);
  } while (!WIFEXITED(status) && !WIFSIGNALED(status));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(FaultActions, TheWakerOfAStoppedProcessDiesWithIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], 1);
    process_actions().stop(Milliseconds(60'000));
    _exit(0);
  }
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "no process holds the pipe any more";
  close(ends[0]);
}

}  // namespace
}  // namespace trireme::injector_test
