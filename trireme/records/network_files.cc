#include <trireme/records/network_files.h>

#include <fmt/format.h>
#include <trireme/records/damage.h>

namespace trireme::records {

std::string_view network_file_system(long type) {
  switch (static_cast<unsigned long>(type) & 0xffffffffUL) {
    case 0x6969: return "NFS";
    case 0x517b:
    case 0xff534d42:
    case 0xfe534d42: return "SMB";
    case 0x00c36400: return "Ceph";
    case 0x0bd00bd0: return "Lustre";
    case 0x47504653: return "GPFS";
    case 0x5346414f: return "AFS";
    case 0x65735546: return "FUSE";
    case 0x01021997: return "9P";
    case 0x19830326: return "BeeGFS";
    default: return {};
  }
}

void require_local_for_lmdb(long type, bool is_remote) {
  if (const auto name = network_file_system(type); !name.empty())
    throw Damage(fmt::format("it is on a network file system ({}), which LMDB cannot use", name),
                 is_remote ? "a data.download_dir on a local disk" : "a copy on a local disk",
                 ErrorCode::unsupported);
}

}  // namespace trireme::records
