#include <trireme/watch/phase_page.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <trireme/watch/phase_marks.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <thread>

namespace trireme::watch::phase_page_test {
namespace {

std::string said(const PhasePage& page) { return page.read()->at.describe(); }

TEST(PhasePage, ShowsPhaseStepAndCollective) {
  PhasePage page;
  EXPECT_EQ(said(page), "starting");
  page.set(Phase::backward, 40);
  EXPECT_EQ(said(page), "backward of step 40");
  page.set(Phase::exchange, 40);
  page.enter(page.next_collective(), "all_reduce", 12'300);
  EXPECT_EQ(said(page), "exchange of step 40 (collective 1: all_reduce of 12.3 KB)");
  EXPECT_TRUE(page.read()->at.collective.waits);
  page.work_on();
  EXPECT_FALSE(page.read()->at.collective.waits);
  EXPECT_TRUE(page.read()->at.collective.inside);
  page.leave();
  EXPECT_EQ(said(page), "exchange of step 40");
  page.enter(page.next_collective(),
             "an operation with a name that is much longer than the page has room for", 0);
  EXPECT_EQ(said(page),
            "exchange of step 40 (collective 2: an operation with a name that is much lo)");
}

TEST(PhasePage, CountsCollectivesAnewInEachStep) {
  PhasePage page;
  page.set(Phase::exchange, 1);
  EXPECT_EQ(page.next_collective(), 1);
  EXPECT_EQ(page.next_collective(), 2);
  page.set(Phase::optimizer);
  EXPECT_EQ(page.next_collective(), 3);
  page.set(Phase::data, 2);
  EXPECT_EQ(page.next_collective(), 1);
}

TEST(PhasePage, TellsOfASaveUntilTheLastOneHasEnded) {
  PhasePage page;
  EXPECT_FALSE(page.read()->saving);
  page.begin_save(40);
  page.set(Phase::forward, 41);  // The save continues in the background.
  EXPECT_EQ(page.read()->saving, 40);
  page.begin_save(45);
  page.end_save();
  EXPECT_EQ(page.read()->saving, 45);
  page.end_save();
  EXPECT_FALSE(page.read()->saving);
}

TEST(PhasePage, IsNotReadBeforeAProcessHasWritten) {
  EXPECT_FALSE(PhasePage::for_child()->read());
}

// A process may die at any moment: its last place is readable as a whole.
TEST(PhasePage, OutlivesItsWriter) {
  for (int round = 0; round < 20; ++round) {
    const auto page = PhasePage::for_child();
    const std::string handle = page->handle();
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("TRIREME_PHASE_PAGE", handle.c_str(), 1);
      const auto own = PhasePage::of_this_process();
      for (int64_t step = 1;; ++step) {
        own->set(Phase::data, step);
        own->set(Phase::exchange, step);
        own->enter(own->next_collective(), "gradients", step);
        own->leave();
      }
    }
    while (!page->read() || page->read()->at.step < 1000) std::this_thread::yield();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const PhaseAt last = page->read()->at;
    EXPECT_GE(last.step, 1000);
    EXPECT_TRUE(last.phase == Phase::data || last.phase == Phase::exchange) << last.describe();
    EXPECT_EQ(page->read()->at.step, last.step);
  }
}

TEST(PhasePage, IsNotTakenByTheHandleOfAnotherFile) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto page = PhasePage::for_child();
    ::setenv("TRIREME_PHASE_PAGE", (std::to_string(page->descriptor()) + ":1").c_str(), 1);
    PhasePage::of_this_process()->set(Phase::forward, 3);
    ::_exit(page->read() ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(PhasePage, ReadersSeeNoMixture) {
  PhasePage page;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int64_t step = 1; step <= 200'000; ++step) {
      page.set(Phase::exchange, step);
      page.enter(1, step % 2 == 0 ? "even" : "odd", step);
      page.leave();
    }
    done = true;
  });
  while (!done) {
    const PhaseAt at = page.read()->at;
    if (!at.collective.inside || at.collective.operation.empty()) continue;
    EXPECT_EQ(at.collective.bytes, at.step);
    EXPECT_EQ(at.collective.operation, at.step % 2 == 0 ? "even" : "odd");
  }
  writer.join();
}

TEST(PhasePage, SumsTimeByPhaseOverWholeSteps) {
  PhasePage page;
  for (int64_t step = 1; step <= 3; ++step) {
    page.set(Phase::data, step);
    page.set(Phase::forward, step);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    page.set(Phase::exchange, step);
    page.enter(page.next_collective(), "gradients", 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    page.leave();
  }
  const PhaseTimes times = page.read()->times;
  EXPECT_EQ(times.steps, 2);  // The third step has not ended.
  EXPECT_GE(times.of(Phase::forward), 0.010);
  EXPECT_LT(times.of(Phase::exchange), times.waiting);
  EXPECT_GE(times.waiting, 0.010);
}

TEST(PhasePage, CountsOnAfterAWaitForAnOlderCollective) {
  PhasePage page;
  page.set(Phase::exchange, 7);
  const int64_t older = page.next_collective(), newer = page.next_collective();
  page.enter(newer, "all_reduce", 0);
  page.leave();
  page.enter(older, "all_reduce", 0);
  EXPECT_EQ(page.read()->at.collective.number, 1);
  page.leave();
  EXPECT_EQ(page.read()->at.collective.number, 2);
  EXPECT_EQ(page.next_collective(), 3);
  page.set(Phase::data, 8);
  EXPECT_EQ(page.read()->at.collective.number, 0);
}

TEST(PhasePage, KeepsTheEndOfALongName) {
  PhasePage page;
  const std::string name = std::string("parameters of all hosts").append(kOfSomeRanks);
  page.enter(page.next_collective(), name, 0);
  EXPECT_EQ(page.read()->at.collective.operation, name);
}

TEST(PhaseMarks, ComeOnlyFromTheThreadThatMarks) {
  const auto page = std::make_shared<PhasePage>();
  page->set(Phase::exchange, 7);
  {
    const CollectiveMark nobody("all_reduce");
    EXPECT_EQ(said(*page), "exchange of step 7");
  }
  mark_this_thread(page);
  {
    const CollectiveMark outer("gradients");
    EXPECT_EQ(said(*page), "exchange of step 7 (collective 1: gradients)");
    {
      const CollectiveMark inner("barrier");
      EXPECT_EQ(said(*page), "exchange of step 7 (collective 1: gradients)");
    }
    EXPECT_FALSE(page->read()->at.collective.waits);  // It works again, in the same collective.
    EXPECT_EQ(next_collective(), kUnmarked);
  }
  EXPECT_EQ(next_collective(), 2);
  page->set(Phase::forward, 8);
  {
    // The first collective of a step may be one of some ranks.
    const AmongSomeRanks among(true);
    EXPECT_EQ(next_collective(), 0);
    const CollectiveMark mark("all_reduce");
    EXPECT_TRUE(page->read()->at.collective.waits);
  }
  page->set(Phase::exchange, 7);
  mark_phase(Phase::optimizer);
  EXPECT_EQ(said(*page), "optimizer of step 7");
  mark_this_thread(nullptr);
}

}  // namespace
}  // namespace trireme::watch::phase_page_test
