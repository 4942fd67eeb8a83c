// The arguments of `trireme data serve`, in `trireme` and in the process that serves.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/cli/config_keys.h>
#include <trireme/run/config.h>
#include <string>
#include <vector>

namespace trireme::cli {

struct ServeArguments {
  ConfigSource source;
  std::string listen = "127.0.0.1:29600";
  bool quiet = false, json = false;

  void add_to(Command command) {
    command.option("config", source.file,
                   "YAML file: the one of the runs that ask; only its data counts");
    command.repeated("--set", source.set, "key=value, after the file; may be repeated");
    command.settings(key_meant_by);
    command.option("--listen", listen,
                   "HOST:PORT that the workers' hosts reach (default 127.0.0.1:29600: this host "
                   "only; port 0: any free one)");
    command.flag("--quiet", quiet, "No progress");
    command.flag("--json", json,
                 "Print a line of JSON at the start, and one with the counts every 10 s and at "
                 "the end");
  }
  std::vector<std::string> words() const {  // The same arguments for another process.
    std::vector<std::string> words;
    if (!source.file.empty()) words.push_back(source.file.string());
    for (const std::string& set : source.set) words.insert(words.end(), {"--set", set});
    words.insert(words.end(), {"--listen", listen});
    if (quiet) words.push_back("--quiet");
    if (json) words.push_back("--json");
    return words;
  }
};

}  // namespace trireme::cli
