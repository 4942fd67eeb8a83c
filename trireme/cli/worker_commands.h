// The subcommands of `trireme-worker`.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace trireme::cli {

using WorkerAction = std::function<int()>;

void add_worker_train(CLI::App& app, WorkerAction& action);
void add_worker_bench(CLI::App& app, WorkerAction& action);
void add_worker_doctor(CLI::App& app, WorkerAction& action);

}  // namespace trireme::cli
