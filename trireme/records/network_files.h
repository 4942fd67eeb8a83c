// File systems that several hosts may have mounted.
#pragma once
#include <string_view>

namespace trireme::records {

// The name of a network file system by its number of statfs(), or an empty text for others. They
// do not keep a mapped file the same for all hosts.
std::string_view network_file_system(long type);

}  // namespace trireme::records
