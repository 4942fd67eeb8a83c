// The coordinator's reports about workers that keep each other waiting in a collective.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/base/deadline.h>
#include "ranks.h"

namespace trireme::verdicts_test {
namespace {

using ::testing::HasSubstr;
using tests::Groups;
using tests::Workers;

constexpr Milliseconds kStall{200};

// Returns the first report; then all workers give up.
std::string said_while(Workers& workers, const Groups& groups,
                       const std::function<void(int worker, Group&)>& body) {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers.count(); ++worker)
    threads.emplace_back([&, worker] {
      Group& group = *groups[static_cast<size_t>(worker)];
      workers[worker].set_phase(Phase::exchange, 40);
      try {
        body(worker, group);
      } catch (const Error&) {  // The others gave up.
      }
    });
  std::string text;
  for (const Deadline deadline = Deadline::after(Milliseconds(8000));
       text.empty() && !deadline.expired();) {
    for (const membership::Notice& notice : workers.coordinator().take_notices())
      text += notice.text;
    std::this_thread::sleep_for(Milliseconds(5));
  }
  for (const auto& group : groups) group->abort("the test has seen enough");
  for (auto& thread : threads) thread.join();
  return text;
}

class Verdicts : public ::testing::TestWithParam<const char*> {
 protected:
  Workers make(int count) {
    WorldOptions options = tests::world_options(Milliseconds(10000));
    options.backend = GetParam();
    return Workers(count, options, {}, kStall);
  }
};

TEST_P(Verdicts, NameTheWorkerThatDoesNotComeToACollective) {
  Workers workers = make(3);
  const Groups groups = workers.make_groups();
  const std::string text = said_while(workers, groups, [&](int worker, Group& group) {
    if (worker != 1) return group.all_reduce(at::ones({1000}));
    workers[1].set_phase(Phase::forward, 40);
    std::this_thread::sleep_for(5 * kStall);
  });
  EXPECT_THAT(text, HasSubstr("stalled: worker 1 (host "));
  EXPECT_THAT(text, HasSubstr(" has been in forward of step 40 for "));
  // On a busy machine one of the two others may not have come yet.
  EXPECT_THAT(text,
              HasSubstr(" for it in exchange of step 40 (collective 1: all_reduce of 4.0 KB)"));
}

// The worker uses two groups in another order than the others, which no backend can notice.
TEST_P(Verdicts, NameTheWorkerThatCalledSomethingElse) {
  Workers workers = make(3);
  const Groups first = workers.make_groups(), second = workers.make_groups();
  Groups all = first;
  all.insert(all.end(), second.begin(), second.end());
  const std::string text = said_while(workers, all, [&](int worker, Group&) {
    if (worker == 1) second[1]->all_reduce(at::ones({2}));
    first[static_cast<size_t>(worker)]->all_reduce(at::ones({1000}));
  });
  EXPECT_THAT(text, HasSubstr("worker 1 (host "));
  EXPECT_THAT(text, HasSubstr("called a different operation than the others: it has waited in "
                              "exchange of step 40 (collective 1: all_reduce of 8 B)"));
  EXPECT_THAT(text, HasSubstr("in exchange of step 40 (collective 1: all_reduce of 4.0 KB)"));
}

INSTANTIATE_TEST_SUITE_P(Carriers, Verdicts, ::testing::Values("shm", "tcp"));

}  // namespace
}  // namespace trireme::verdicts_test
