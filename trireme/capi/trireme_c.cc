#include <fmt/format.h>
#include <torch/version.h>

#include <trireme/base/version.h>
#include <trireme/capi/handles.h>
#include <trireme/plan/data_plan.h>
#include <trireme/tensor/cpu_allocator.h>
#include <unistd.h>
#include <cstdlib>
#include <mutex>
#include <set>

using trireme::Error;
using namespace trireme::capi;

namespace {

// The worlds that the programme has not freed. Their threads may not run while the process
// destroys its globals, so they end first when the programme returns from main or calls exit().
// For the other workers this process is then lost, unless it has left.
class Living {
 public:
  static Living& of_process() {
    // Never destroyed: exit() may come to it at any time.
    static Living* const only = [] {
      std::atexit([] { of_process().end_all(); });
      return new Living;
    }();
    return *only;
  }
  void add(trireme_world* world) {
    const std::lock_guard lock(mutex_);
    all_.insert(world);
  }
  // Whether the world was still there, and is now the caller's to delete.
  bool remove(trireme_world* world) {
    const std::lock_guard lock(mutex_);
    return all_.erase(world) == 1;
  }

 private:
  // A process that was forked has no threads of its own.
  void end_all() {
    if (getpid() != owner_) return;
    const std::lock_guard lock(mutex_);
    for (trireme_world* const world : all_) delete world;
    all_.clear();
  }
  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::set<trireme_world*> all_;
};

trireme::ReduceOp op_of(trireme_op op) {
  switch (op) {
    case TRIREME_SUM: return trireme::ReduceOp::sum;
    case TRIREME_MEAN: return trireme::ReduceOp::mean;
    case TRIREME_MAX: return trireme::ReduceOp::max;
    case TRIREME_MIN: return trireme::ReduceOp::min;
  }
  throw refused(fmt::format("there is no operation {}", static_cast<int>(op)),
                "TRIREME_SUM, TRIREME_MEAN, TRIREME_MAX or TRIREME_MIN");
}

}  // namespace

extern "C" {

const char* trireme_last_error(void) { return last_error().c_str(); }
int trireme_exit_code(trireme_status status) {
  switch (status) {
    case TRIREME_OK:
    case TRIREME_MEET_AGAIN:
    case TRIREME_DISMISSED: return 0;
    case TRIREME_STOPPED: return trireme::kExitStopped;
    default: return trireme::exit_code_of(Error(code_of(status), "capi", ""));
  }
}
const char* trireme_version(void) {
  static const std::string text(trireme::version());
  return text.c_str();
}
const char* trireme_torch_version(void) { return TORCH_VERSION; }

trireme_status trireme_world_join(trireme_world** world) {
  return guarded([&] {
    given(world, "the place for the world");
    auto made = std::make_unique<trireme_world>(
        trireme::World::join({}, trireme::Environment::of_process()));
    try {
      made->world.connect();
    } catch (const Error& error) {
      // An elastic job needs no further worker.
      if (error.code() != trireme::ErrorCode::aborted || !made->world.is_elastic()) throw;
      throw Outcome{TRIREME_DISMISSED, error.what()};
    }
    // Processes of one host read each other's tensors, and large pages faster.
    if (made->world.size() > 1) trireme::install_cpu_allocator();
    *world = made.release();
    Living::of_process().add(*world);
  });
}
int trireme_world_rank(const trireme_world* world) { return world ? world->world.rank() : -1; }
int trireme_world_size(const trireme_world* world) { return world ? world->world.size() : -1; }
int trireme_world_is_elastic(const trireme_world* world) {
  return world && world->world.is_elastic() ? 1 : 0;
}
trireme_status trireme_world_share(trireme_world* world, int64_t batch, int64_t* first,
                                   int64_t* count) {
  const bool with_gradients = at::GradMode::is_enabled();  // As the caller has it.
  return guarded([&] {
    const at::AutoGradMode mode(with_gradients);
    trireme::World& all = given(world, "the world").world;
    given(count, "the place for the count") = all.share(batch);
    if (first) *first = trireme::plan::DataPlan::share(batch, all.rank(), all.size()).first;
  });
}
trireme_status trireme_world_leave(trireme_world* world) {
  return guarded([&] { given(world, "the world").world.leave(); });
}
void trireme_world_free(trireme_world* world) {
  // It may have ended by itself, when the process began to end.
  if (Living::of_process().remove(world)) delete world;
}

trireme_status trireme_all_reduce(trireme_world* world, const trireme_tensor* tensor,
                                  trireme_op op) {
  return guarded([&] {
    given(world, "the world")
        .world.loop_group()
        ->all_reduce(view_of(tensor, "the tensor"), op_of(op));
  });
}
trireme_status trireme_broadcast(trireme_world* world, const trireme_tensor* tensor, int root) {
  return guarded([&] {
    given(world, "the world").world.loop_group()->broadcast(view_of(tensor, "the tensor"), root);
  });
}
trireme_status trireme_all_gather(trireme_world* world, const trireme_tensor* own,
                                  const trireme_tensor* all) {
  return guarded([&] {
    given(world, "the world")
        .world.loop_group()
        ->all_gather(view_of(own, "the own tensor"), view_of(all, "the tensor of all"));
  });
}
trireme_status trireme_barrier(trireme_world* world) {
  return guarded([&] { given(world, "the world").world.loop_group()->barrier(); });
}

}  // extern "C"
