// The subcommands of `trireme`. Each adds its options and sets its action; main runs the action
// that was chosen.
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

// Runs the programme `trireme-worker`, which uses torch, in place of this one. Returns only by
// throwing.
int become_worker(std::vector<std::string> arguments);

}  // namespace trireme::cli
