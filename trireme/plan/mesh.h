// Decides the place of each rank in a grid with named axes (data, stage, tensor, shard). The
// functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class Mesh {
 public:
  // The last axis varies fastest. Throws Error(invalid_argument) naming the axis if there are no
  // axes, a size is below 1, a name appears twice, or the ranks are too many to count.
  explicit Mesh(std::vector<MeshAxis> axes);

  int world_size() const;
  // The coordinates of a rank, one per axis. Throws Error(invalid_argument) for a rank
  // outside the world.
  std::vector<int> coordinates_of(int rank) const;
  // The rank at these coordinates. Throws Error(invalid_argument) if they are outside the mesh.
  int rank_at(const std::vector<int>& coordinates) const;
  // The ranks that differ from `rank` on that axis only, in ascending order, with `rank` itself.
  // Throws Error(invalid_argument) for an unknown axis or a rank outside the world.
  std::vector<int> peers_along(std::string_view axis, int rank) const;
  // The groups along that axis, in the order of their first ranks. Each rank is in one of them.
  std::vector<std::vector<int>> groups_along(std::string_view axis) const;
  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::string describe() const;
  Json to_json() const;

 private:
  std::vector<MeshAxis> axes_;
};

// Throws Error(internal) unless every coordinate belongs to exactly one rank.
void check(const Mesh& mesh);

// Throws Error(invalid_argument) unless the mesh has exactly the ranks of the world; the message
// names the ranks that would be in no group.
void check_world(const Mesh& mesh, int world_size);
// Throws Error(invalid_argument) naming the rank if one is outside the world or listed twice, or
// if there are none.
void check_group(const std::vector<int>& ranks, int world_size);

}  // namespace trireme::plan
