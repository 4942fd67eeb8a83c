// A programme of the system tests with a loop of its own: the workers of an elastic job count
// steps together, and side tasks serve.
//
//   trireme launch --elastic 2:4 --unit 2 -- world_loop EVENTS GO [ROLE]
//
// Each process appends a line of JSON to the file EVENTS whenever its place in the job changes, or
// a worker sees other tasks of ROLE. The workers end together when the file GO is there, or when
// one of them is asked to stop.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/comm/world.h>
#include <trireme/membership/arrival.h>
#include <trireme/train/stop_signal.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

namespace {

using namespace std::chrono_literals;

// A process that its test does not end must not stay.
constexpr unsigned kLongestLife = 120;
constexpr trireme::Milliseconds kPatience{20000};

class Events {
 public:
  explicit Events(const char* path)
      : file_(::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) {}
  // One write, so that the lines of several processes do not mix.
  void add(const char* what, trireme::Json event) const {
    event["event"] = what;
    event["pid"] = ::getpid();
    const std::string line = event.dump() + "\n";
    if (::write(file_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw trireme::Error(trireme::ErrorCode::io, "world_loop", "an event was not written");
  }

 private:
  const trireme::Descriptor file_;
};

int serve(trireme::World& world, const Events& events) {
  world.connect();
  const std::string name = world.task().name();
  world.set_value("the server of " + name, std::to_string(::getpid()));
  events.add("serves", {{"task", name}});
  while (!world.finish_wanted() && !trireme::StopSignal::requested())
    std::this_thread::sleep_for(5ms);
  world.leave();
  events.add("finished", {{"task", name}});
  return 0;
}

struct Counter {
  trireme::World& world;
  const Events& events;
  const char* const go;
  const char* const role;  // May be null.
  int64_t step = -1;
  std::vector<int> seen;  // The processes that have the role's tasks.

  void look_at_tasks() {
    std::vector<int> now;
    if (role != nullptr)
      for (const auto& peer : world.peers(role)) now.push_back(peer.pid);
    if (now == seen) return;
    events.add("sees", {{"tasks", now}});
    seen = now;
  }
  // Counts steps until all workers are to end (true) or to meet again (false).
  bool count_together() {
    const auto group = world.make_groups()[0];
    for (;; std::this_thread::sleep_for(5ms)) {
      look_at_tasks();
      const bool ends = trireme::StopSignal::requested() || std::filesystem::exists(go);
      const at::Tensor sums = at::zeros({3});
      sums[0] = 1;
      sums[1] = ends ? 1 : 0;
      sums[2] = world.regroup_wanted() ? 1 : 0;
      group->all_reduce(sums);
      if (sums[0].item<float>() != static_cast<float>(world.workers()))
        throw trireme::Error(trireme::ErrorCode::internal, "world_loop", "a sum is wrong");
      ++step;
      if (sums[1].item<float>() > 0) return true;
      if (sums[2].item<float>() > 0) return false;
    }
  }
  // Returns false if the job continues without this process.
  bool meet(const std::string& reason) {
    if (!world.regroup(step, reason)) return false;
    events.add("place", {{"generation", world.identity().generation},
                         {"worker", world.worker()},
                         {"workers", world.workers()},
                         {"step", world.step_of_generation()},
                         {"steps", world.steps_of_generation()}});
    step = std::max({step, world.step_of_generation(), int64_t{0}});
    return true;
  }
};

// Whether the others may continue after this error, as the Trainer decides it.
bool is_of_lost_peer(const trireme::Error& error) {
  return error.code() == trireme::ErrorCode::peer_lost ||
         error.code() == trireme::ErrorCode::aborted ||
         error.code() == trireme::ErrorCode::timeout;
}

int work(Counter counter) {
  for (std::string reason;;) {
    try {
      if (!counter.meet(reason)) {
        counter.events.add("dismissed", trireme::Json::object());
        return 0;
      }
      reason.clear();
      if (!counter.count_together()) continue;
      counter.world.leave();
      counter.events.add("finished", {{"step", counter.step}});
      return 0;
    } catch (const trireme::membership::NoGeneration&) {
      throw;
    } catch (const trireme::Error& error) {
      if (!is_of_lost_peer(error)) throw;
      reason = error.what();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  ::alarm(kLongestLife);
  try {
    const trireme::StopSignal stop;
    const Events events(argv[1]);
    trireme::World world = trireme::World::join({.timeout = kPatience});
    if (world.task().role != "worker") return serve(world, events);
    return work({world, events, argv[2], argc == 4 ? argv[3] : nullptr});
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << std::endl;
    return trireme::exit_code_of(error);
  }
}
