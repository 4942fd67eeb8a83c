// The body of main() in the programmes that use torch. `trireme` starts them; people do not.
#pragma once
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/stack_dump.h>
#include <trireme/cli/command_line.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/keep_memory.h>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace trireme::cli {

// Ends without destructors. Other ranks may be gone, and destructors of backends could wait for
// them until their time-outs. All that had to be saved has been saved.
[[noreturn]] inline void end_at_once(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

// Runs the subcommand of the programme `name` that `argv` names, out of those that
// `add_subcommands` adds. Prints an error that it throws, and ends the process with its exit code.
[[noreturn]] inline void run_worker_program(int argc, char** argv, const std::string& name,
                                            const std::string& description,
                                            void (*add_subcommands)(Command)) {
  dump_stack_on_signal();
  keep_freed_memory();
  install_cpu_allocator();
  try {
    CommandLine app(name, description);
    add_subcommands(app);
    end_at_once(app.run(argc, argv));
  } catch (const Error& error) {
    fmt::print(stderr, "trireme: {}\n", error.what());
    end_at_once(exit_code_of(error));
  } catch (const std::exception& error) {
    // An error of LibTorch itself, mostly about a shape or a type.
    fmt::print(stderr, "trireme: [torch] {}{}{}; try: check that model and data fit each other\n",
               rank_label(), rank_label().empty() ? "" : ": ", brief(error));
    end_at_once(kExitFailed);
  }
}

}  // namespace trireme::cli
