#include "job.h"

#include <gmock/gmock.h>
#include <unistd.h>
#include <atomic>

namespace trireme::membership::member_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Member, LearnsOfAllPeers) {
  TestJob job(3);
  job.join_all();
  for (int worker = 0; worker < 3; ++worker) {
    const auto& peers = job[worker].peers();
    ASSERT_EQ(peers.size(), 3u);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(peers[static_cast<size_t>(peer)].worker, peer);
      EXPECT_EQ(peers[static_cast<size_t>(peer)].pid, ::getpid());
      EXPECT_EQ(peers[static_cast<size_t>(peer)].address, "127.0.0.1");
      EXPECT_FALSE(peers[static_cast<size_t>(peer)].host.empty());
    }
  }
}

TEST(Member, OneWorkerIsAJob) {
  TestJob job(1);
  job.join_all();
  job[0].agree("model", {{"layers", "3"}});
  job[0].barrier("end");
  job[0].set("k", "v");
  EXPECT_EQ(job[0].get("k", soon()), "v");
  EXPECT_GT(job[0].coordinator_cpu_seconds(), 0);
}

TEST(Member, AFactThatMustAgreeAndDoesNotIsNamedOnEveryWorker) {
  TestJob job(3);
  on_each(3, [&](int worker) {
    const Error error =
        error_of([&] { job.join(worker, {{"replicas", worker == 1 ? "2" : "1"}}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[membership]"), HasSubstr("worker 1 (host "),
                                    HasSubstr("replicas"), HasSubstr("'2'")));
  });
  EXPECT_TRUE(job.coordinator.wait_until_all_left(soon()));
  EXPECT_FALSE(job.coordinator.first_lost());
}

TEST(Member, MissingWorkersAreNamedAtTheDeadline) {
  TestJob job(3, {.timeout = Milliseconds(200)});
  const Error error = error_of([&] { job.join(1); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 0 and worker 2 of 3"), HasSubstr("ms")));
}

TEST(Member, AJoinOfAnotherGenerationIsRefused) {
  TestJob job(1);
  const Error error =
      error_of([&] { Member(job.coordinator.endpoint(), kToken, 0, 1, 4, {}, job.options); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("generation 4"), HasSubstr("generation 5")));
}

TEST(Member, AJoinWithATakenNumberIsRefusedAndTheJobContinues) {
  TestJob job(2);
  job.join_all();
  EXPECT_EQ(error_of([&] { job.join(1); }).code(), ErrorCode::invalid_argument);
  on_each(2, [&](int worker) { job[worker].barrier("still here"); });
}

TEST(Member, FactsThatDifferAreNamedOnEveryWorker) {
  TestJob job(3);
  job.join_all();
  on_each(3, [&](int worker) {
    job[worker].agree("model", {{"layers", "3"}});
    const Error error = error_of(
        [&] { job[worker].agree("configuration", {{"lr", worker == 2 ? "0.2" : "0.1"}}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'configuration': lr is '0.1' on worker 0 (host "),
                                    HasSubstr("'0.2' on worker 2 (host ")));
    job[worker].barrier("after");
  });
}

TEST(Member, NoWorkerPassesABarrierBeforeAllHaveCome) {
  TestJob job(4);
  job.join_all();
  std::atomic<int> arrived{0};
  on_each(4, [&](int worker) {
    for (int round = 1; round <= 10; ++round) {
      ++arrived;
      job[worker].barrier("step");
      EXPECT_GE(arrived, 4 * round);
      job[worker].barrier("checked");
    }
  });
}

TEST(Member, AGetWaitsForAnotherWorkersSet) {
  TestJob job(2);
  job.join_all();
  const std::string anything("\0\xff\n", 3);
  on_each(2, [&](int worker) {
    if (worker == 0) {
      EXPECT_EQ(job[0].get("k", soon()), anything);
    } else {
      job[1].set("k", anything);
    }
  });
}

TEST(Member, TheStoreIsOneForAll) {
  TestJob job(3);
  job.join_all();
  on_each(3, [&](int worker) {
    for (int i = 0; i < 20; ++i) job[worker].add("sum", worker);
  });
  EXPECT_EQ(job[0].get("sum", soon()), "60");
  EXPECT_EQ(job[1].compare_set("sum", "60", "done"), "done");
  EXPECT_EQ(job[2].find("sum"), "done");
  EXPECT_EQ(job[0].count_keys(), 1);
  EXPECT_TRUE(job[1].erase("sum"));
  EXPECT_EQ(job[2].find("sum"), std::nullopt);
}

TEST(Member, ManyThreadsOfOneWorkerMayCallAtOnce) {
  TestJob job(2);
  job.join_all();
  on_each(8, [&](int thread) {
    Member& member = job[thread % 2];
    const std::string own = std::to_string(thread);
    const std::string others = std::to_string(thread ^ 1);
    for (int i = 0; i < 10; ++i) {
      member.set(own + "." + std::to_string(i), own);
      EXPECT_EQ(member.get(others + "." + std::to_string(i), soon()), others);
      member.barrier(std::to_string(thread / 2));
    }
  });
}

TEST(Member, AGetEndsAtItsDeadlineNamingTheKey) {
  TestJob job(2);
  job.join_all();
  const Deadline limit = soon();
  const Error error = error_of([&] { job[0].get("never", Deadline::after(Milliseconds(100))); });
  EXPECT_FALSE(limit.expired());
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("'never'"), HasSubstr("ms")));
}

TEST(Member, ABarrierEndsAtItsDeadlineNamingTheMissingWorkers) {
  TestJob job(3, {.timeout = Milliseconds(1500), .heartbeat_interval = Milliseconds(20)});
  job.join_all();
  on_each(2, [&](int worker) {
    const Error error = error_of([&] { job[worker].barrier("end"); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 2 (host "), HasSubstr("barrier 'end'"),
                                    HasSubstr("1.5 s")));
  });
}

TEST(Member, AfterAWorkerIsLostEveryWaitOfTheOthersEnds) {
  TestJob job(4);
  job.join_all();
  job[3].phases().set(Phase::backward, 40);
  ASSERT_TRUE(eventually([&] { return job.coordinator.last_phase(3).step == 40; }));
  on_each(4, [&](int worker) {
    if (worker == 3) {
      job.members[3].reset();  // It does not say goodbye.
      return;
    }
    const Error error = error_of([&] {
      if (worker == 0) job[0].get("never", soon());
      if (worker == 1) job[1].barrier("never");
      if (worker == 2) job[2].agree("never", {});
    });
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 3 (host "), HasSubstr("backward of step 40"),
                                    HasSubstr("connection closed")));
    EXPECT_TRUE(eventually([&] { return job[worker].is_lost(); }));
    EXPECT_EQ(job[worker].lost()->worker, 3);
    EXPECT_EQ(error_of([&] { job[worker].throw_if_lost(); }).code(), ErrorCode::peer_lost);
    EXPECT_EQ(error_of([&] { job[worker].barrier("later"); }).code(), ErrorCode::peer_lost);
  });
}

TEST(Member, WithoutALostWorkerNothingIsThrown) {
  TestJob job(2);
  job.join_all();
  EXPECT_FALSE(job[0].is_lost());
  EXPECT_FALSE(job[0].lost());
  EXPECT_NO_THROW(job[0].throw_if_lost());
}

TEST(Member, AWorkerThatSaysGoodbyeIsNotLostButEndsTheWaitsForIt) {
  TestJob job(2);
  job.join_all();
  on_each(2, [&](int worker) {
    if (worker == 1) {
      job[1].leave();
      job[1].leave();
      return;
    }
    const Error in_get = error_of([&] { job[0].get("never", soon()); });
    EXPECT_EQ(in_get.code(), ErrorCode::peer_lost);
    EXPECT_THAT(in_get.what(), AllOf(HasSubstr("worker 1 (host "), HasSubstr("left")));
    const Error in_barrier = error_of([&] { job[0].barrier("end"); });
    EXPECT_EQ(in_barrier.code(), ErrorCode::peer_lost);
    EXPECT_THAT(in_barrier.what(), HasSubstr("left"));
  });
  EXPECT_FALSE(job[0].is_lost());
  EXPECT_TRUE(job.coordinator.said_goodbye(1));
  job.members[1].reset();
  job[0].leave();
  EXPECT_TRUE(job.coordinator.wait_until_all_left(soon()));
  EXPECT_FALSE(job.coordinator.first_lost());
}

TEST(Member, ValuesThatAreSetBeforeLeavingStay) {
  TestJob job(2);
  job.join_all();
  job[1].set("last words", "bye");
  job[1].leave();
  EXPECT_EQ(job[0].get("last words", soon()), "bye");
}

TEST(Member, MakesNoCallsAfterItHasLeft) {
  TestJob job(1);
  job.join_all();
  job[0].leave();
  EXPECT_EQ(error_of([&] { job[0].set("k", "v"); }).code(), ErrorCode::invalid_argument);
}

TEST(Member, LeavingEndsTheCallsOfItsOtherThreads) {
  TestJob job(2);
  job.join_all();
  std::thread waiting([&] {
    EXPECT_THAT(error_of([&] { job[0].get("never", soon()); }).what(), HasSubstr("left"));
  });
  job[0].leave();
  waiting.join();
}

TEST(Member, NamesTheCoordinatorWhenItIsLost) {
  auto coordinator = std::make_unique<Coordinator>(kAnyPort, kToken, options_for(1));
  const net::Endpoint endpoint = coordinator->endpoint();
  Member member(endpoint, kToken, 0, 1, 5, {}, {.timeout = Milliseconds(10000)});
  std::thread dying([&] { coordinator.reset(); });
  const Error error = error_of([&] { member.get("never", soon()); });
  dying.join();
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(),
              HasSubstr("the coordinator at " + endpoint.describe() + " closed the connection"));
  EXPECT_EQ(member.lost()->worker, -1);
  EXPECT_EQ(member.lost()->reason,
            "the coordinator at " + endpoint.describe() + " closed the connection");
  EXPECT_EQ(error_of([&] { member.barrier("end"); }).code(), ErrorCode::peer_lost);
  EXPECT_NO_THROW(member.leave());
}

}  // namespace
}  // namespace trireme::membership::member_test
