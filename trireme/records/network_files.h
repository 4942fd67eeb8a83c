// File systems that several hosts may have mounted.
#pragma once
#include <string_view>

namespace trireme::records {

// The name of a network file system by its number of statfs(), or an empty text for others. They
// do not keep a mapped file the same for all hosts.
std::string_view network_file_system(long type);

// Throws Damage(unsupported) for a file there, because LMDB cannot map it safely. `is_remote`: the
// file was fetched from a server.
void require_local_for_lmdb(long type, bool is_remote);

}  // namespace trireme::records
