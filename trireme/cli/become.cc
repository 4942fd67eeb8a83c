#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trireme::cli {

void become(const std::string& name, const std::string& library,
            std::vector<std::string> arguments) {
  const std::vector<std::string> command = torch_command(name, library);
  const std::string& program = command.front();
  arguments.insert(arguments.begin(), command.begin(), command.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(program.c_str(), argv.data());
  throw Error(ErrorCode::io, "cli",
              fmt::format("cannot start {}: {}", program, std::strerror(errno)),
              "build or install Trireme again");
}

}  // namespace trireme::cli
