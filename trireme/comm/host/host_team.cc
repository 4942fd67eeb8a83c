#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/net/descriptor_socket.h>
#include <trireme/net/fixed_text.h>
#include <trireme/watch/phase_marks.h>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>

namespace trireme::comm {
namespace {

constexpr size_t kControlBytes = 64 << 10;
constexpr size_t kTextBytes = 96;

// An Intent in memory that other processes read.
struct PostedIntent {
  std::array<char, kTextBytes> operation, form;
  int64_t elements;
  bool operator==(const PostedIntent& other) const {
    return elements == other.elements &&
           std::strcmp(operation.data(), other.operation.data()) == 0 &&
           std::strcmp(form.data(), other.form.data()) == 0;
  }
};

std::string describe(int rank, const PostedIntent& intent) {
  return fmt::format("rank {} calls {} with {} elements ({})", rank, intent.operation.data(),
                     intent.elements, intent.form.data());
}

}  // namespace

// Lies at the start of the team's first segment.
struct HostTeam::Control {
  net::SharedBarrier barrier;
  // Two sets, used in turn: a rank may be one meeting ahead of a rank that still reads.
  std::array<std::array<PostedIntent, net::kMaxRanksOfHost>, 2> intents;
};

struct HostTeam::Process {
  int process = 0, processes = 1;
  std::vector<int> ranks;  // Those of this process.
  int size = 1;            // All ranks of the team.
  Milliseconds timeout{60000};
  std::function<void()> throw_if_lost;
  // On process 0 these lead to all others, and on the others to process 0.
  std::vector<net::DescriptorSocket> others;
  net::SharedMemory control;
  // The newest allocation. The first thread writes it, and all threads read it after a barrier.
  std::shared_ptr<net::SharedMemory> handed_out;

  bool leads() const { return process == 0; }
  net::Sharing sharing() const {
    return processes > 1 ? net::Sharing::processes : net::Sharing::threads;
  }
  net::SharedMemory share(size_t bytes, size_t reserved, const char* purpose,
                          const std::string& folder = {});
};

// The mark of a wait. Inside the collective of a group, the threads of one process wait from its
// beginning to its end.
class HostTeam::Mark {
 public:
  Mark(const HostTeam& team, const char* operation) : among_(team.among_some_ranks_) {
    const int64_t number = watch::next_collective();
    if (number != watch::kUnmarked || team.process_->processes > 1)
      mark_.emplace(operation, 0, number);
  }

 private:
  const watch::AmongSomeRanks among_;
  std::optional<watch::CollectiveMark> mark_;
};

// Process 0 makes the memory and passes its descriptor on. A negative number tells the others that
// it could not.
net::SharedMemory HostTeam::Process::share(size_t bytes, size_t reserved, const char* purpose,
                                           const std::string& folder) {
  const Deadline deadline = Deadline::after(timeout);
  if (!leads()) {
    if (others[0].receive_number(deadline) < 0)
      throw Error(ErrorCode::aborted, "comm",
                  fmt::format("the first process of this host could not make shared memory for {}",
                              purpose));
    net::SharedMemory memory =
        net::SharedMemory::open(others[0].receive_descriptor(deadline), purpose, folder);
    memory.prefault(0, reserved);
    return memory;
  }
  try {
    net::SharedMemory memory = folder.empty()
                                   ? net::SharedMemory::create(bytes, sharing(), purpose)
                                   : net::SharedMemory::create_in(folder, bytes, purpose);
    memory.reserve(0, reserved);
    memory.prefault(0, reserved);
    for (auto& other : others) {
      other.send_number(static_cast<int64_t>(bytes), deadline);
      other.send_descriptor(memory.descriptor(), deadline);
    }
    return memory;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io)
      for (auto& other : others) other.send_number(-1, deadline);
    throw;
  }
}

HostTeam::HostTeam(std::shared_ptr<Process> process, int rank, int size)
    : process_(std::move(process)),
      rank_(rank),
      size_(size),
      barrier_(reinterpret_cast<Control*>(process_->control.data())->barrier, rank, size,
               {process_->timeout, process_->throw_if_lost, process_->sharing()}) {}
HostTeam::~HostTeam() = default;

HostTeam::Control& HostTeam::control() const {
  static_assert(sizeof(Control) <= kControlBytes);
  return *reinterpret_cast<Control*>(process_->control.data());
}
void HostTeam::barrier(const char* operation) {
  const Mark mark(*this, operation);
  barrier_.arrive_and_wait(operation);
}

