// The subcommands of `trireme data` for the files of a data set and of its caches.
#pragma once
#include <trireme/cli/command_line.h>

namespace trireme::cli {

void add_data_files(Command data);
void add_data_pack(Command data);
void add_data_cache(Command data);

}  // namespace trireme::cli
