// `trireme-bench`: the ranks of `trireme bench`. It is a programme of its own, so that a build for
// training leaves it out.
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/worker/program.h>

int main(int argc, char** argv) {
  trireme::cli::run_worker_program(argc, argv, "trireme-bench", "Started by trireme bench",
                                   trireme::cli::add_bench_ranks);
}
