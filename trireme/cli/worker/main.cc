// `trireme-worker`: the part of the command line that trains.
#include <trireme/cli/worker/commands.h>
#include <trireme/cli/worker/program.h>

int main(int argc, char** argv) {
  trireme::cli::run_worker_program(argc, argv, "trireme-worker", "Started by trireme",
                                   trireme::cli::add_worker_commands);
}
