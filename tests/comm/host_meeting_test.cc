// A worker of a host is killed in one phase after the other of the meeting of its processes: the
// others hear of it at once, however long their own time-out is.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/comm/host/host_map.h>
#include <trireme/comm/tcp/mesh.h>
#include <trireme/membership/coordinator.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <vector>

namespace trireme::comm::host_meeting_test {
namespace {

using std::chrono::steady_clock;

constexpr int kWorkers = 3;
constexpr Milliseconds kTimeout{60000};
constexpr Milliseconds kAtOnce{10000};  // The bound allows for a busy machine.
const std::string kToken = "secret";

// The phase in which the victim dies. The others continue until they wait for it.
enum class Moment {
  joined,
  knows_the_hosts,
  listens,        // The first process has not said where it listens.
  has_published,  // No process has connected to the first one yet.
  looks_up,       // The others know where to connect, and have not connected.
  waits_for_memory,
  has_met,
  is_in_a_barrier,
  allocates,
  agrees,
  calls_the_mesh,
};

struct Case {
  const char* name;
  Moment moment;
  int victim;
};

// A worker's message to the test: its number, and how it ended.
struct Report {
  int worker;
  int code;  // The code of the error; -1: it ended without one.
  int64_t milliseconds;
};

class Worker {
 public:
  Worker(const net::Endpoint& coordinator, int worker, const Case& what, int gate)
      : worker_(worker), case_(what), gate_(gate) {
    member_ = std::make_shared<membership::Member>(
        coordinator, kToken, worker, kWorkers, 0, std::map<std::string, std::string>{},
        membership::MemberOptions{.timeout = kTimeout, .heartbeat_interval = Milliseconds(20)});
  }

  void run() {
    die_at(Moment::joined);
    const HostMap map = find_hosts(*member_, worker_, kWorkers, "here", Deadline::after(kTimeout));
    die_at(Moment::knows_the_hosts);
    HostMeeting meeting;
    meeting.process = worker_;
    meeting.processes = kWorkers;
    meeting.timeout = kTimeout;
    meeting.publish = [this](const std::string& value) {
      die_at(Moment::listens);
      member_->set("where", value);
      die_at(Moment::has_published);
    };
    meeting.look_up = [this](Deadline deadline) {
      const std::string where = member_->get("where", deadline);
      die_at(Moment::looks_up);
      // The last worker comes when the victim is dead: nobody has been handed memory then.
      if (case_.moment == Moment::waits_for_memory && worker_ == kWorkers - 1) wait_at_the_gate();
      return where;
    };
    meeting.throw_if_lost = [this] {
      die_at(Moment::waits_for_memory);
      member_->throw_if_lost();
    };
    const auto team = join_host_teams(meeting, 1).front();
    die_at(Moment::has_met);
    team->barrier("a barrier");
    die_at(Moment::is_in_a_barrier);
    team->barrier("another one");
    die_at(Moment::allocates);
    const auto memory = team->allocate(1 << 20, 1 << 20, "a test");
    die_at(Moment::agrees);
    member_->agree("configuration", {{"a", "1"}});
    die_at(Moment::calls_the_mesh);
    connect_mesh(*member_, worker_, kWorkers,
                 {.name = "mesh", .address = "127.0.0.1", .token = kToken, .timeout = kTimeout});
  }

 private:
  void die_at(Moment moment) const {
    if (worker_ == case_.victim && moment == case_.moment) ::raise(SIGKILL);
  }
  void wait_at_the_gate() const {
    pollfd open{gate_, POLLIN, 0};
    ::poll(&open, 1, static_cast<int>(kTimeout.count()));
  }

