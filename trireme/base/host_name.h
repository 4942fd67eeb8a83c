// The name of the machine on which this process runs.
#pragma once
#include <string>

namespace trireme {

std::string own_host_name();  // It is empty if the system does not tell it.

}  // namespace trireme
