// The groups of one replica in one generation of its job.
#pragma once
#include <trireme/comm/mesh_rank.h>
#include <memory>
#include <string>

namespace trireme {

struct ReplicaGroups {
  std::shared_ptr<Group> all;
  std::shared_ptr<Group> norms;  // All again, for batch norms over all replicas; or null.
  MeshRank mesh;                 // Without groups if the strategy needs no mesh.

  // Ends the waits of all other ranks in these groups.
  void abort(const std::string& reason) const {
    all->abort(reason);
    if (norms) norms->abort(reason);
    for (const auto& [axis, group] : mesh.groups) group->abort(reason);
  }
};

}  // namespace trireme