  const int worker_;
  const Case case_;
  const int gate_;
  std::shared_ptr<membership::Member> member_;
};

// A child process; it begins once the coordinator's port comes by `start`.
[[noreturn]] void be_worker(int worker, const Case& what, int start, int gate, int reports) {
  int port = 0;
  if (::read(start, &port, sizeof port) != sizeof port) ::_exit(1);
  Report report{worker, -1, 0};
  const auto began = steady_clock::now();
  try {
    Worker({"127.0.0.1", port}, worker, what, gate).run();
  } catch (const Error& error) {
    report.code = static_cast<int>(error.code());
    if (error.code() != ErrorCode::peer_lost) ::dprintf(STDERR_FILENO, "%s\n", error.what());
  }
  report.milliseconds =
      std::chrono::duration_cast<Milliseconds>(steady_clock::now() - began).count();
  (void)!::write(reports, &report, sizeof report);
  ::_exit(0);
}

class HostMeetingOfProcesses : public testing::TestWithParam<Case> {};

TEST_P(HostMeetingOfProcesses, AllWaitsHearOfALostWorker) {
  const Case what = GetParam();
  std::array<int, 2> start{}, gate{}, reports{};
  for (auto* ends : {&start, &gate, &reports}) ASSERT_EQ(::pipe2(ends->data(), O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int worker = 0; worker < kWorkers; ++worker) {  // There is no thread yet.
    children.push_back(::fork());
    if (children.back() == 0) be_worker(worker, what, start[0], gate[0], reports[1]);
  }
  membership::Coordinator coordinator({"127.0.0.1", 0}, kToken, {.workers = kWorkers});
  const int port = coordinator.endpoint().port;
  for (int worker = 0; worker < kWorkers; ++worker)
    ASSERT_EQ(::write(start[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));

  // The launcher reports a lost worker in the same way.
  ASSERT_EQ(::waitpid(children[static_cast<size_t>(what.victim)], nullptr, 0),
            children[static_cast<size_t>(what.victim)]);
  coordinator.report_lost(what.victim, "killed by signal 9 (SIGKILL)");
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  for (int survivor = 0; survivor < kWorkers - 1; ++survivor) {
    pollfd ready{reports[0], POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(kAtOnce.count())) != 1) {
      ADD_FAILURE() << "a worker still waits";
      break;
    }
    Report report{};
    ASSERT_EQ(::read(reports[0], &report, sizeof report), static_cast<ssize_t>(sizeof report));
    EXPECT_EQ(report.code, static_cast<int>(ErrorCode::peer_lost)) << "worker " << report.worker;
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  for (const auto& ends : {start, gate, reports})
    for (const int end : ends) ::close(end);
}

INSTANTIATE_TEST_SUITE_P(EachPhase, HostMeetingOfProcesses,
                         testing::Values(Case{"FirstHasJoined", Moment::joined, 0},
                                         Case{"LastHasJoined", Moment::joined, 2},
                                         Case{"FirstKnowsTheHosts", Moment::knows_the_hosts, 0},
                                         Case{"LastKnowsTheHosts", Moment::knows_the_hosts, 2},
                                         Case{"FirstListens", Moment::listens, 0},
                                         Case{"FirstHasPublished", Moment::has_published, 0},
                                         Case{"SecondLooksUp", Moment::looks_up, 1},
                                         Case{"FirstWaitsForOthers", Moment::waits_for_memory, 0},
                                         Case{"SecondWaitsForMemory", Moment::waits_for_memory, 1},
                                         Case{"FirstHasMet", Moment::has_met, 0},
                                         Case{"LastHasMet", Moment::has_met, 2},
                                         Case{"FirstIsInABarrier", Moment::is_in_a_barrier, 0},
                                         Case{"FirstAllocates", Moment::allocates, 0},
                                         Case{"LastAllocates", Moment::allocates, 2},
                                         Case{"SecondAgrees", Moment::agrees, 1},
                                         Case{"FirstCallsTheMesh", Moment::calls_the_mesh, 0},
                                         Case{"LastCallsTheMesh", Moment::calls_the_mesh, 2}),
                         [](const testing::TestParamInfo<Case>& each) { return each.param.name; });

}  // namespace
}  // namespace trireme::comm::host_meeting_test
