// The arguments of the commands that read the files of a data set: a path and how it is read, or a
// configuration.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/records/open.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

// A reader, and what it is called in the output.
struct OpenedPart {
  std::string name;  // train or test of a configuration; empty for a path.
  std::string path;  // Without secrets.
  std::shared_ptr<const records::Reader> reader;

  std::string title() const { return name.empty() ? path : name + " " + path; }
};

struct DataArguments {
  records::OpenOptions open;
  std::vector<std::string> set;
  std::string memory, download_bytes, download_timeout;
  std::optional<int> separator, download_tries, max_ratio;
  bool no_header = false, json = false;
  int64_t count = 5, from = 0;

  void add_to(Command command);
  // Opens the path, or the parts of the configuration. Throws Error(invalid_argument) for options
  // that do not go together, and what open_records() throws.
  std::vector<OpenedPart> parts(bool make_index_anew = false) const;

 private:
  bool is_config() const;
  records::OpenOptions completed(records::OpenOptions options, bool make_index_anew) const;
  std::vector<OpenedPart> parts_of_config(bool make_index_anew) const;
};

}  // namespace trireme::cli
