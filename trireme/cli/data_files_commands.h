// The subcommands of `trireme data` that read the files of a data set.
#pragma once
#include <trireme/cli/command_line.h>

namespace trireme::cli {

void add_data_files(Command data);
void add_data_pack(Command data);

}  // namespace trireme::cli