void HostTeam::meet(const Intent& intent) {
  const Mark mark(*this, intent.operation);
  auto& posted = control().intents[meetings_++ % 2];
  PostedIntent& mine = posted[static_cast<size_t>(rank_)];
  net::write_text(mine.operation, intent.operation);
  net::write_text(mine.form, intent.form);
  mine.elements = intent.elements;
  barrier_.arrive_and_wait(intent.operation);
  for (int other = 0; other < size_; ++other) {
    if (posted[static_cast<size_t>(other)] == mine) continue;
    const std::string difference =
        describe(rank_, mine) + ", " + describe(other, posted[static_cast<size_t>(other)]);
    // All ranks have seen the difference and read the intents before one continues.
    barrier_.arrive_and_wait(intent.operation);
    throw Error(ErrorCode::invalid_argument, "comm", difference,
                "the same collectives in the same order on every rank");
  }
}

std::shared_ptr<net::SharedMemory> HostTeam::allocate(size_t bytes, size_t reserved,
                                                      const char* purpose,
                                                      const std::string& folder) {
  meet({"allocate", static_cast<int64_t>(bytes), purpose});
  if (rank_ == process_->ranks.front()) {
    try {
      process_->handed_out =
          std::make_shared<net::SharedMemory>(process_->share(bytes, reserved, purpose, folder));
    } catch (const Error& error) {
      // The process that made the memory has the best error message, so the others wait for it.
      if (error.code() == ErrorCode::aborted) {
        barrier_.arrive_and_wait("allocate");
      } else {
        const auto [what, remedy] = parts_of(error);
        barrier_.end(error.code(), what, remedy);
      }
      throw;
    }
  }
  barrier_.arrive_and_wait("allocate");
  std::shared_ptr<net::SharedMemory> memory = process_->handed_out;
  // All ranks hold the memory before the next allocation replaces it.
  barrier_.arrive_and_wait("allocate");
  return memory;
}

void HostTeam::throw_if_ended() const {
  barrier_.throw_if_ended();
  if (process_->throw_if_lost) process_->throw_if_lost();
}

void HostTeam::abort(const std::string& reason) {
  barrier_.end(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank_, reason));
}

namespace {

std::vector<std::shared_ptr<HostTeam>> teams_of(
    const std::shared_ptr<HostTeam::Process>& process) {
  std::vector<std::shared_ptr<HostTeam>> teams;
  for (const int rank : process->ranks)
    teams.push_back(std::make_shared<HostTeam>(process, rank, process->size));
  return teams;
}

std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

void check_size(int ranks) {
  if (ranks > net::kMaxRanksOfHost)
    throw Error(
        ErrorCode::unsupported, "comm",
        fmt::format("{} ranks share the memory of one host, {} can", ranks, net::kMaxRanksOfHost),
        "fewer replicas on this host, or comm.backend=gloo");
}

}  // namespace

std::vector<std::shared_ptr<HostTeam>> make_thread_teams(int size, Milliseconds timeout) {
  check_size(size);
  auto process = std::make_shared<HostTeam::Process>();
  process->ranks = ranks_from(0, size);
  process->size = size;
  process->timeout = timeout;
  process->control = process->share(kControlBytes, kControlBytes, "the barrier of threads");
  return teams_of(process);
}

std::vector<std::shared_ptr<HostTeam>> join_host_teams(const HostMeeting& meeting, int replicas) {
  const int size = meeting.ranks.empty() ? meeting.processes * replicas : meeting.size;
  check_size(size);
  auto process = std::make_shared<HostTeam::Process>();
  process->process = meeting.process;
  process->processes = meeting.processes;
  process->ranks =
      meeting.ranks.empty() ? ranks_from(meeting.process * replicas, replicas) : meeting.ranks;
  process->size = size;
  process->timeout = meeting.timeout;
  process->throw_if_lost = meeting.throw_if_lost;
  const Deadline deadline = Deadline::after(meeting.timeout);
  if (process->leads() && meeting.processes > 1) {
    net::DescriptorListener listener(meeting.throw_if_lost);
    meeting.publish(listener.name());
    for (int other = 1; other < meeting.processes; ++other)
      process->others.push_back(listener.accept(deadline));
  } else if (meeting.processes > 1) {
    process->others.push_back(net::DescriptorSocket::connect(meeting.look_up(deadline), deadline,
                                                             meeting.throw_if_lost));
  }
  process->control =
      process->share(kControlBytes, kControlBytes, "the barrier of this host's processes");
  return teams_of(process);
}

}  // namespace trireme::comm
