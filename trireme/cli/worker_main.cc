// `trireme-worker`: the part of the command line that trains. `trireme` starts it; people do not.
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/stack_dump.h>
#include <trireme/cli/worker_commands.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/keep_memory.h>
#include <cstdio>
#include <cstdlib>

namespace trireme::cli {
namespace {

int run(int argc, char** argv) {
  CommandLine app("trireme-worker: started by trireme");
  add_worker_train(app);
  add_worker_bench(app);
  add_worker_doctor(app);
  return app.run(argc, argv);
}

// Ends without destructors. Other ranks may be gone, and destructors of backends could wait for
// them until their time-outs. All that had to be saved has been saved.
[[noreturn]] void end_at_once(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  trireme::dump_stack_on_signal();
  trireme::keep_freed_memory();
  trireme::install_cpu_allocator();
  try {
    trireme::cli::end_at_once(trireme::cli::run(argc, argv));
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "trireme: {}\n", error.what());
    trireme::cli::end_at_once(trireme::exit_code_of(error));
  } catch (const std::exception& error) {
    // An error of LibTorch itself, mostly about a shape or a type.
    fmt::print(stderr, "trireme: [torch] {}{}{}; try: check that model and data fit each other\n",
               trireme::rank_label(), trireme::rank_label().empty() ? "" : ": ",
               trireme::brief(error));
    trireme::cli::end_at_once(trireme::kExitFailed);
  }
}
