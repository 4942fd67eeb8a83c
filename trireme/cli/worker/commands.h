// The subcommands of `trireme-worker`.
#pragma once
#include <trireme/cli/command_line.h>

namespace trireme::cli {

void add_worker_train(Command app);
void add_worker_plan(Command app);
void add_worker_doctor(Command app);
void add_worker_data(Command app);
void add_worker_commands(Command app);  // All of them.

}  // namespace trireme::cli
