// `trireme`: the light front. It loads no LibTorch: what computes is done by trireme-worker beside
// it.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/version.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/paths.h>
#include <unistd.h>
#include <cstdio>

namespace trireme::cli {

int become_worker(std::vector<std::string> arguments) {
  const std::string program = sibling_program("trireme-worker").string();
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
  CLI::App app{
      "Trireme trains LibTorch models on one device or many: replicas in step on threads, "
      "processes and hosts."};
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  app.footer("Example: trireme train examples/digits.yaml --workers 2");
  Action action;
  add_train(app, action);
  add_launch(app, action);
  add_plan(app, action);
  add_bench(app, action);
  add_ckpt(app, action);
  add_data(app, action);
  add_scale(app, action);
  add_doctor(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "trireme: {}; try: trireme --help\n", error.what());
    return kExitUsage;
  }
  return action();
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
