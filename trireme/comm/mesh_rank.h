// The place of a rank in a mesh, and its groups. World::mesh() makes it.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/plan/mesh.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct MeshRank {
  int rank = 0;
  std::vector<int> coordinates;                                       // One for each axis.
  std::map<std::string, std::shared_ptr<Group>, std::less<>> groups;  // By axis.
  std::optional<plan::Mesh> shape = {};                               // Empty: there is no mesh.
  // The ranks that differ from this one on that axis only; the coordinate is the rank in the
  // group. Throws Error(invalid_argument) for an unknown axis.
  const std::shared_ptr<Group>& along(std::string_view axis) const;
};

}  // namespace trireme
