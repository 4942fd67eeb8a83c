// The subcommands of `trireme`. Each registers its options and sets its action; main runs the one
// that was asked for.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace trireme::cli {

// What the chosen subcommand does; returns the exit code.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_ckpt(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_scale(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);

// Runs the torch programme `trireme-worker` in place of this one. Returns only by throwing.
int become_worker(std::vector<std::string> arguments);

}  // namespace trireme::cli
