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
void add_consistency(Command app);
void add_doctor(Command app);
// All of them, the command "help", and the version.
void add_commands(CommandLine& app);

// Runs the programme with torch of this name in place of this one (torch_command() in
// run/places.h). Throws Error(not_found, io) if it cannot.
[[noreturn]] void become(const std::string& name, const std::string& library,
                         std::vector<std::string> arguments);

}  // namespace trireme::cli
