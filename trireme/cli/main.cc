// `trireme`: the light front end. It does not load LibTorch; the programmes beside it do,
// trireme-worker for training and trireme-bench for measuring.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/version.h>
#include <trireme/cli/commands.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <cstdio>

namespace trireme::cli {

void become(const std::string& name, std::vector<std::string> arguments) {
  const std::string program = sibling_program(name).string();
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(program.c_str(), argv.data());
  throw Error(ErrorCode::io, "cli",
              fmt::format("cannot start {}: {}", program, std::strerror(errno)),
              "build or install Trireme again");
}

namespace {

int run(int argc, char** argv) {
  CommandLine app(
      "Trireme trains LibTorch models on one device or many, with replicas in threads, "
      "processes and hosts.");
  app.version(std::string(version()));
  app.footer("Example: trireme train examples/digits.yaml --workers 2");
  add_train(app);
  add_launch(app);
  add_plan(app);
  add_bench(app);
  add_ckpt(app);
  add_data(app);
  add_scale(app);
  add_consistency(app);
  add_doctor(app);
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
