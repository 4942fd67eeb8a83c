// `trireme`: the light front end. It does not load LibTorch; the programmes beside it do,
// trireme-worker for training and trireme-bench for measuring.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <cstdio>

namespace trireme::cli {
namespace {

int run(int argc, char** argv) {
  CommandLine app("trireme",
                  "Trireme trains LibTorch models on one device or many, with replicas in "
                  "threads, processes and hosts.");
  add_commands(app);
  return app.run(argc, argv);
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  try {
    return trireme::cli::run(argc, argv);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "trireme: {}\n", error.what());
    return trireme::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "trireme: {}\n", error.what());
    return trireme::kExitFailed;
  }
}
