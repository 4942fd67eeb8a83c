// A programme of the user's own in place of `trireme-worker` and `trireme-bench`.
#include <torch/headeronly/version.h>
#include <trireme/base/version.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/cli/worker/program.h>
#include <trireme/run/as_worker.h>
#include <string_view>

namespace trireme {
namespace {

// `trireme` starts no programme without this mark, because its main() would do something else.
[[gnu::used, gnu::retain]] constexpr char trireme_stands_in[] =
    "\x1etrireme:worker:run_as_worker:" TORCH_VERSION ":" TRIREME_HEADERS_VERSION "\x1f";

}  // namespace

void run_as_worker(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (!word.starts_with(kInPlaceOf)) return;
  const std::string_view programme = word.substr(kInPlaceOf.size());
  argv[1] = argv[0];
  if (programme == "trireme-bench")
    cli::run_worker_program(argc - 1, argv + 1, "trireme-bench", "Started by trireme bench",
                            cli::add_bench_ranks);
  cli::run_worker_program(argc - 1, argv + 1, "trireme-worker", "Started by trireme",
                          cli::add_worker_commands);
}

}  // namespace trireme
