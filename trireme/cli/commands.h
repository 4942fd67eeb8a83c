// The subcommands of `trireme`. Each registers its options and sets its action; main runs the one
// that was asked for.
#pragma once
#include <trireme/cli/command_line.h>

namespace trireme::cli {

void add_train(Command app);
void add_launch(Command app);
void add_plan(Command app);
void add_bench(Command app);
void add_ckpt(Command app);
void add_data(Command app);
void add_scale(Command app);
void add_doctor(Command app);

// Runs the torch programme `trireme-worker` in place of this one. Returns only by throwing.
int become_worker(std::vector<std::string> arguments);

}  // namespace trireme::cli
